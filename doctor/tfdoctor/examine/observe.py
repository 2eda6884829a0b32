"""`check --deep`: run TensorFlow in a child process and read what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.findings import Cause, Observation
from tfdoctor.logs.dso import failed_opens
from tfdoctor.logs.report import diagnose_log
from tfdoctor.predict import build_of
from tfdoctor.probes.payload import run_payload
from tfdoctor.system.result import Failure
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfdoctor.compat import Compat
    from tfdoctor.facts import TensorFlowFacts
    from tfdoctor.system import CommandResult, System

SHOW_LOADER = {"TF_CPP_VMODULE": "dso_loader=3", "TF_CPP_MIN_LOG_LEVEL": "0"}
"""From 2.12 on TensorFlow names the libraries it could not open only so."""
DEEP_TIMEOUT = 180.0
"""Seconds that importing TensorFlow and a first kernel may take (PTX may have to be compiled)."""


def observe(
    system: System, compat: Compat, python: str, tensorflow: TensorFlowFacts, *, timeout: float = DEEP_TIMEOUT
) -> Observation:
    """Import TensorFlow in a child of `python`, list its GPUs, compute on each. `timeout` in seconds.

    What this build has no use for (TensorRT) may be missing.
    """
    build = build_of(tensorflow, compat)
    wanted = {*build.required, *build.driver_libraries}
    answer, result = run_payload(
        system, python, "deep", timeout=timeout, env=SHOW_LOADER, unset=("TF_CPP_MAX_VLOG_LEVEL",)
    )
    return judge(answer, result, wanted, compat)


def judge(
    answer: dict[str, Any], result: CommandResult, wanted: Collection[str], compat: Compat
) -> Observation:
    """The observation in what the child printed, however far it came."""
    error = str(answer.get("error", ""))
    imported = answer.get("import_ok") is True
    listed = answer.get("devices")
    devices = tuple(str(name) for name in listed) if isinstance(listed, list) else ()
    computed = tuple(str(line) for line in answer.get("computed") or ())
    unfinished = answer.get("computing")
    if not result.ok:
        if isinstance(unfinished, int):
            computed += (f"GPU:{unfinished} failed: TensorFlow {result.why()}",)
        elif not error:
            error = f"TensorFlow {result.why()}"
            if result.failure is not Failure.TIMEOUT and result.stderr.strip():
                error += f": {result.stderr.strip().splitlines()[-1]}"
    known = isinstance(listed, list)
    failed = failed_opens(f"{result.stderr}\n{result.stdout}\n{error}")
    missing = {f.really_missing for f in failed if f.opened in wanted or not imported}
    return Observation(
        import_ok=imported,
        # An import that fails, or that kills the process, registers nothing; one that hangs tells nothing.
        gpu_registered=bool(devices) if known else (None if result.failure is Failure.TIMEOUT else False),
        gpu_count=len(devices) if known else (None if result.failure is Failure.TIMEOUT else 0),
        missing_libraries=tuple(sorted(missing)) if not devices else (),
        seconds=round(float(answer.get("seconds", result.seconds)), 2),
        devices=tuple(clean_line(name) for name in devices),
        computed=tuple(clean_line(line) for line in computed),
        error=clean_line(error, limit=600),
        cause=None if imported else _cause(result, error, compat),
    )


PYTHON_ERRORS = (
    "ModuleNotFoundError",
    "ImportError",
    "AttributeError",
    "ValueError",
    "TypeError",
    "SyntaxError",
)


def _cause(result: CommandResult, error: str, compat: Compat) -> Cause:
    """Why an import failed, as its log says; an error of Python's is a package's that does not fit."""
    if result.failure is Failure.TIMEOUT:
        return Cause.INCONCLUSIVE
    said = diagnose_log([f"{result.stderr}\n{error}\n".encode("utf-8", "replace")], compat).cause
    if said not in (Cause.INCONCLUSIVE, Cause.HEALTHY):
        return said
    return Cause.PACKAGE_CONFLICT if error.startswith(PYTHON_ERRORS) else Cause.INCONCLUSIVE
