"""Dataclasses that the readers of requirements files return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet

    from tfdoctor.environments.requirements.lines import RequirementItem
    from tfdoctor.environments.requirements.locked import LockGraph

__all__ = ["MAX_FILES", "RequirementFile", "VersionCondition", "is_marker_true"]

MAX_FILES = 50
"""The largest number of files that include each other."""


@dataclass(frozen=True, slots=True)
class VersionCondition:
    """A version constraint, and its location in a file."""

    specifier: SpecifierSet
    location: str
    """The location for messages: `"requirements.txt, line 3"`."""


@dataclass(slots=True)
class RequirementFile:
    """The requirements in one file and in the files that it includes."""

    requirements: list[RequirementItem] = field(default_factory=list)
    """Lines that require a package."""
    constraints: list[RequirementItem] = field(default_factory=list)
    """Lines that restrict the version of a package, but do not cause it to be installed."""
    python_conditions: list[VersionCondition] = field(default_factory=list)
    """Conditions on the Python version."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the user about lines that were left out or replaced."""
    lock_graphs: list[LockGraph] = field(default_factory=list)
    """The dependency graphs of lock files. Which packages are needed depends on the Python version."""


def is_marker_true(marker: Marker | None, marker_environment: Mapping[str, str]) -> bool:
    """Return whether a marker is true; also True if it is None or cannot be evaluated."""
    if marker is None:
        return True
    try:
        return marker.evaluate(dict(marker_environment))
    except (UndefinedComparison, UndefinedEnvironmentName, KeyError, ValueError):
        return True
