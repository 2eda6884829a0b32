"""What can be tried to fix an environment, and what came of it, as frozen dataclasses."""

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
    """`sys.prefix`: everything that is changed lies below it."""
    python: str
    kind: str | None
    """"venv", "conda", or None: nothing is activated."""
    refusal: str = ""
    """Why nothing here is changed, as a sentence; empty where it may be."""
    inherited: frozenset[str] = frozenset()
    """Variables that come from the caller's shell: no script of the environment's activation names them."""
    leading_out: tuple[tuple[str, str], ...] = ()
    """(link, where it leads) of links to folders outside: what is changed behind them could not be taken back."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding, and a remedy for it that fix can try."""

    finding: Finding
    remedy: Remedy

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.remedy.steps

    @property
    def key(self) -> tuple[str, tuple[Step, ...]]:
        """What tells it from others: the same remedy is not tried twice for a finding."""
        return self.finding.code, self.remedy.steps


class FixStatus(str, enum.Enum):
    """What came of an attempt. The values are those of fix.schema.json."""

    PLANNED = "planned"
    FIXED = "mended"
    ROLLED_BACK = "rolled-back"
    """It did not make things better, and was taken back."""
    FAILED = "failed"
    """It could not be carried out, and what it had begun was taken back."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate that was planned or tried."""

    candidate: Candidate
    status: FixStatus
    commands: tuple[str, ...]
    """What was done, as a person would type it."""
    detail: str = ""
    changes: int = 0
    """Files and links that are different now."""

    @property
    def ok(self) -> bool:
        """Whether it helped and stays."""
        return self.status is FixStatus.FIXED


@dataclass(frozen=True, slots=True)
class Unfixed:
    """A finding that fix leaves."""

    finding: Finding
    why: str


@dataclass(frozen=True, slots=True)
class Offer:
    """That fix can be tried."""

    command: str
    """As it is typed."""
    findings: tuple[Finding, ...]
    """What it is for."""


@dataclass(frozen=True, slots=True)
class FixResult:
    """The whole run."""

    environment: Environment
    attempts: tuple[Attempt, ...]
    unfixed: tuple[Unfixed, ...]
    before: Report
    after: Report
    recovered: tuple[str, ...] = ()
    """What an earlier run that was killed had left, and what became of it."""
    observed: Observation | None = None
    activated: bool = False
    """Whether the environment was examined as its activation sets it up."""

    @property
    def fixed(self) -> int:
        """How many findings were fixed."""
        return sum(one.ok for one in self.attempts)
