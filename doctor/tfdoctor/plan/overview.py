"""The releases on one screen: which cards each minor was built for, and which command gives it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.fit import Host
from tfdoctor.fit.matrix import find_code_on_card, is_marked
from tfdoctor.plan.models import Method, Request
from tfdoctor.plan.recommend import recommend
from tfdoctor.plan.release_sheet import pythons
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.compat import Compat
    from tfdoctor.compat.releases import Release
    from tfdoctor.fit.matrix import MatrixRow

__all__ = ["Overview", "overview"]

WAYS = {Method.PIP: "install", Method.CONTAINER: "build"}
"""How it is got, the easier way first: the command."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Neighbouring minors that are alike in all that a newcomer chooses by; each is told by its newest release."""

    newest: str
    oldest: str
    """Minors (`"2.18"`)."""
    python: str
    cuda: str
    cudnn: str
    driver: str
    """The branch of its oldest driver for Linux."""
    cards: str
    """`"GTX 10 to H100"`: the oldest and the newest generation with machine code."""
    newer: str
    """What newer cards do: `"+"` it is compiled for them, `"*"` only in part, `""` nothing."""
    way: str
    """`"install"`, `"build"`, or empty."""
    marked: bool
    """Something is known to be wrong with its libraries, its packaging or some cards."""

    @property
    def span(self) -> str:
        """`"2.8-2.10"`."""
        return self.newest if self.newest == self.oldest else f"{self.oldest}-{self.newest}"


def overview(compat: Compat, rows: Iterable[MatrixRow]) -> tuple[Overview, ...]:
    """Return the minors of these releases that have GPU code for Linux, in the order of the rows (the newest first),
    without candidates.
    """
    found: list[Overview] = []
    seen: set[str] = set()
    for row in rows:
        release = row.release
        if not release.gpu or release.is_prerelease or release.yanked or release.minor in seen:
            continue
        seen.add(release.minor)
        one = _make_overview(compat, row)
        if found and replace(one, newest=found[-1].newest, oldest=found[-1].oldest) == found[-1]:
            found[-1] = replace(found[-1], oldest=one.oldest)
        else:
            found.append(one)
    return tuple(found)


def _make_overview(compat: Compat, row: MatrixRow) -> Overview:
    release = row.release
    cards, newer = _cards(compat, release)
    return Overview(
        release.minor,
        release.minor,
        pythons(release.linux_pythons),
        versions.major_minor(release.cuda) if release.cuda else "?",
        release.cudnn or "?",
        str(versions.major(row.driver_linux)) if row.driver_linux else "?",
        cards,
        newer,
        _way(compat, release),
        is_marked(row),
    )


def _cards(compat: Compat, release: Release) -> tuple[str, str]:
    """Return (the generations with machine code, what newer ones do)."""
    every = compat.cards.generation
    codes = [find_code_on_card(compat, release, one.capability) for one in every]
    native = [one.name for one, code in zip(every, codes, strict=True) if code == "native"]
    newer = codes[len(codes) - codes[::-1].index("native") :] if native else codes
    end = "*" if "arch-specific" in newer else "+" if "jit" in newer else ""
    if not native:
        return "?", end
    return (native[0] if len(native) == 1 else f"{native[0]} to {native[-1]}"), end


def _way(compat: Compat, release: Release) -> str:
    """Return the planner's answer for any machine."""
    for method, command in WAYS.items():
        if recommend(compat, Request(release.version, method=method), Host()).options:
            return command
    return ""
