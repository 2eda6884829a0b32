"""Describe a package that pip or conda did not find: its name, and the Pythons for which it exists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.text import join_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.compat import Platform
    from tfdoctor.logs.events import Event
    from tfdoctor.logs.log_context import LogContext

__all__ = [
    "MissingPackage",
    "describe_missing_package",
    "find_missing_package",
    "find_older_python",
    "find_usual_python",
]

_NAME = re.compile(r"[A-Za-z][\w-]*")
_SPECIFIER = re.compile(
    r"(?:\[[\w, -]{0,60}\])?\s{0,4}(?P<text>(?:[<>=!~]=?|===)\s{0,2}\d[\w.*]*(?:,\s?[<>=!~]{1,2}\s?\d[\w.*]*)*)"
)
_UPPER_PYTHON = re.compile(r"<\s?(3\.\d{1,2})\b")
_LOWER_PYTHON = re.compile(r">=\s?(3\.\d{1,2})\b")
MAX_NAMED_VERSIONS = 4
"""The largest number of versions that are named of those that pip lists."""


class MissingPackage:
    """A package that was asked for and not found."""

    __slots__ = ("is_of_conda", "is_tensorflow", "listed_versions", "name", "specifier")

    def __init__(self, event: Event, context: LogContext) -> None:
        requirement = event.get("want") or event.get("conda") or event.get("absent")
        listed = event.get("listed")
        self.is_of_conda: bool = not event.get("want")
        match = _NAME.match(requirement)
        name = match[0] if match is not None else requirement
        self.name: str = name.lower().replace("_", "-").rstrip("-")
        specifier = _SPECIFIER.match(requirement[len(name) :])
        self.specifier: str = specifier["text"].replace(" ", "") if specifier is not None else ""
        """A PEP 440 specifier set, or an empty string for any version."""
        self.is_tensorflow: bool = context.compat.find_distribution(self.name) is not None
        self.listed_versions: list[str] = [
            version
            for version in (part.strip() for part in listed.split(","))
            if versions.is_version(version) and not versions.parse(version).is_prerelease
        ]
        """The final versions that pip lists for this Python, oldest first."""

    @property
    def version(self) -> str | None:
        """The version that was asked for, or None if it was a range, or any."""
        version = self.specifier.lstrip("=")
        return version if self.specifier.startswith("==") and versions.is_version(version) else None

    def __str__(self) -> str:
        return f"{self.name} {self.version or self.specifier}".strip()


def find_missing_package(context: LogContext) -> MissingPackage | None:
    """Return the package that pip or conda did not find; None if the messages do not name it."""
    events = context.log.list_events("no-wheel")
    for event in sorted(events, key=lambda event: not event.get("listed")):
        if event.get("want") or event.get("conda") or event.get("absent"):
            return MissingPackage(event, context)
    return None


def describe_missing_package(context: LogContext) -> tuple[str, str]:
    """Return (title, note) on the package that was not found; empty texts if the messages do not name it."""
    package = find_missing_package(context)
    if package is None:
        return "", ""
    if package.is_of_conda:
        return f"The channels of conda have no package of {package} for this platform", ""
    sentences = [
        _describe_pythons(package, context) if package.is_tensorflow else "",
        _describe_listed_versions(package, context),
    ]
    return f"There is no package of {package} for this Python and platform", " ".join(filter(None, sentences))


def _describe_pythons(package: MissingPackage, context: LogContext) -> str:
    """Return a sentence on the Pythons for which this TensorFlow has wheels."""
    platform: Platform = "windows" if context.is_windows else "linux"
    releases = [
        release
        for release in context.compat.releases
        if not release.is_prerelease and release.pythons(platform)
        if not package.specifier or versions.satisfies(release.version, package.specifier)
    ]
    if not releases:
        return ""
    if package.version is None:  # of a range, or of all, the newest is what pip would have installed
        releases = [release for release in releases if release.version == releases[-1].version]
    pythons = _sort_pythons(python for release in releases for python in release.pythons(platform))
    return f"TensorFlow {releases[-1].version} has wheels for {_format_pythons(pythons)} only."


def _describe_listed_versions(package: MissingPackage, context: LogContext) -> str:
    """Return a sentence on the versions that pip lists for this Python, and one on this Python."""
    listed, minimum = package.listed_versions, _find_minimum_python(context)
    sentences = []
    if listed:
        shown = f"{listed[0]} to {listed[-1]}" if len(listed) > MAX_NAMED_VERSIONS else join_words(listed)
        sentences.append(f"For this Python, there is {package.name} {shown}.")
    if minimum is not None:
        sentences.append(f"This is Python {minimum} or newer.")
    return " ".join(sentences)


def find_usual_python(context: LogContext) -> str | None:
    """Return the newest Python for which the last three minor releases have wheels; None if there is none."""
    platform: Platform = "windows" if context.is_windows else "linux"
    finals = [release for release in context.compat.releases if not release.is_prerelease]
    minors = list(dict.fromkeys(release.minor for release in finals))[-3:]
    pythons = [set(release.pythons(platform)) for release in finals if release.minor in minors]
    return max(set.intersection(*pythons), key=versions.parse_numbers, default=None) if pythons else None


def find_older_python(context: LogContext) -> str | None:
    """Return the newest Python that is older than this one, by the versions that pip left out; None if unknown."""
    minimum = _find_minimum_python(context)
    if minimum is None:
        return None
    major, minor = versions.parse_numbers(minimum)[:2]
    return f"{major}.{minor - 1}"


def _find_minimum_python(context: LogContext) -> str | None:
    """Return the oldest Python that this can be, by the versions of packages that pip left out; None if unknown.

    A version that pip left out needs a newer Python than this one (`>=3.9`), or an older one (`<3.11`).
    """
    needs = [
        part.partition("Requires-Python")[2]
        for event in context.log.list_events("pip-ignored-versions")
        for part in event.get("list").split(";")
    ]
    minimum_of_newer = min(
        (match[1] for need in needs if "<" not in need and (match := _LOWER_PYTHON.search(need)) is not None),
        key=versions.parse_numbers,
        default=None,
    )
    limits = [match[1] for need in needs if (match := _UPPER_PYTHON.search(need)) is not None]
    return max(
        (
            limit
            for limit in limits
            if minimum_of_newer is None or versions.compare(limit, minimum_of_newer) < 0
        ),
        key=versions.parse_numbers,
        default=None,
    )


def _sort_pythons(pythons: Iterable[str]) -> list[str]:
    return sorted(set(pythons), key=versions.parse_numbers)


def _format_pythons(pythons: Sequence[str]) -> str:
    """Return "Python 2.7 and 3.3 to 3.7" for sorted versions of Python."""
    groups = versions.group_consecutive(pythons)
    texts = [group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups]
    return f"Python {join_words(texts)}"
