"""What a seed draws: a base, a user, and one to three changes. Drawing depends only on the bases and the index."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lab.strangers.ground import CAPABILITY, NEEDS_LINK, ON_PATH, BaseContents, Undrawn
from tfdoctor.core.findings import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lab.strangers.person import User

VARIABLE_SOURCES = ("shell", "activate", "conda", "sitecustomize", "usercustomize", "pth")
"""How a variable is set."""
OWN = "own"
"""Drawn instead of one of DOORS: the one that matches how the environment is used."""
_MATCHING_DOORS = {"path": "shell", "activated": "activate", "conda": "conda"}
USAGES = ("path", "path", "activated", "activated", "conda")
"""How the environment is used; repeated entries are more likely."""
_MAX_DRAWS = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One change to an environment: its kind, and the arguments of the kind."""

    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        """Return one line."""
        return " ".join((self.kind, *(argument or "''" for argument in self.words)))


@dataclass(frozen=True, slots=True)
class Meaning:
    """The right causes of a change, and whether the printed commands or `fix` can revert it.

    None: both results are right, so it is not counted.
    """

    causes: frozenset[Cause]
    later: frozenset[Cause] = frozenset()
    """Causes that are also right if the GPUs are registered, because something may fail later."""
    by_hand: bool | None = True
    """Whether commands that change only the user's own files can repair it."""
    fix: bool | None = True
    """Whether `fix` can repair it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to change an environment."""

    name: str
    weight: int
    draw: Callable[[random.Random, BaseContents], tuple[str, ...] | None]
    """Draws the arguments; None if it does not apply to this base."""
    apply: Callable[[User, tuple[str, ...]], None]
    mean: Callable[[tuple[str, ...]], Meaning]
    group: str = ""
    """Name of a group of which at most one kind is drawn; empty for kinds that may be drawn several times."""
    first: bool = False
    """Whether it must be applied before the others, which depend on the environment's folder."""
    last: bool = False
    """Whether it must be applied after the others, because it removes what they need."""


@dataclass(frozen=True, slots=True)
class Story:
    """What a seed draws."""

    seed: int
    base: str
    way: str
    """ "path", "activated" or "conda"."""
    ready: str
    """How the base finds its CUDA libraries.

    "" (by itself), "link", "shell" or "activate".
    """
    gpus: int
    capability: str
    uv: bool
    """Whether uv is on the user's PATH."""
    changes: tuple[Change, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    def with_changes(self, changes: Iterable[Change]) -> Story:
        """Return a copy with other changes."""
        return Story(
            self.seed, self.base, self.way, self.ready, self.gpus, self.capability, self.uv, tuple(changes)
        )


def draw(seed: int, grounds: Mapping[str, BaseContents], kinds: Sequence[Kind]) -> Story:
    """Return the environment of a seed, always the same. Raise Undrawn if nothing can be drawn."""
    rng = random.Random(seed)
    # These are always drawn first, so that another choice of bases does not change the rest of a seed.
    base_position = rng.random()
    usage = rng.choice(USAGES)
    gpus = rng.choice((1, 1, 2))
    uv = rng.random() < 0.5
    door = rng.choice(("shell", "activate"))
    change_count = rng.choice((1, 1, 1, 1, 2, 2, 2, 3))
    names = sorted(grounds)
    ground = grounds[names[int(base_position * len(names))]]
    if ground.base in NEEDS_LINK:
        ready = "link"
    elif ground.base in ON_PATH or ground.toolkit:
        ready = "shell" if usage == "path" else door
    else:
        ready = ""
    changes: list[Change] = []
    used_groups: set[str] = set()
    for _ in range(_MAX_DRAWS):
        if len(changes) == change_count:
            break
        kind = rng.choices(kinds, [item.weight for item in kinds])[0]
        if kind.group in used_groups and kind.group:
            continue
        try:
            arguments = kind.draw(rng, ground)
        except Undrawn:
            continue
        if arguments is None:
            continue
        change = Change(
            kind.name,
            tuple(_MATCHING_DOORS[usage] if argument == OWN else argument for argument in arguments),
        )
        if change not in changes:
            used_groups.add(kind.group)
            changes.append(change)
    if not changes:
        message = "nothing could be drawn"
        raise Undrawn(message)
    order = {kind.name: kind.last - kind.first for kind in kinds}
    changes.sort(key=lambda item: order[item.kind])
    capability = CAPABILITY.get(ground.base, "8.0")
    return Story(seed, ground.base, usage, ready, gpus, capability, uv, tuple(changes))


def make_causes(*names: str) -> frozenset[Cause]:
    """Return the causes with these names. Raise ValueError for an unknown name."""
    return frozenset(Cause(name) for name in names)
