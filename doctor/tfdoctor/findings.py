"""What was seen means: findings, remedies, outcomes, and the report that gathers them.

The shapes and the words follow the project's JSON contract (docs/schemas): `Cause` is the one vocabulary
of root causes used by every command.
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.facts import Facts
    from tfdoctor.steps import Step


class Cause(str, enum.Enum):
    """One word for one root cause, the same in every command. Extend only with a reason."""

    HEALTHY = "healthy"
    INCONCLUSIVE = "inconclusive"
    NO_DRIVER = "no-driver"
    NO_DEVICE = "no-device"
    HIDDEN_BY_ENV = "hidden-by-env"
    DRIVER_TOO_OLD = "driver-too-old"
    DRIVER_LIB_MISMATCH = "driver-lib-mismatch"
    DRIVER_INIT_UNKNOWN = "driver-init-unknown"
    COMPAT_NOT_SUPPORTED = "compat-not-supported"
    STUB_LIBCUDA = "stub-libcuda"
    WSL_LIBCUDA = "wsl-libcuda"
    NVML_MISSING = "nvml-missing"
    LIBS_WRONG_VERSION = "libs-wrong-version"
    LIBS_NOT_INSTALLED = "libs-not-installed"
    LIBS_NOT_ON_PATH = "libs-not-on-path"
    LIBS_TRANSITIVE = "libs-transitive"
    LIBS_UNLISTED = "libs-unlisted"
    CUDNN_MISSING = "cudnn-missing"
    CUDNN_VERSION_MISMATCH = "cudnn-version-mismatch"
    CUDNN_INIT_FAILED = "cudnn-init-failed"
    CUBLAS_INIT_FAILED = "cublas-init-failed"
    IMPORT_MISSING_CUDA_LIB = "import-missing-cuda-lib"
    LIBDEVICE_OR_PTXAS_MISSING = "libdevice-or-ptxas-missing"
    CUPTI_MISSING = "cupti-missing"
    CPU_ONLY_BUILD = "cpu-only-build"
    WINDOWS_NATIVE_UNSUPPORTED = "windows-native-unsupported"
    BOTH_PACKAGES = "both-packages"
    NO_MATCHING_WHEEL = "no-matching-wheel"
    ILLEGAL_INSTRUCTION_AVX = "illegal-instruction-avx"
    GLIBC_TOO_OLD = "glibc-too-old"
    LIBSTDCXX_TOO_OLD = "libstdcxx-too-old"
    NUMPY_ABI = "numpy-abi"
    PROTOBUF_CONFLICT = "protobuf-conflict"
    MSVC_RUNTIME_MISSING = "msvc-runtime-missing"
    GPU_TOO_OLD = "gpu-too-old"
    GPU_TOO_NEW = "gpu-too-new"
    OOM = "oom"
    GPU_BUSY_OTHER_PROCESS = "gpu-busy-other-process"
    NCCL_FAILURE = "nccl-failure"
    XLA_GPU_ONLY = "xla-gpu-only"
    PLACEMENT_ERROR = "placement-error"
    NO_NVIDIA_RUNTIME = "no-nvidia-runtime"
    CONTAINER_NO_GPU = "container-no-gpu"
    CONTAINER_CUDA_REQUIREMENT = "container-cuda-requirement"
    CONTAINER_DRIVER_LIBS = "container-driver-libs"
    CONTAINER_NVML_LOST = "container-nvml-lost"
    PACKAGE_CONFLICT = "package-conflict"
    SHADOWED_MODULE = "shadowed-module"
    DAMAGED_FILE = "damaged-file"
    NOT_PERMITTED = "not-permitted"
    PYTHON_UNUSABLE = "python-unusable"
    TENSORFLOW_MISSING = "tensorflow-missing"


class Severity(enum.IntEnum):
    """How much it matters; comparable."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen, and where the reader can see it again."""

    source: str
    """A command, a path, an environment variable or a log."""
    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do: a sentence, and apart from it what to type."""

    text: str
    commands: tuple[str, ...] = ()
    changes_system: bool = False
    """True where a command changes more than the target Python's environment (needs root, a reboot, a driver)."""
    steps: tuple[Step, ...] = ()
    """The same as `tfdoctor fix` does it; empty where only a person can."""


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
    """Why the import failed, as its error says; None where it worked."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in a sentence."""

    gpu_usable: bool | None
    cause: Cause | None
    summary: str


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

    def counts(self) -> dict[str, int]:
        """How many rules ended in each outcome, by the contract's names."""
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

    @property
    def ok(self) -> bool | None:
        """All stages that were asked for passed; None where one that matters could not be tried."""
        if any(stage.status == "failed" for stage in self.stages):
            return False
        return True if any(stage.status == "passed" for stage in self.stages) else None

    @property
    def failed(self) -> Stage | None:
        """The first stage that failed."""
        return next((stage for stage in self.stages if stage.status == "failed"), None)
