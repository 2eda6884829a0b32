"""What a file of requirements asks for: the values that all readers give."""

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

__all__ = ["MAX_FILES", "Condition", "RequirementFile", "holds"]

MAX_FILES = 50


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a version, and where it stands."""

    specifier: SpecifierSet
    where: str


@dataclass(slots=True)
class RequirementFile:
    """What one file says."""

    items: list[Item] = field(default_factory=list)
    limits: list[Item] = field(default_factory=list)
    """Constraints: they install nothing."""
    pythons: list[Condition] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences: what was left out, or taken for something else."""
    graphs: list[Graph] = field(default_factory=list)
    """Locks of projects: what of them is wanted depends on the Python."""


def holds(marker: Marker | None, where: Mapping[str, str]) -> bool:
    """Return whether a marker holds there; one that cannot be asked does."""
    if marker is None:
        return True
    try:
        return marker.evaluate(dict(where))
    except (UndefinedComparison, UndefinedEnvironmentName, KeyError, ValueError):
        return True
