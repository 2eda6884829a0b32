"""Run TensorFlow in a child process (`tfdoctor check --deep`), and evaluate the answer and the log of the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Cause, Observation
from tfdoctor.core.text import clean_line
from tfdoctor.logs.dso import find_failed_opens
from tfdoctor.logs.libraries import is_tensorrt_library
from tfdoctor.logs.report import diagnose_log
from tfdoctor.prediction.build import describe_build
from tfdoctor.rules import compute_fails
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.result import Failure

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import TensorFlowFacts
    from tfdoctor.logs.report import LogReport
    from tfdoctor.system import CommandResult, System

LOADER_LOG_VARIABLES = {"TF_CPP_VMODULE": "dso_loader=3", "TF_CPP_MIN_LOG_LEVEL": "0"}
"""Variables that make TensorFlow 2.12 and newer log the libraries that it cannot open."""
DEEP_TIMEOUT_S = 180.0
"""The time limit in seconds for the import of TensorFlow and a first computation, which may have to compile PTX."""
KILLED_STATUSES = (-9, 137)
"""The exit statuses of a process that SIGKILL ended, as reported by its parent and by a shell."""
PYTHON_ERRORS = (
    "ModuleNotFoundError",
    "ImportError",
    "AttributeError",
    "ValueError",
    "TypeError",
    "SyntaxError",
)
"""The exceptions that `import tensorflow` raises if installed packages are incompatible with each other."""
PTX_MESSAGE = "jit-compiled from PTX"
"""A part of TensorFlow's message about a GPU that it has no machine code for (compat/logs/gpu.toml)."""
COMPUTE_CAUSES = frozenset(compute_fails.RULE.causes) - {Cause.INCONCLUSIVE}
"""The causes that can stop a registered GPU from computing. Other causes in the log do not explain the failure."""


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The answer of a child process that ran TensorFlow. The answer is incomplete if the process did not finish."""

    import_succeeded: bool
    """Whether the import succeeded."""
    gpu_names: tuple[str, ...] | None
    """TensorFlow's names of the GPUs; None if the process ended before it listed them."""
    compute_results: tuple[str, ...]
    """One entry per GPU: "GPU:0 ok" or "GPU:0 failed: <error>"."""
    error: str
    """The error that ended the run; empty if there is none."""
    seconds: float
    """The duration in seconds."""
    timed_out: bool
    """Whether the process was stopped at the time limit."""


def observe_tensorflow(
    system: System,
    compat: Compat,
    python: str,
    tensorflow: TensorFlowFacts,
    *,
    timeout: float = DEEP_TIMEOUT_S,
    computes: bool = True,
) -> Observation:
    """Import TensorFlow in a child process of `python`, list its GPUs and, if `computes`, compute on each.

    `timeout` is in seconds.
    """
    answer, result = run_payload(
        system,
        python,
        "deep",
        () if computes else ("list",),
        timeout=timeout,
        env=LOADER_LOG_VARIABLES,
        unset=("TF_CPP_MAX_VLOG_LEVEL",),
    )
    return make_observation(
        parse_run_answer(answer, result), result, list_relevant_libraries(tensorflow, compat), compat
    )


def list_relevant_libraries(tensorflow: TensorFlowFacts, compat: Compat) -> frozenset[str]:
    """Return the sonames of the libraries that this build of TensorFlow needs for GPUs.

    These include the libraries of the driver, but not optional ones such as TensorRT.
    """
    build = describe_build(tensorflow, compat)
    return frozenset({*build.required_libraries, *build.driver_libraries})


def parse_run_answer(answer: dict[str, Any], result: CommandResult) -> RunAnswer:
    """Parse the answer of payload/deep.py.

    If the process failed while a GPU was computing, this GPU has failed. Otherwise the failure becomes the error.
    """
    error = str(answer.get("error", ""))
    devices = answer.get("devices")
    computed = tuple(str(line) for line in answer.get("computed") or ())
    unfinished_gpu = answer.get("computing")
    if not result.ok:
        if isinstance(unfinished_gpu, int):
            computed += (f"GPU:{unfinished_gpu} failed: TensorFlow {result.describe_outcome()}",)
        elif not error:
            error = f"TensorFlow {result.describe_outcome()}"
            if result.failure is not Failure.TIMEOUT and result.stderr.strip():
                error += f": {result.stderr.strip().splitlines()[-1]}"
    return RunAnswer(
        import_succeeded=answer.get("import_ok") is True,
        gpu_names=tuple(str(name) for name in devices) if isinstance(devices, list) else None,
        compute_results=computed,
        error=error,
        seconds=float(answer.get("seconds", result.seconds)),
        timed_out=result.failure is Failure.TIMEOUT,
    )


