"""Data of `fix`, as frozen dataclasses: what can be tried in an environment, and the results."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.causes.steps import Step
    from tfdoctor.findings import Finding, Observation, Remedy, Report

__all__ = ["Attempt", "Candidate", "Environment", "FixResult", "FixStatus", "Offer", "Unfixed"]


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment that fix may change."""

    prefix: str
    """`sys.prefix`: everything that fix changes is below it."""
    python: str
    kind: str | None
    """"venv", "conda", or None if the environment has no activation."""
    refusal: str = ""
    """Why fix must not change the environment, as a sentence; empty if it may."""
    inherited: frozenset[str] = frozenset()
    """Variables that come from the caller's shell: no activation script of the environment names them."""
    outward_links: tuple[tuple[str, str], ...] = ()
    """(link, target) of links to folders outside: changes behind them could not be undone."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding and one of its remedies that fix can try."""

    finding: Finding
    remedy: Remedy

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.remedy.steps

    @property
    def key(self) -> tuple[str, tuple[Step, ...]]:
        """The identity of the candidate: a remedy is not tried twice for a finding."""
        return self.finding.code, self.remedy.steps


class FixStatus(str, enum.Enum):
    """The result of an attempt. The values are those of fix.schema.json."""

    PLANNED = "planned"
    FIXED = "mended"
    ROLLED_BACK = "rolled-back"
    """It did not improve the report, and was undone."""
    FAILED = "failed"
    """A step failed, and what it had changed was undone."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate that was planned or tried."""

    candidate: Candidate
    status: FixStatus
    commands: tuple[str, ...]
    """The commands, as a user would type them."""
    detail: str = ""
    changes: int = 0
    """The number of changed paths."""

    @property
    def ok(self) -> bool:
        """Whether the finding was fixed and the changes kept."""
        return self.status is FixStatus.FIXED


@dataclass(frozen=True, slots=True)
class Unfixed:
    """A finding that fix could not fix."""

    finding: Finding
    why: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The offer to run fix."""

    command: str
    """The command line."""
    findings: tuple[Finding, ...]
    """The findings that fix can try to fix."""


@dataclass(frozen=True, slots=True)
class FixResult:
    """The result of a whole run of fix."""

    environment: Environment
    attempts: tuple[Attempt, ...]
    unfixed: tuple[Unfixed, ...]
    before: Report
    after: Report
    recovered: tuple[str, ...] = ()
    """Sentences about what a killed earlier run left, and how it was resolved."""
    observed: Observation | None = None
    activated: bool = False
    """Whether the environment was examined with the variables of its activation."""

    @property
    def fixed(self) -> int:
        """The number of findings that were fixed."""
        return sum(attempt.ok for attempt in self.attempts)
