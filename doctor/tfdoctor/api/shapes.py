"""The types of the documents that `--json` prints, all of them dictionaries.

A test compares them with docs/schemas.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Severity = Literal["error", "warning", "info"]
Method = Literal["pip", "container"]
Recipe = Literal["venv", "pip-cuda", "cuda-base", "official", "conda-cuda", "ngc"]


class EvidenceJson(TypedDict):
    """The evidence of a finding."""

    source: str
    """A command, a path, an environment variable or a log."""
    line: int | None
    text: str


class RemedyJson(TypedDict):
    """A remedy for a finding: a sentence and its commands."""

    text: str
    commands: list[str]
    changes_system: bool


class _RequiredFinding(TypedDict):
    """The required keys of `FindingJson`."""

    code: str
    cause: str
    severity: Severity
    title: str
    explanation: str
    evidence: list[EvidenceJson]
    remedies: list[RemedyJson]


class FindingJson(_RequiredFinding, total=False):
    """A problem that was found."""

    url: str
    """The page about the code. Missing until the project is published."""


# ---------------------------------------------------------------- check


class ToolJson(TypedDict):
    """The program that wrote the document."""

    name: str
    version: str


class VerdictJson(TypedDict):
    """The verdict of a check."""

    gpu_usable: bool | None
    """Whether TensorFlow can use a GPU. None if unknown."""
    cause: str | None
    summary: str


class PredictionJson(TypedDict):
    """The predicted behaviour of TensorFlow in this environment. None means unknown."""

    gpu_registered: bool | None
    gpu_count: int | None
    missing_libraries: list[str]
    cause: str | None
    import_ok: bool | None
    reasons: list[str]


class ObservationJson(TypedDict):
    """The behaviour of TensorFlow in a child process, observed by `check --deep`."""

    import_ok: bool
    gpu_registered: bool | None
    gpu_count: int | None
    missing_libraries: list[str]
    seconds: float
    devices: list[str]
    computed: list[str]
    error: str


class OutcomeCountsJson(TypedDict):
    """The number of checks with each outcome."""

    found: int
    clean: int
    not_applicable: int
    could_not_check: int
    crashed: int


class RuleOutcomeJson(TypedDict):
    """The outcome of one check."""

    code: str
    outcome: Literal["found", "clean", "not_applicable", "could_not_check", "crashed"]
    why: str
    """The reason for the outcome."""


class _RequiredComparable(TypedDict):
    """The required keys of `ComparableValueJson`."""

    area: str
    name: str
    value: str | None
    """The value; None if it is missing or unknown."""


class ComparableValueJson(_RequiredComparable, total=False):
    """A fact that can be compared with the same fact of another machine."""

    unknown: str
    """The reason why the value could not be read."""
    little: bool
    """Whether a difference seldom matters."""


class Check(TypedDict):
    """The document of `tfdoctor check --json`."""

    schema_version: int
    tool: ToolJson
    verdict: VerdictJson
    prediction: PredictionJson
    observed: ObservationJson | None
    facts: dict[str, Any]
    """The facts about the machine, as docs/schemas/check.schema.json describes them."""
    values: list[ComparableValueJson]
    at: float
    """The time when the document was made, in seconds since 1970 by this machine's clock."""
    outcomes: OutcomeCountsJson
    rules: list[RuleOutcomeJson]
    findings: list[FindingJson]


# ---------------------------------------------------------------- diagnose


class LogVerdictJson(TypedDict):
    """The root cause that a log shows."""

    cause: str
    summary: str
    undecided: list[str]
    """Other causes that the log does not rule out."""


class DeviceJson(TypedDict):
    """A GPU that a log names."""

    index: int
    name: str
    compute_capability: str | None
    memory_mib: int | None
    pci_bus_id: str | None


class ProcessJson(TypedDict):
    """One of several processes that wrote a log."""

    label: str
    framework: str
    line: int
    gpu_registered: bool | None
    cause: str | None
    summary: str
    devices: list[DeviceJson]


class Diagnosis(TypedDict):
    """The document of `tfdoctor diagnose --json`."""

    schema_version: int
    file: str
    tensorflow_version: str | None
    era: str | None
    """The minor releases that can have written the log, such as "2.4-2.11". None if unknown."""
    gpu_registered: bool | None
    devices: list[DeviceJson]
    cards: list[DeviceJson]
    missing_libraries: list[str]
    benign: list[str]
    """The codes of the harmless messages in the log."""
    verdict: LogVerdictJson
    findings: list[FindingJson]
    lines: int
    bytes: int
    processes: list[ProcessJson]
    more_processes: int


# ---------------------------------------------------------------- recommend


class GpuJson(TypedDict):
    """A GPU to plan for."""

    name: str
    compute_capability: str
    other_compute_capabilities: list[str]


class HostJson(TypedDict):
    """The machine to plan for."""

    gpus: list[GpuJson]
    driver: str | None
    system: str
    machine: str
    glibc: str | None
    python: str | None
    container_engine: bool | None
    no_card: bool


class RequestJson(TypedDict):
    """The user's request."""

    tensorflow: str | None
    python: str | None
    method: Method | None
    recipe: Recipe | None
    base: str | None
    requirements: list[str]


class ReasonJson(TypedDict):
    """A reason why an installation does not work."""

    cause: str
    text: str
    source: str


class CaveatJson(TypedDict):
    """A disadvantage of an installation that works."""

    cause: str
    text: str
    source: str
    serious: bool


class PartJson(TypedDict):
    """A component of an installation, with its size."""

    name: str
    bytes: int | None
    """The size in bytes; None if unknown."""
    why: str
    """The purpose of the component."""


class OptionJson(TypedDict):
    """An installation that works. The best one has rank 1."""

    rank: int
    method: Method
    recipe: Recipe
    tensorflow: str
    python: str
    cuda: str
    cudnn: str | None
    base_image: str | None
    packages: list[str]
    size_bytes: int | None
    parts: list[PartJson]
    commands: list[str]
    reasons: list[str]
    caveats: list[CaveatJson]


class RejectionJson(TypedDict):
    """An installation that does not work, with the reasons."""

    method: Method
    recipe: Recipe
    tensorflow: str
    reasons: list[ReasonJson]


class SuggestionJson(TypedDict):
    """An option that would work if one condition of the request changed."""

    text: str
    option: OptionJson


class OtherSourceJson(TypedDict):
    """A TensorFlow build for 64-bit ARM from another source, which tfdoctor neither plans nor builds."""

    text: str
    command: str
    sources: list[str]


class CpuOnlyJson(TypedDict):
    """A TensorFlow installation that uses only the CPU."""

    text: str
    commands: list[str]


class ConflictJson(TypedDict):
    """The reasons why no installation works, and the nearest alternatives."""

    reasons: list[ReasonJson]
    nearest: list[SuggestionJson]
    elsewhere: list[OtherSourceJson]


class Recommendation(TypedDict):
    """The document of `tfdoctor recommend --json`."""

    schema_version: int
    request: RequestJson
    host: HostJson
    options: list[OptionJson]
    rejected: list[RejectionJson]
    conflict: ConflictJson | None
    without_gpu: CpuOnlyJson | None
