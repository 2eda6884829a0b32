"""Dataclasses for the conclusions from the facts: findings, outcomes, predictions and the report.

The JSON schemas in docs/schemas describe their fields and values. The root causes are defined in `causes`.
"""

from __future__ import annotations

import enum
from dataclasses import field, replace
from typing import TYPE_CHECKING

from tfdoctor.core.causes import Cause, Severity
from tfdoctor.core.causes.steps import Remedy
from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tfdoctor.core.facts import Facts

__all__ = [
    "Area",
    "Cause",
    "Evidence",
    "Finding",
    "Observation",
    "Outcome",
    "OutcomeKind",
    "Prediction",
    "Remedy",
    "Report",
    "RuleBase",
    "Severity",
    "Stage",
    "Status",
    "Verdict",
    "Verification",
]


@dataclass(frozen=True, slots=True)
class Evidence:
    """An observation that proves a finding, and its source."""

    source: str
    """A command, a path, an environment variable or a log."""
    text: str
    line: int | None = None
    """The line number in the source; None if the observation is not about a line."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem on this machine, or something that the user should know."""

    code: str
    cause: Cause
    severity: Severity
    title: str
    explanation: str
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    short_title: str = ""
    """A shorter title for the summary at the top of the report."""


class RuleBase:
    """The base class of the rules for machines (`rules`) and of those for Dockerfiles."""

    __slots__ = ()
    code: str
    title: str
    short_title: str = ""

    def make_finding(
        self,
        cause: Cause,
        severity: Severity,
        explanation: str,
        *,
        title: str = "",
        short_title: str = "",
        evidence: Sequence[Evidence] = (),
        remedies: Sequence[Remedy] = (),
    ) -> Finding:
        """Return a finding with the code of this rule.

        `title` and `short_title` replace those of the rule if they are not empty.
        """
        return Finding(
            code=self.code,
            cause=cause,
            severity=severity,
            title=title or self.title,
            explanation=explanation,
            evidence=tuple(evidence),
            remedies=tuple(remedies),
            short_title=short_title or self.short_title,
        )


class OutcomeKind(str, enum.Enum):
    """The kind of result that a check can have."""

    FOUND = "found"
    CLEAN = "clean"
    NOT_APPLICABLE = "not_applicable"
    COULD_NOT_CHECK = "could_not_check"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check, which is one run of a rule."""

    code: str
    kind: OutcomeKind
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    """The reason, as a sentence, if `kind` is NOT_APPLICABLE, COULD_NOT_CHECK or CRASHED; else empty."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction of what TensorFlow will do in this environment, made without importing TensorFlow.

    A value is None if the facts do not allow a prediction.
    """

    gpu_registered: bool | None
    gpu_count: int | None
    missing_libraries: tuple[str, ...]
    """The sonames that TensorFlow needs to register GPUs and that the loader cannot resolve, sorted.

    If a library exists but one of its dependencies is missing, the dependency is listed.
    """
    cause: Cause | None
    """Why TensorFlow will use no GPU; None if it will use one or if the cause is not known."""
    import_ok: bool | None = None
    reasons: tuple[str, ...] = ()
    """The reasons, one sentence for each stage of TensorFlow's startup, in that order."""


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
    """A text for each device: "GPU:0 ok" or "GPU:0 failed: <error>"."""
    error: str = ""
    cause: Cause | None = None
    """Why the import failed or a GPU computed nothing; None if everything worked or the cause is not known."""
    stop_reason: str = ""
    """Why tfdoctor stopped the process ("did not end in time"); empty if it ended by itself.

    If tfdoctor stopped it, nothing may be concluded from missing results.
    """


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether TensorFlow can use the GPU, and if not, the cause. None means not known."""

    gpu_usable: bool | None
    cause: Cause | None
    summary: str
    headline: str = ""
    """A short form of the summary for the top of the screen."""


class Status(str, enum.Enum):
    """The status of an area."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Area:
    """An area of the examination, such as the driver or CUDA: one line in the summary of the report."""

    name: str
    status: Status
    text: str
    findings: tuple[Finding, ...] = ()
    """The findings of the area that `text` does not mention, the most severe first."""
    short_texts: tuple[str, ...] = ()
    """Shorter forms of `text` for narrow terminals, the longest first."""
    explains_status: bool = False
    """Whether `text` explains the status."""


