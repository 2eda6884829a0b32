"""Machines to plan for: every kind of card with every driver at which an answer can change, read from the tables.

The result of a recipe for a release on a machine is cached: all requests for a machine need the same few hundred.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from planning import brute
from tfdoctor.compat import Compat
from tfdoctor.planning import recommend
from tfdoctor.prediction.fit import Host, HostGpu

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Release
    from tfdoctor.planning import Option, Recipe, Rejection, Request

COMPAT = Compat.load()
CARDS = sorted(
    {gpu.capability for gpu in COMPAT.gpus if brute.numbers(gpu.capability) >= (2, 0)}, key=brute.numbers
)
CARD_PAIRS = (("3.7", "8.0"), ("8.9", "5.0"), ("7.5", "12.0"), ("9.0", "8.0"), ("6.1", "7.0"), ("3.5", "9.0"))
MAX_CACHED = 60_000


def list_driver_limits(system: str) -> list[str]:
    """Return every driver that the tables name as a minimum, or as the first without support."""
    cuda = brute.load_table("cuda.toml")
    drivers = {entry[system] for entry in (*cuda["release"], *cuda["family"]) if system in entry}
    drivers |= {entry["driver"] for entry in brute.load_table("images.toml")["ngc"] if "driver" in entry}
    drivers |= {entry["first_without"] for entry in brute.load_table("cards.toml")["ended"]}
    return sorted(drivers, key=brute.numbers)


def list_drivers(system: str = "linux") -> list[str]:
    """Return each driver limit, the version before it, and its branch."""
    versions: dict[str, None] = {}
    for limit in list_driver_limits(system):
        numbers = brute.numbers(limit)
        previous = (*numbers[:-1], numbers[-1] - 1) if numbers[-1] else (numbers[0] - 1,)
        for parts in (previous, numbers, numbers[:1]):
            versions.setdefault(".".join(f"{number:02}" for number in parts))
    return sorted(versions, key=brute.numbers)


def list_machines(system: str = "linux") -> list[brute.BruteMachine]:
    """Return x86 machines: each kind of card with each driver and with an unknown driver."""
    kinds = [
        cards
        for cards in (*((card,) for card in CARDS), *CARD_PAIRS)
        if not any(COMPAT.arm64.find_kind("", card) for card in cards)
    ]
    return [
        brute.BruteMachine(cards, driver, windows=system == "windows")
        for cards in kinds
        for driver in (None, *list_drivers(system))
    ]


@cache
def make_host(machine: brute.BruteMachine) -> Host:
    cards = tuple(HostGpu(f"compute capability {card}", card) for card in machine.cards)
    return Host(cards, machine.driver, is_wsl=machine.windows)


@contextmanager
def cached_planner() -> Iterator[None]:
    """Cache the parts of the planner that do not depend on the request.

    These are the releases of a specifier, and the result of a recipe for a release on a machine. Nearest requests are
    left out.
    """
    module = sys.modules[recommend.__module__]
    patched = ("try_recipe", "list_candidates", "find_conda_packages", "_find_suggestions")
    originals = {name: getattr(module, name) for name in patched}
    results: dict[tuple[object, ...], Option | Rejection] = {}
    conda: dict[int, object] = {}

    def tries(
        compat: Compat, release: Release, request: Request, host: Host, recipe: Recipe
    ) -> Option | Rejection:
        key = (id(release), request.python, request.base, id(host), recipe)
        if key not in results:
            if len(results) > MAX_CACHED:
                results.clear()
            results[key] = originals["try_recipe"](compat, release, request, host, recipe)
        return results[key]

    def from_conda(compat: Compat, release: Release) -> object:
        if id(release) not in conda:
            conda[id(release)] = originals["find_conda_packages"](compat, release)
        return conda[id(release)]

    candidates = cache(lambda compat, spec: tuple(originals["list_candidates"](compat, spec)))
    replacements = (tries, candidates, from_conda, lambda *_: ())
    for name, function in zip(patched, replacements, strict=True):
        setattr(module, name, function)
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(module, name, function)
