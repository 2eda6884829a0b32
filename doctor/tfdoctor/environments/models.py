"""Dataclasses of `tfdoctor fix`: the environment, the candidates, and the results."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.core.causes.steps import Step
    from tfdoctor.core.findings import Finding, Observation, Remedy, Report

__all__ = ["Attempt", "Candidate", "Environment", "FixOffer", "FixResult", "FixStatus", "UnfixedFinding"]


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment that fix may change."""

    prefix: str
    """`sys.prefix`: everything that fix changes is below it."""
    interpreter_path: str
    """The path of the interpreter."""
    activation_kind: str | None
    """"venv", "conda", or None if the environment cannot be activated."""
    refusal_reason: str = ""
    """The reason why fix must not change the environment, as a sentence; empty if fix may change it."""
    inherited_variables: frozenset[str] = frozenset()
    """The names of variables that come from the caller's shell: no activate script of the environment mentions them."""
    outward_links: tuple[tuple[str, str], ...] = ()
    """(link, target) of the links to folders outside the environment: changes there could not be undone."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding and one of its remedies that fix can try."""

    finding: Finding
    remedy: Remedy

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the remedy."""
        return self.remedy.steps


class FixStatus(str, enum.Enum):
    """The result of an attempt. The values are those of fix.schema.json."""

    PLANNED = "planned"
    """The candidate was not tried yet."""
    FIXED = "mended"
    ROLLED_BACK = "rolled-back"
    """The candidate did not improve the report, and was undone."""
    FAILED = "failed"
    """A step failed, and all changes were undone."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate that was planned or tried."""

    candidate: Candidate
    status: FixStatus
    commands: tuple[str, ...]
    """The commands, as a user would type them."""
    detail: str = ""
    """The reason for a failure or a rollback; otherwise empty."""
    changed_path_count: int = 0
    """The number of changed paths."""

    @property
    def is_fixed(self) -> bool:
        """Whether the finding was fixed."""
        return self.status is FixStatus.FIXED


@dataclass(frozen=True, slots=True)
class UnfixedFinding:
    """A finding that fix could not fix."""

    finding: Finding
    reason: str
    """The reason, as a sentence."""
    actor: str
    """Who can fix it, as a phrase: "you"."""
    action: str
    """What is to be done, as a sentence; "" if fix tried it without success, or if nothing can be done."""


@dataclass(frozen=True, slots=True)
class FixOffer:
    """An offer to run `tfdoctor fix`."""

    command: str
    """The command line."""
    findings: tuple[Finding, ...]
    """The findings that fix can try to fix."""


@dataclass(frozen=True, slots=True)
class FixResult:
    """The result of a run of fix."""

    environment: Environment
    attempts: tuple[Attempt, ...]
    unfixed_findings: tuple[UnfixedFinding, ...]
    report_before: Report
    """The report before the first attempt."""
    report_after: Report
    """The report after the last attempt."""
    recovery_notes: tuple[str, ...] = ()
    """Sentences about changes that an interrupted earlier run left, and how they were resolved."""
    observed: Observation | None = None
    """The result of running TensorFlow at the end; None if it was not run."""
    is_activated: bool = False
    """Whether the environment was examined with the variables of its activation."""
    requested_codes: tuple[str, ...] = ()
    """The codes of the findings to fix; empty if the user named none."""

    @property
    def remaining(self) -> UnfixedFinding | None:
        """The finding that keeps TensorFlow from the GPU; None if it uses the GPU, or if there is no such finding."""
        if self.report_after.verdict.gpu_usable:
            return None
        main_finding = self.report_after.main_finding
        return next((entry for entry in self.unfixed_findings if entry.finding is main_finding), None)

    @property
    def fixed_count(self) -> int:
        """The number of findings that were fixed."""
        return sum(attempt.is_fixed for attempt in self.attempts)
