"""What a seed means: a base, a person, and one to three changes. Drawing looks at nothing but the ground."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lab.strangers.ground import CAPABILITY, LINKED, ON_PATH, Ground, Undrawn
from tfdoctor.findings import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lab.strangers.person import Person

DOORS = ("shell", "activate", "conda", "sitecustomize", "usercustomize", "pth")
"""How a variable comes to be set."""
OWN = "own"
"""Drawn as a door: the one that goes with how the environment is used."""
_OWN_DOORS = {"path": "shell", "activated": "activate", "conda": "conda"}
WAYS = ("path", "path", "activated", "activated", "conda")
"""How the environment is used: drawn out of these."""
_TRIES = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that was done to an environment: its kind, and the kind's own words."""

    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        """In a line."""
        return " ".join((self.kind, *(word or "''" for word in self.words)))


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a change may rightly be called, and whether it can be taken back by what is printed and by `fix`.

    None: a right answer may do either, so it is not counted.
    """

    causes: frozenset[Cause]
    later: frozenset[Cause] = frozenset()
    """Right, too, where the GPUs are registered all the same: something fails later, or may."""
    by_hand: bool | None = True
    """Whether commands that change no more than this user's things can mend it."""
    fix: bool | None = True
    """Whether `fix` can."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to change an environment."""

    name: str
    weight: int
    draw: Callable[[random.Random, Ground], tuple[str, ...] | None]
    """Its words; None where this ground has nothing of the sort."""
    apply: Callable[[Person, tuple[str, ...]], None]
    mean: Callable[[tuple[str, ...]], Meaning]
    group: str = ""
    """Of the kinds of one group at most one is drawn; empty: of this kind as many as come."""
    first: bool = False
    """Whether it must be done before the others, which look at where the environment is."""
    last: bool = False
    """Whether it must be done after the others: it takes away what they need."""


@dataclass(frozen=True, slots=True)
class Story:
    """What a seed draws."""

    seed: int
    base: str
    way: str
    """ "path", "activated" or "conda"."""
    ready: str
    """How the base's CUDA is made known to it: "" (it is by itself), "link", "shell", "activate"."""
    gpus: int
    capability: str
    uv: bool
    """Whether the person has uv on PATH."""
    changes: tuple[Change, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def with_changes(self, changes: Iterable[Change]) -> Story:
        """The same with other changes."""
        return Story(
            self.seed, self.base, self.way, self.ready, self.gpus, self.capability, self.uv, tuple(changes)
        )


def draw(seed: int, grounds: Mapping[str, Ground], kinds: Sequence[Kind]) -> Story:
    """The environment that a seed stands for; the same every time. Raises Undrawn where nothing can be drawn."""
    rng = random.Random(seed)
    # Drawn first and always, so that another choice of bases does not change the rest of a seed.
    place = rng.random()
    way = rng.choice(WAYS)
    gpus = rng.choice((1, 1, 2))
    uv = rng.random() < 0.5
    door = rng.choice(("shell", "activate"))
    many = rng.choice((1, 1, 1, 1, 2, 2, 2, 3))
    names = sorted(grounds)
    ground = grounds[names[int(place * len(names))]]
    if ground.base in LINKED:
        ready = "link"
    elif ground.base in ON_PATH or ground.toolkit:
        ready = "shell" if way == "path" else door
    else:
        ready = ""
    changes: list[Change] = []
    taken: set[str] = set()
    for _ in range(_TRIES):
        if len(changes) == many:
            break
        kind = rng.choices(kinds, [one.weight for one in kinds])[0]
        if kind.group in taken and kind.group:
            continue
        try:
            words = kind.draw(rng, ground)
        except Undrawn:
            continue
        if words is None:
            continue
        change = Change(kind.name, tuple(_OWN_DOORS[way] if word == OWN else word for word in words))
        if change not in changes:
            taken.add(kind.group)
            changes.append(change)
    if not changes:
        message = "nothing could be drawn"
        raise Undrawn(message)
    ordered = {kind.name: kind.last - kind.first for kind in kinds}
    changes.sort(key=lambda one: ordered[one.kind])
    capability = CAPABILITY.get(ground.base, "8.0")
    return Story(seed, ground.base, way, ready, gpus, capability, uv, tuple(changes))


def causes(*names: str) -> frozenset[Cause]:
    """Words of the vocabulary; a word that is none raises ValueError."""
    return frozenset(Cause(name) for name in names)
