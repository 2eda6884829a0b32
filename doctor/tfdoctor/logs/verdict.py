"""Choose the root cause of a log.

Detectors are called one after the other, and the first that returns a decision wins. Those for lower layers (host,
driver, libraries) come first. A detector sees the whole log, so the order of the messages does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause
from tfdoctor.logs.detectors import cluster, gpu, machine, python_import
from tfdoctor.logs.log_context import Decision, LogContext

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DETECTORS", "choose_decision", "is_registered"]


DETECTORS: tuple[Callable[[LogContext], Decision | None], ...] = (
    machine.detect_containers,
    machine.detect_windows,
    python_import.detect_failed_import,
    machine.detect_installation,
    machine.detect_driver,
    machine.detect_smi_failure,
    gpu.detect_libraries,
    gpu.detect_lazy_libraries,
    gpu.detect_skipped_registration,
    gpu.detect_ignored_gpus,
    gpu.detect_missing_gpu_code,
    gpu.detect_memory,
    gpu.detect_cudnn,
    gpu.detect_cublas,
    gpu.detect_compiler_and_nccl,
    gpu.detect_unnamed_libraries,
    gpu.detect_both_packages,
    gpu.detect_placement,
    gpu.detect_cupti,
    gpu.detect_fork,
    cluster.detect_cluster,
    gpu.detect_missing_registration,
    gpu.detect_fault,
    gpu.detect_compilation,
    gpu.detect_healthy,
    python_import.detect_api_mismatch,
    python_import.detect_python_message,
    python_import.detect_unknown_error,
)
"""The detectors, in the order in which they are called."""

DRIVER_STAGE_CAUSES = frozenset({Cause.GPU_BUSY_OTHER_PROCESS, Cause.DRIVER_TOO_OLD})
"""Causes that can occur before or after a GPU is registered.

If the first calls to the driver fail with one of them, no GPU was registered.
"""


def choose_decision(context: LogContext) -> Decision:
    """Return the decision of the first detector that makes one, or else INCONCLUSIVE."""
    for detector in DETECTORS:
        decision = detector(context)
        if decision is not None:
            return decision
    return Decision(Cause.INCONCLUSIVE)


def is_registered(context: LogContext, decision: Decision) -> bool | None:
    """Return whether TensorFlow registered a GPU, or None if the log does not say."""
    log = context.log
    if context.registration_event is not None:
        return True
    if decision.cause is Cause.GPU_TOO_OLD and log.has("xla-breaks"):
        return False
    if log.has("device-not-made") and decision.cause not in (Cause.GPU_TOO_OLD, Cause.GPU_TOO_NEW):
        return False  # TensorFlow registers a GPU even if it has no code for it
    if decision.cause is Cause.PROTOBUF_CONFLICT and all(
        "GetPrototype" in event.text for event in log.list_events("protobuf")
    ):
        return None  # the message is printed, and the import goes on
    usage_signatures = (*gpu.USAGE_SIGNATURES, "cudnn-loaded", "cublas-init")
    if (
        any(event.get("loaded") for event in log.list_events("cudnn-version"))
        or log.has(*usage_signatures)
        # a CUDA error code in the message shows that a kernel was about to run
        or any("'cu" in event.text for event in log.list_events("no-kernel-image"))
        or any(event.get("status") for event in log.list_events("cudnn-init"))
    ):
        return decision.cause.data.allows_registration or decision.cause is Cause.LIBS_TRANSITIVE
    if context.has_unignored_gpus and decision.cause.data.allows_registration:
        return True
    if (
        decision.cause is Cause.CUDNN_MISSING
        and log.has("dso-failed-old")
        and not gpu.has_listed_no_gpu(context)
    ):
        return None  # these releases register a GPU without cuDNN and fail at its first use
    if not decision.cause.data.allows_registration or log.has("amd-ignored"):
        return False
    if log.has("device-ignored"):  # TensorFlow 2.5 and later do not log the number of GPUs
        has_no_usable_gpu = (
            context.has_ignored_all_gpus or gpu.has_listed_no_gpu(context) or log.has("interconnect")
        )
        return False if has_no_usable_gpu else None
    if decision.cause in DRIVER_STAGE_CAUSES and log.has("cuinit", "context-failed", "driver-code"):
        return False
    if context.gpu_ready_order >= 0 or gpu.list_failed_allocations(context):
        return True
    return False if gpu.has_listed_no_gpu(context) else None
