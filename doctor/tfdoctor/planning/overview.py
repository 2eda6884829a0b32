"""Summarize the releases on one screen: the GPUs that each supports, and the command to install it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.records import dataclass
from tfdoctor.planning.models import Method, Request
from tfdoctor.planning.recommend import recommend
from tfdoctor.planning.release_sheet import format_python_ranges
from tfdoctor.prediction.fit.matrix import find_code_on_gpu, has_known_error
from tfdoctor.prediction.fit.models import Host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.compat import Compat
    from tfdoctor.compat.releases import Release
    from tfdoctor.prediction.fit.matrix import MatrixRow

__all__ = ["Overview", "list_overviews"]

COMMAND_BY_METHOD = {Method.PIP: "install", Method.CONTAINER: "build"}
"""The command that installs by each method, the easier method first."""


@dataclass(frozen=True, slots=True)
class Overview:
    """One line for consecutive minors whose newest releases have equal values."""

    newest_minor: str
    """The newest minor, such as `"2.18"`."""
    oldest_minor: str
    python: str
    cuda: str
    cudnn: str
    driver: str
    """The branch of the oldest driver that works on Linux."""
    cards: str
    """The oldest and the newest GPU generation with machine code, such as `"GTX 10 to H100"`."""
    newer: str
    """Whether newer GPUs work: `"+"` by JIT compilation, `"*"` only for some of them, `""` not at all."""
    way: str
    """The tfdoctor command that installs these releases: `"install"`, `"build"`, or `""` if no option exists."""
    has_known_problem: bool
    """Whether there is a known problem with the libraries, the packaging or some GPUs."""

    @property
    def span(self) -> str:
        """The range of minors, such as `"2.8-2.10"`."""
        return (
            self.newest_minor
            if self.newest_minor == self.oldest_minor
            else f"{self.oldest_minor}-{self.newest_minor}"
        )


def list_overviews(compat: Compat, rows: Iterable[MatrixRow]) -> tuple[Overview, ...]:
    """Return overviews of the minors that have GPU code for Linux, in the order of the rows.

    The rows must be sorted by version, newest first. Prereleases and yanked releases are omitted.
    """
    overviews: list[Overview] = []
    seen_minors: set[str] = set()
    for row in rows:
        release = row.release
        if not release.gpu or release.is_prerelease or release.yanked or release.minor in seen_minors:
            continue
        seen_minors.add(release.minor)
        overview = _make_overview(compat, row)
        if (
            overviews
            and replace(
                overview, newest_minor=overviews[-1].newest_minor, oldest_minor=overviews[-1].oldest_minor
            )
            == overviews[-1]
        ):
            overviews[-1] = replace(overviews[-1], oldest_minor=overview.oldest_minor)
        else:
            overviews.append(overview)
    return tuple(overviews)


def _make_overview(compat: Compat, row: MatrixRow) -> Overview:
    release = row.release
    cards, newer = _describe_cards(compat, release)
    return Overview(
        newest_minor=release.minor,
        oldest_minor=release.minor,
        python=format_python_ranges(release.linux_pythons),
        cuda=versions.major_minor(release.cuda) if release.cuda else "?",
        cudnn=release.cudnn or "?",
        driver=str(versions.major(row.min_linux_driver)) if row.min_linux_driver else "?",
        cards=cards,
        newer=newer,
        way=_find_command(compat, release),
        has_known_problem=has_known_error(row),
    )


def _describe_cards(compat: Compat, release: Release) -> tuple[str, str]:
    """Return the values of `Overview.cards` and `Overview.newer`; "?" if no generation has machine code."""
    generations = compat.cards.generations
    codes = [find_code_on_gpu(compat, release, generation.capability) for generation in generations]
    native_names = [
        generation.name for generation, code in zip(generations, codes, strict=True) if code == "native"
    ]
    # The codes of the generations after the last one with machine code.
    newer_codes = codes[len(codes) - codes[::-1].index("native") :] if native_names else codes
    mark = "*" if "arch-specific" in newer_codes else "+" if "jit" in newer_codes else ""
    if not native_names:
        return "?", mark
    return (native_names[0] if len(native_names) == 1 else f"{native_names[0]} to {native_names[-1]}"), mark


def _find_command(compat: Compat, release: Release) -> str:
    """Return the first command that has an option for an unknown machine, or ""."""
    for method, command in COMMAND_BY_METHOD.items():
        if recommend(compat, Request(release.version, method=method), Host()).options:
            return command
    return ""