def make_observation(
    answer: RunAnswer, result: CommandResult, relevant_libraries: Collection[str], compat: Compat
) -> Observation:
    """Return the observation of a run, from the answer and the output of the child process.

    `relevant_libraries` is the result of `list_relevant_libraries`.
    """
    failed_attempts = find_failed_opens(f"{result.stderr}\n{result.stdout}\n{answer.error}")
    missing = {
        attempt.missing_soname
        for attempt in failed_attempts
        if attempt.requested_soname in relevant_libraries
        or not (answer.import_succeeded or is_tensorrt_library(attempt.requested_soname))
    }
    # A failed import registers no GPU. If the process was stopped or killed, the number of GPUs is unknown.
    stop_reason = "did not finish in time" if answer.timed_out else ""
    if not stop_reason and result.returncode in KILLED_STATUSES:
        stop_reason = "was killed (SIGKILL), usually because memory ran out"
    count_if_unlisted = None if stop_reason else 0
    gpu_count = len(answer.gpu_names) if answer.gpu_names is not None else count_if_unlisted
    if answer.import_succeeded:
        cause = _find_compute_cause(answer, result, compat)
    elif stop_reason:
        cause = Cause.INCONCLUSIVE
    else:
        cause = _find_import_cause(answer, result, compat)
    return Observation(
        import_ok=answer.import_succeeded,
        gpu_registered=bool(gpu_count) if gpu_count is not None else None,
        gpu_count=gpu_count,
        missing_libraries=tuple(sorted(missing)) if not answer.gpu_names else (),
        seconds=round(answer.seconds, 2),
        devices=tuple(clean_line(name) for name in answer.gpu_names or ()),
        computed=tuple(clean_line(line) for line in answer.compute_results),
        error=clean_line(answer.error, limit=600),
        cause=cause,
        stop_reason=stop_reason,
    )


def _find_import_cause(answer: RunAnswer, result: CommandResult, compat: Compat) -> Cause:
    """Return the cause of a failed import.

    If the log and the error do not show the cause, a Python exception is taken as a conflict between packages.
    """
    cause = find_cause_in_output(result, answer.error, compat)
    if cause is not None:
        return cause
    return Cause.PACKAGE_CONFLICT if answer.error.startswith(PYTHON_ERRORS) else Cause.INCONCLUSIVE


def find_failure_cause(result: CommandResult, error: str, compat: Compat) -> Cause | None:
    """Return the cause why a registered GPU cannot compute; None if the child's log and error do not show it."""
    report = _diagnose_output(result, error, compat)
    lines = (
        [evidence.text for evidence in report.root_finding.evidence]
        if report.root_finding is not None
        else []
    )
    mentions_ptx = any(keyword in error for keyword in (*compute_fails.NO_CODE_PHRASES, "PTX"))
    if report.cause is Cause.GPU_TOO_NEW and not mentions_ptx and all(PTX_MESSAGE in line for line in lines):
        return None  # compiling PTX makes the first run slow, but does not explain a failure
    return report.cause if report.cause in COMPUTE_CAUSES else None


def _find_compute_cause(answer: RunAnswer, result: CommandResult, compat: Compat) -> Cause | None:
    """Return the cause of a failed computation, or None if no GPU failed or the cause is unknown."""
    failures = [line for line in answer.compute_results if "failed" in line]
    return find_failure_cause(result, answer.error or failures[0], compat) if failures else None


def find_cause_in_output(result: CommandResult, error: str, compat: Compat) -> Cause | None:
    """Return the cause that `tfdoctor diagnose` finds in a child's log and error, or None."""
    cause = _diagnose_output(result, error, compat).cause
    return None if cause in (Cause.INCONCLUSIVE, Cause.HEALTHY) else cause


def _diagnose_output(result: CommandResult, error: str, compat: Compat) -> LogReport:
    return diagnose_log([f"{result.stderr}\n{error}\n".encode("utf-8", "replace")], compat)
