"""Known problems of releases: compat/problems.toml, a hand-written table."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tfdoctor.compat.decode import Converted, Evidence, Sources, format_suggestion, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["Problem", "ProblemTable", "capability_matches", "load_problems"]

_CONDITIONS = ("capability", "extra", "image", "python", "platform")


def _validate_conditions(pairs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the conditions. Raise ValueError if a key is not known."""
    for key in pairs:
        if key not in _CONDITIONS:
            msg = f"unknown key `{key}`{format_suggestion(key, _CONDITIONS)}"
            raise ValueError(msg)
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A known problem of some releases (`[[problem]]`)."""

    NAMED: ClassVar = ("id",)
    id: str
    is_reported_by_rules: bool = field(default=False, metadata={"key": "told_by_rules"})
    """Whether a rule reports the problem, so that it must not be reported again from the table."""
    packages: tuple[str, ...] = field(metadata={"key": "package"})
    """Affected distributions."""
    versions: str
    """Affected TensorFlow versions as a PEP 440 specifier set."""
    cause: str
    """Value of `findings.Cause`."""
    area: Literal["libraries", "python", "gpu", "images", "packaging"]
    severity: Literal["error", "warning", "info"]
    title: str
    text: str
    conditions: Annotated[Mapping[str, str], Converted(Mapping[str, str], _validate_conditions)] = field(
        default_factory=dict, metadata={"key": "when"}
    )
    """Additional conditions that must all be true: `capability` (`"<7.5"`), `extra`, `image`, `python`, `platform`."""
    remedy: str
    pins: tuple[str, ...] = ()
    """Requirements that avoid the problem."""
    proof: str = field(metadata={"key": "seen"})
    """The measurement, test or bug report that shows the problem."""
    evidence: Evidence
    sources: Sources

    def affects_release(self, package: str, version: str) -> bool:
        """Return whether a release has the problem, without checking the conditions in `when`."""
        return package in self.packages and versions.satisfies(version, self.versions)


@dataclass(frozen=True, slots=True)
class ProblemTable:
    """The known problems, in the order of the file."""

    as_of: str
    problems: tuple[Problem, ...] = field(metadata={"key": "problem"})


def load_problems(folder: Path) -> ProblemTable:
    """Load compat/problems.toml. Raise DataError if it is invalid."""
    return read_table(ProblemTable, folder / "problems.toml")


def capability_matches(capability: str, condition: str | None) -> bool:
    """Return whether a compute capability meets a condition such as `"<7.5"`, `">=5.0,<5.2"` or `"!=3.7"`.

    Return True if the condition is None. Raise versions.VersionSyntaxError if it is invalid.
    """
    if condition is None:
        return True
    actual = versions.parse_capability(capability)
    for part in condition.split(","):
        match = re.fullmatch(r"\s*(<=|>=|==|!=|<|>)\s*([0-9.]+)\s*", part)
        if match is None:
            msg = f"`{condition}` is not a condition on compute capabilities"
            raise versions.VersionSyntaxError(msg)
        limit = versions.parse_capability(match[2])
        is_fulfilled = {
            "<": actual < limit,
            "<=": actual <= limit,
            ">": actual > limit,
            ">=": actual >= limit,
            "==": actual == limit,
            "!=": actual != limit,
        }[match[1]]
        if not is_fulfilled:
            return False
    return True
