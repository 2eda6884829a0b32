"""Machines to plan for: every kind of card with every driver at which an answer can change, read from the tables.

What a recipe makes of a release on a machine is kept: all questions about a machine ask for the same few hundred.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from plan import brute
from tfdoctor.compat import Compat
from tfdoctor.fit import Card, Host
from tfdoctor.plan import recommend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Release
    from tfdoctor.plan import Option, Recipe, Rejected, Request

COMPAT = Compat.load()
CARDS = sorted(
    {gpu.capability for gpu in COMPAT.gpus if brute.nums(gpu.capability) >= (2, 0)}, key=brute.nums
)
PAIRS = (("3.7", "8.0"), ("8.9", "5.0"), ("7.5", "12.0"), ("9.0", "8.0"), ("6.1", "7.0"), ("3.5", "9.0"))
KEPT = 60_000


def limits(system: str) -> list[str]:
    """Every driver that a row of the tables names as the first or the last that does."""
    cuda = brute.table("cuda.toml")
    found = {row[system] for row in (*cuda["release"], *cuda["family"]) if system in row}
    found |= {row["driver"] for row in brute.table("images.toml")["ngc"] if "driver" in row}
    found |= {row["first_without"] for row in brute.table("cards.toml")["ended"]}
    return sorted(found, key=brute.nums)


def drivers(system: str = "linux") -> list[str]:
    """Of each limit: itself, the one before it, and the branch that it is of."""
    found: dict[str, None] = {}
    for limit in limits(system):
        numbers = brute.nums(limit)
        before = (*numbers[:-1], numbers[-1] - 1) if numbers[-1] else (numbers[0] - 1,)
        for one in (before, numbers, numbers[:1]):
            found.setdefault(".".join(f"{number:02}" for number in one))
    return sorted(found, key=brute.nums)


def machines(system: str = "linux") -> list[brute.Machine]:
    """Cards that x86 machines have, with each driver and with one that is not known."""
    kinds = [
        cards
        for cards in (*((card,) for card in CARDS), *PAIRS)
        if not any(COMPAT.arm64.kind_of("", card) for card in cards)
    ]
    return [
        brute.Machine(cards, driver, windows=system == "windows")
        for cards in kinds
        for driver in (None, *drivers(system))
    ]


@cache
def host_of(machine: brute.Machine) -> Host:
    cards = tuple(Card(f"compute capability {card}", card) for card in machine.cards)
    return Host(cards, machine.driver, wsl=machine.windows)


@contextmanager
def run_remembered() -> Iterator[None]:
    """What does not depend on how it is asked for is worked out once: what a specification means, what a recipe makes
    of a release on a machine. The nearest requests to one without a way are left out."""
    module = sys.modules[recommend.__module__]
    patched = ("tries", "list_candidates", "from_conda", "_nearest")
    own = {name: getattr(module, name) for name in patched}
    known: dict[tuple[object, ...], Option | Rejected] = {}
    conda: dict[int, object] = {}

    def tries(
        compat: Compat, release: Release, request: Request, host: Host, recipe: Recipe
    ) -> Option | Rejected:
        key = (id(release), request.python, request.base, id(host), recipe)
        if key not in known:
            if len(known) > KEPT:
                known.clear()
            known[key] = own["tries"](compat, release, request, host, recipe)
        return known[key]

    def from_conda(compat: Compat, release: Release) -> object:
        if id(release) not in conda:
            conda[id(release)] = own["from_conda"](compat, release)
        return conda[id(release)]

    candidates = cache(lambda compat, spec: tuple(own["list_candidates"](compat, spec)))
    ours = (tries, candidates, from_conda, lambda *_: ())
    for name, function in zip(patched, ours, strict=True):
        setattr(module, name, function)
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(module, name, function)
