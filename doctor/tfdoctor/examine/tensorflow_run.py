"""What TensorFlow did in a child process: run it (`check --deep`), and read what a child said that ran it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdoctor.findings import Cause, Observation
from tfdoctor.logs.dso import find_failed_opens
from tfdoctor.logs.libraries import is_tensorrt
from tfdoctor.logs.report import diagnose_log
from tfdoctor.predict import build_of
from tfdoctor.rules import compute_fails
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.result import Failure
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfdoctor.compat import Compat
    from tfdoctor.facts import TensorFlowFacts
    from tfdoctor.logs.report import LogReport
    from tfdoctor.system import CommandResult, System

SHOW_LOADER = {"TF_CPP_VMODULE": "dso_loader=3", "TF_CPP_MIN_LOG_LEVEL": "0"}
"""From 2.12 on TensorFlow names the libraries it could not open only so."""
DEEP_TIMEOUT = 180.0
"""Seconds that importing TensorFlow and a first kernel may take (PTX may have to be compiled)."""


KILLED = (-9, 137)
"""How a process ends that SIGKILL ended: seen from here, and from a shell."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a child that ran TensorFlow said of it, however far it came."""

    imported: bool
    devices: tuple[str, ...] | None
    """As TensorFlow names them; None where it did not come so far as to list them."""
    computed: tuple[str, ...]
    """One entry a device: "GPU:0 ok" or "GPU:0 failed: <error>"."""
    error: str
    seconds: float
    timed_out: bool


def observe(
    system: System,
    compat: Compat,
    python: str,
    tensorflow: TensorFlowFacts,
    *,
    timeout: float = DEEP_TIMEOUT,
    computes: bool = True,
) -> Observation:
    """Import TensorFlow in a child of `python`, list its GPUs, compute on each where it `computes`. `timeout` in
    seconds."""
    answer, result = run_payload(
        system,
        python,
        "deep",
        () if computes else ("list",),
        timeout=timeout,
        env=SHOW_LOADER,
        unset=("TF_CPP_MAX_VLOG_LEVEL",),
    )
    return make_observation(
        read_deep(answer, result), result, list_relevant_libraries(tensorflow, compat), compat
    )


def list_relevant_libraries(tensorflow: TensorFlowFacts, compat: Compat) -> frozenset[str]:
    """Return the libraries whose absence matters; what this build has no use for (TensorRT) may be missing."""
    build = build_of(tensorflow, compat)
    return frozenset({*build.required, *build.driver_libraries})


def read_deep(answer: dict[str, Any], result: CommandResult) -> Said:
    """Read what payload/deep.py printed, completed by how its process ended."""
    error = str(answer.get("error", ""))
    listed = answer.get("devices")
    computed = tuple(str(line) for line in answer.get("computed") or ())
    unfinished = answer.get("computing")
    if not result.ok:
        if isinstance(unfinished, int):
            computed += (f"GPU:{unfinished} failed: TensorFlow {result.describe_end()}",)
        elif not error:
            error = f"TensorFlow {result.describe_end()}"
            if result.failure is not Failure.TIMEOUT and result.stderr.strip():
                error += f": {result.stderr.strip().splitlines()[-1]}"
    return Said(
        imported=answer.get("import_ok") is True,
        devices=tuple(str(name) for name in listed) if isinstance(listed, list) else None,
        computed=computed,
        error=error,
        seconds=float(answer.get("seconds", result.seconds)),
        timed_out=result.failure is Failure.TIMEOUT,
    )


def make_observation(
    said: Said, result: CommandResult, wanted: Collection[str], compat: Compat
) -> Observation:
    """Return what TensorFlow did, by its child's answer and output. `wanted`: see `list_relevant_libraries`."""
    failed = find_failed_opens(f"{result.stderr}\n{result.stdout}\n{said.error}")
    missing = {
        f.really_missing for f in failed if f.opened in wanted or not (said.imported or is_tensorrt(f.opened))
    }
    # An import that fails, or that kills the process, registers nothing; one that was stopped tells nothing.
    ended = "did not finish in time" if said.timed_out else ""
    if not ended and result.returncode in KILLED:
        ended = "was killed (SIGKILL), usually because memory ran out"
    unlisted = None if ended else 0
    count = len(said.devices) if said.devices is not None else unlisted
    return Observation(
        import_ok=said.imported,
        gpu_registered=bool(count) if count is not None else None,
        gpu_count=count,
        missing_libraries=tuple(sorted(missing)) if not said.devices else (),
        seconds=round(said.seconds, 2),
        devices=tuple(clean_line(name) for name in said.devices or ()),
        computed=tuple(clean_line(line) for line in said.computed),
        error=clean_line(said.error, limit=600),
        cause=_find_compute_cause(said, result, compat)
        if said.imported
        else Cause.INCONCLUSIVE
        if ended
        else _find_import_cause(said, result, compat),
        ended=ended,
    )


PYTHON_ERRORS = (
    "ModuleNotFoundError",
    "ImportError",
    "AttributeError",
    "ValueError",
    "TypeError",
    "SyntaxError",
)


def _find_import_cause(said: Said, result: CommandResult, compat: Compat) -> Cause:
    """Return why an import failed, as its log says; a Python error means a package that does not fit."""
    cause = find_cause_in_log(result, said.error, compat)
    if cause is not None:
        return cause
    return Cause.PACKAGE_CONFLICT if said.error.startswith(PYTHON_ERRORS) else Cause.INCONCLUSIVE


FROM_PTX = "jit-compiled from PTX"
"""TensorFlow's words for a card without machine code (compat/logs/gpu.toml)."""
FAILS_COMPUTING = frozenset(compute_fails.RULE.causes) - {Cause.INCONCLUSIVE}
"""What a registered card fails to compute for; a log may tell of more, and none of that is it."""


def find_failure_cause(result: CommandResult, error: str, compat: Compat) -> Cause | None:
    """Return why a registered GPU does not compute, as the child's log and error say; None if they do not."""
    report = _log_of(result, error, compat)
    lines = [one.text for one in report.root.evidence] if report.root is not None else []
    said = any(word in error for word in (*compute_fails.NO_CODE, "PTX"))
    if report.cause is Cause.GPU_TOO_NEW and not said and all(FROM_PTX in line for line in lines):
        return None  # that the first run is slow says nothing of how it ended
    return report.cause if report.cause in FAILS_COMPUTING else None


def _find_compute_cause(said: Said, result: CommandResult, compat: Compat) -> Cause | None:
    failed = [line for line in said.computed if "failed" in line]
    return find_failure_cause(result, said.error or failed[0], compat) if failed else None


def find_cause_in_log(result: CommandResult, error: str, compat: Compat) -> Cause | None:
    """Return what a child's log says is wrong, by the signatures of `diagnose`; None if it says nothing."""
    cause = _log_of(result, error, compat).cause
    return None if cause in (Cause.INCONCLUSIVE, Cause.HEALTHY) else cause


def _log_of(result: CommandResult, error: str, compat: Compat) -> LogReport:
    return diagnose_log([f"{result.stderr}\n{error}\n".encode("utf-8", "replace")], compat)
