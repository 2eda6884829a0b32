"""What was seen means: findings, remedies, outcomes, and the report that gathers them.

The shapes and the words follow the project's JSON contract (docs/schemas). The root causes, the one vocabulary of
every command, are the rows of `causes`.
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.causes import Cause, Severity
from tfdoctor.causes.steps import Remedy
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import Facts

__all__ = [
    "Area",
    "Cause",
    "Check",
    "Evidence",
    "Finding",
    "Observation",
    "Outcome",
    "OutcomeKind",
    "Prediction",
    "Remedy",
    "Report",
    "Severity",
    "Stage",
    "Status",
    "Verdict",
    "Verification",
]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen, and where the reader can see it again."""

    source: str
    """A command, a path, an environment variable or a log."""
    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong, or worth knowing, on this machine."""

    code: str
    cause: Cause
    severity: Severity
    title: str
    explanation: str
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    row: str = ""
    """The title in a few words, for the row of the first page that it marks."""


class Check:
    """What all checks have in common, of machines (`rules`) and of Dockerfiles: they find things."""

    __slots__ = ()
    code: str
    title: str
    row: str = ""

    def finding(
        self,
        cause: Cause,
        severity: Severity,
        explanation: str,
        *,
        title: str = "",
        row: str = "",
        evidence: Sequence[Evidence] = (),
        remedies: Sequence[Remedy] = (),
    ) -> Finding:
        """Build a finding of this check."""
        return Finding(
            code=self.code,
            cause=cause,
            severity=severity,
            title=title or self.title,
            explanation=explanation,
            evidence=tuple(evidence),
            remedies=tuple(remedies),
            row=row or self.row,
        )


class OutcomeKind(str, enum.Enum):
    """How a rule ended: always in exactly one of these."""

    FOUND = "found"
    CLEAN = "clean"
    NOT_APPLICABLE = "not_applicable"
    COULD_NOT_CHECK = "could_not_check"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rule's end on one set of facts."""

    code: str
    kind: OutcomeKind
    findings: tuple[Finding, ...] = ()
    why: str = ""
    """For NOT_APPLICABLE, COULD_NOT_CHECK and CRASHED: the reason, as a sentence."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What TensorFlow will do in this environment, said without importing it."""

    gpu_registered: bool | None
    gpu_count: int | None
    missing_libraries: tuple[str, ...]
    """Sorted sonames that TensorFlow needs for registration and the loader cannot give it: where a library
    that it opens is there and one that this needs is not, the one really missing."""
    cause: Cause | None
    import_ok: bool | None = None
    reasons: tuple[str, ...] = ()
    """The chain of the judgement, one sentence a gate, in the order in which TensorFlow meets them."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What TensorFlow did in a child process (`--deep`)."""

    import_ok: bool
    gpu_registered: bool | None
    gpu_count: int | None
    missing_libraries: tuple[str, ...]
    seconds: float
    devices: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    """One entry a device: "GPU:0 ok" or "GPU:0 failed: <error>"."""
    error: str = ""
    cause: Cause | None = None
    """Why the import failed, as its error says, or why a card did not compute, as the log says.

    None where all worked, or where they do not say."""
    ended: str = ""
    """How it was ended from outside ("did not end in time"): nothing follows from what it had not done yet."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in a sentence."""

    gpu_usable: bool | None
    cause: Cause | None
    summary: str
    headline: str = ""
    """The same as a screen begins: whether the GPU is used, and why not."""


class Status(str, enum.Enum):
    """How an area stands."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Area:
    """One line of the first page."""

    name: str
    status: Status
    text: str
    findings: tuple[Finding, ...] = ()
    """What marks it, where `text` shows nothing of it; the worst first."""
    brief: tuple[str, ...] = ()
    """`text` in less room, the longest first."""
    reason: bool = False
    """Whether `text` says why it is marked."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a run of `check` has to say. Renderers compute nothing beyond it."""

    facts: Facts
    prediction: Prediction
    observed: Observation | None
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...] = field(default=())
    """The root cause first, then what merely follows from it, then the rest by severity."""
    verdict: Verdict = field(default=Verdict(None, None, ""))
    root: Finding | None = None
    consequences: tuple[Finding, ...] = ()
    areas: tuple[Area, ...] = ()
    """The first page: a line for each area."""

    @property
    def main(self) -> Finding | None:
        """Return the finding to report first: the root cause, or else the finding nearest to one."""
        rest = (one for one in self.findings if one.severity > Severity.INFO)
        return self.root or next(rest, None)

    def counts(self) -> dict[str, int]:
        """Count the rules by outcome, with the names of the contract as keys."""
        result = {kind.value: 0 for kind in OutcomeKind}
        for outcome in self.outcomes:
            result[outcome.kind.value] += 1
        return result


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage's end."""

    name: str
    status: str
    """"passed", "failed", "skipped"."""
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """Stand-in cards behind a stand-in driver, and what was shown with them (`--simulate`)."""

    title: str
    """ "2 x GeForce RTX 4090 (compute capability 8.9), driver 550.54.15 (CUDA 12.4)"."""
    cards: tuple[str, ...]
    """The cards' names, in the driver's order."""
    capabilities: tuple[str, ...]
    """Their compute capabilities."""
    driver: str
    cuda: str
    proves: tuple[str, ...]
    does_not_prove: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found out."""

    target: str
    stages: tuple[Stage, ...]
    expected: int | None
    visible: int | None
    computed: int | None
    cause: Cause | None
    summary: str
    findings: tuple[Finding, ...]
    access: str = ""
    """How GPUs were given to the container, as it is typed."""
    report: Report | None = None
    typed: str = "tfdoctor verify"
    """The command that verifies it once more."""
    simulated: Simulation | None = None
    """What stood in for the GPUs; None: nothing did."""

    @property
    def ok(self) -> bool | None:
        """Return whether all requested stages passed; None if one that matters could not be tried."""
        if any(stage.status == "failed" for stage in self.stages):
            return False
        return True if any(stage.status == "passed" for stage in self.stages) else None

    @property
    def failed(self) -> Stage | None:
        """Return the first stage that failed."""
        return next((stage for stage in self.stages if stage.status == "failed"), None)