@dataclass(frozen=True, slots=True)
class Report:
    """The complete result of `check`. Renderers only format it, and draw no conclusions."""

    facts: Facts
    prediction: Prediction
    observed: Observation | None
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...] = field(default=())
    """The root cause first, then the findings that follow from it, then the others by severity."""
    verdict: Verdict = field(default=Verdict(None, None, ""))
    root_finding: Finding | None = None
    """The finding about the root cause; None if no finding has that cause."""
    consequences: tuple[Finding, ...] = ()
    """The findings that follow from the root cause."""
    areas: tuple[Area, ...] = ()
    """The summary, one line per area."""
    ignored_findings: tuple[Finding, ...] = ()
    """The findings that the user does not want to see. They are in none of the other fields."""

    def ignore(self, codes: Collection[str]) -> Report:
        """Return the report without the findings with these codes, which then count for nothing but the verdict."""
        ignored = tuple(finding for finding in self.findings if finding.code in codes)
        if not ignored:
            return self
        root = self.root_finding
        return replace(
            self,
            findings=tuple(finding for finding in self.findings if finding.code not in codes),
            root_finding=None if root is not None and root.code in codes else root,
            consequences=tuple(finding for finding in self.consequences if finding.code not in codes),
            ignored_findings=ignored,
        )

    @property
    def main_finding(self) -> Finding | None:
        """The finding to report first: the root cause, else the first warning or error; None if there is none."""
        serious = (finding for finding in self.findings if finding.severity > Severity.INFO)
        return self.root_finding or next(serious, None)

    def count_outcomes(self) -> dict[str, int]:
        """Return the number of checks by kind of outcome. The keys are those of the JSON schema."""
        count_by_kind = {kind.value: 0 for kind in OutcomeKind}
        for outcome in self.outcomes:
            count_by_kind[outcome.kind.value] += 1
        return count_by_kind


@dataclass(frozen=True, slots=True)
class Stage:
    """The result of one stage of `verify`."""

    name: str
    status: str
    """"passed", "failed" or "skipped"."""
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """The GPUs of a stand-in driver (`--simulate`), and what a run with them proves."""

    title: str
    """For example "2 x GeForce RTX 4090 (compute capability 8.9), driver 550.54.15 (CUDA 12.4)"."""
    cards: tuple[str, ...]
    """The names of the GPUs, in the driver's order."""
    capabilities: tuple[str, ...]
    """The compute capabilities of the GPUs, in the same order."""
    driver: str
    cuda: str
    proves: tuple[str, ...]
    """Phrases for what the run proves."""
    does_not_prove: tuple[str, ...]
    """Phrases for what it does not prove."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify`."""

    target: str
    stages: tuple[Stage, ...]
    expected: int | None
    """The number of GPUs that TensorFlow should see; None if not known."""
    visible: int | None
    """The number of GPUs that TensorFlow lists; None if not known."""
    computed: int | None
    """The number of GPUs that computed correctly; None if not known."""
    cause: Cause | None
    summary: str
    findings: tuple[Finding, ...]
    access: str = ""
    """The options that gave the container its GPUs, as the user types them."""
    report: Report | None = None
    command: str = "tfdoctor verify"
    """The command that repeats the verification."""
    simulated: Simulation | None = None
    """The simulated GPUs; None if nothing was simulated."""

    @property
    def ok(self) -> bool | None:
        """True if a stage passed and none failed, False if one failed, None if all were skipped."""
        if any(stage.status == "failed" for stage in self.stages):
            return False
        return True if any(stage.status == "passed" for stage in self.stages) else None

    @property
    def failed_stage(self) -> Stage | None:
        """The first stage that failed; None if none did."""
        return next((stage for stage in self.stages if stage.status == "failed"), None)
