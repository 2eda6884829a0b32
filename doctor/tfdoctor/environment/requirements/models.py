"""The data that all readers of requirements return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet

    from tfdoctor.environment.requirements.lines import Item
    from tfdoctor.environment.requirements.locked import Graph

__all__ = ["MAX_FILES", "Condition", "RequirementFile", "is_marker_true"]

MAX_FILES = 50


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a version, and its location in a file."""

    specifier: SpecifierSet
    marker_environment: str


@dataclass(slots=True)
class RequirementFile:
    """The content of one file."""

    items: list[Item] = field(default_factory=list)
    constraints: list[Item] = field(default_factory=list)
    """Constraints, which install nothing by themselves."""
    pythons: list[Condition] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences about what was left out or replaced."""
    graphs: list[Graph] = field(default_factory=list)
    """Locks of projects: which of their packages are needed depends on the Python."""


def is_marker_true(marker: Marker | None, where: Mapping[str, str]) -> bool:
    """Return whether a marker is true; it counts as true if it cannot be evaluated."""
    if marker is None:
        return True
    try:
        return marker.evaluate(dict(where))
    except (UndefinedComparison, UndefinedEnvironmentName, KeyError, ValueError):
        return True
