"""The choice of the one root cause of a log, by detectors that are asked in the order in which things break.

A detector sees the whole log, never a single line, so the order of the messages in the text decides nothing.
The first detector that returns a decision wins: what lies lower in the stack (host, driver, libraries) comes
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.findings import Cause
from tfdoctor.logs.detectors import cluster, gpu, machine, python_import
from tfdoctor.logs.log_context import Decision, LogContext

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DETECTORS", "decide", "is_registered"]


def decide(case: LogContext) -> Decision:
    """Return the root cause that the log shows."""
    for detector in DETECTORS:
        decision = detector(case)
        if decision is not None:
            return decision
    return Decision(Cause.INCONCLUSIVE)


DETECTORS: tuple[Callable[[LogContext], Decision | None], ...] = (
    machine.detect_containers,
    machine.detect_windows,
    python_import.detect_imports,
    machine.detect_installation,
    machine.detect_driver,
    machine.detect_smi,
    gpu.detect_libraries,
    gpu.detect_lazy_libraries,
    gpu.detect_skipped_registration,
    gpu.detect_ignored,
    gpu.detect_no_code,
    gpu.detect_memory,
    gpu.detect_cudnn,
    gpu.detect_cublas,
    gpu.detect_tools,
    gpu.detect_unlisted,
    gpu.detect_both_packages,
    gpu.detect_placement,
    gpu.detect_cupti,
    gpu.detect_fork,
    cluster.detect_cluster,
    gpu.detect_nothing_registered,
    gpu.detect_fault,
    gpu.detect_compilation,
    gpu.detect_healthy,
    python_import.detect_other_api,
)
"""The detectors, in the order in which they are asked."""

DRIVER_STAGE_CAUSES = frozenset({Cause.GPU_BUSY_OTHER_PROCESS, Cause.DRIVER_TOO_OLD})
"""Causes that can also appear after a GPU was registered.

If the first calls of the driver fail with one of them, no GPU was.
"""


def is_registered(case: LogContext, decision: Decision) -> bool | None:
    """Return whether TensorFlow registered a GPU; None if the log does not say."""
    log = case.log
    if case.registration is not None:
        return True
    if decision.cause is Cause.GPU_TOO_OLD and log.has("xla-breaks"):
        return False
    if log.has("device-not-made") and decision.cause not in (Cause.GPU_TOO_OLD, Cause.GPU_TOO_NEW):
        return False  # TensorFlow registers a GPU even if it has no code for it
    used = ("gpu-used", "cudnn-loaded", "cublas-init")
    if (
        any(event.get("loaded") for event in log.list_events("cudnn-version"))
        or log.has(*used)
        # a CUDA error code in the message shows that a kernel was about to run
        or any("'cu" in event.text for event in log.list_events("no-kernel-image"))
        or any(event.get("status") for event in log.list_events("cudnn-init"))
    ):
        return decision.cause.data.registers or decision.cause is Cause.LIBS_TRANSITIVE
    if case.has_remaining_gpus and decision.cause.data.registers:
        return True
    if decision.cause is Cause.CUDNN_MISSING and log.has("dso-failed-old") and not gpu.is_none_listed(case):
        return None  # these releases register a GPU without cuDNN and fail at its first use
    if not decision.cause.data.registers or log.has("amd-ignored"):
        return False
    if log.has("device-ignored"):  # TensorFlow 2.5 and later do not log the number of GPUs
        none_usable = case.has_ignored_all or gpu.is_none_listed(case) or log.has("interconnect")
        return False if none_usable else None
    if decision.cause in DRIVER_STAGE_CAUSES and log.has("cuinit", "context-failed", "driver-code"):
        return False
    if case.ready_order >= 0 or gpu.list_failed_allocations(case):
        return True
    return False if gpu.is_none_listed(case) else None
