"""What is known to be wrong with some releases: compat/problems.toml, authored, and asked."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import Converted, Evidence, Sources, did_you_mean, read
from tfdoctor.records import dataclass

__all__ = ["Problem", "ProblemTable", "capability_matches", "load_problems"]

_CONDITIONS = ("capability", "extra", "image", "python", "platform")


def _conditions(pairs: Mapping[str, str]) -> Mapping[str, str]:
    for key in pairs:
        if key not in _CONDITIONS:
            msg = f"unknown key `{key}`{did_you_mean(key, _CONDITIONS)}"
            raise ValueError(msg)
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something known to be wrong with some releases (compat/problems.toml)."""

    NAMED: ClassVar = ("id",)
    id: str
    told_by_rules: bool = False
    """Checks find it in the machine itself: it is not told a second time from the table."""
    package: tuple[str, ...]
    """Distributions it is about."""
    versions: str
    """A PEP 440 set of TF versions."""
    cause: str
    """One word of `findings.Cause`."""
    area: Literal["libraries", "python", "gpu", "images", "packaging"]
    severity: Literal["error", "warning", "info"]
    title: str
    text: str
    when: Annotated[Mapping[str, str], Converted(Mapping[str, str], _conditions)] = field(
        default_factory=dict
    )
    """Conditions that narrow it: `capability` (`"<7.5"`), `extra`, `image`, `python`; all must hold."""
    remedy: str
    pins: tuple[str, ...] = ()
    """Requirements that avoid it."""
    seen: str
    """How it is known: the measurement, run or report."""
    evidence: Evidence
    sources: Sources

    def applies(self, package: str, version: str) -> bool:
        """Return whether this release has it, conditions aside."""
        return package in self.package and versions.satisfies(version, self.versions)


@dataclass(frozen=True, slots=True)
class ProblemTable:
    """The whole table, in the file's order."""

    as_of: str
    problems: tuple[Problem, ...] = field(metadata={"key": "problem"})


def load_problems(folder: Path) -> ProblemTable:
    """Load compat/problems.toml. Raises DataError."""
    return read(ProblemTable, folder / "problems.toml")


def capability_matches(capability: str, condition: str | None) -> bool:
    """Return whether a compute capability fulfils `"<7.5"`, `">=5.0,<5.2"`, `"!=3.7"`.

    No condition is fulfilled.
    """
    if condition is None:
        return True
    have = versions.parse_capability(capability)
    for part in condition.split(","):
        match = re.fullmatch(r"\s*(<=|>=|==|!=|<|>)\s*([0-9.]+)\s*", part)
        if match is None:
            msg = f"`{condition}` is not a condition on compute capabilities"
            raise versions.VersionSyntaxError(msg)
        want = versions.parse_capability(match[2])
        holds = {
            "<": have < want,
            "<=": have <= want,
            ">": have > want,
            ">=": have >= want,
            "==": have == want,
            "!=": have != want,
        }[match[1]]
        if not holds:
            return False
    return True
