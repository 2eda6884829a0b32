"""TensorFlow lists a GPU but cannot compute on it.

What it means
-------------
A listed device does not guarantee anything: TensorFlow also registers GPUs for which it has no code, whose memory
is in use, or whose driver cannot create a context. Only a correct result shows that a GPU works.

How it is seen
--------------
`check --deep` multiplies two matrices on each GPU in a child process and compares the result with the CPU's.

What to do
----------
Start with the error of the first failing GPU; the other findings of the same run often name its cause already.
"""

from __future__ import annotations

from tfdoctor.core import versions
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.rules.base import GPU, NotApplicable, Result, Rule, RuleContext

CAUSES_BY_ERROR_PHRASES = (
    (("out of memory", "OUT_OF_MEMORY", "RESOURCE_EXHAUSTED", "ResourceExhausted", "OOM"), Cause.OOM),
    (("Failed to allocate", "failed to alloc"), Cause.OOM),
    (("insufficient for CUDA runtime", "INSUFFICIENT_DRIVER"), Cause.DRIVER_TOO_OLD),
    (("UNSUPPORTED_PTX", "unsupported toolchain"), Cause.DRIVER_TOO_OLD),
    (("INVALID_PTX", "PTX JIT compilation"), Cause.GPU_TOO_NEW),
    (("CUDNN_STATUS", "Could not create cudnn handle", "DNN library"), Cause.CUDNN_INIT_FAILED),
    (
        (
            "CUBLAS_STATUS",
            "cublas handle",
            "Blas GEMM launch failed",
            "without BLAS support",
            "No blas support",
        ),
        Cause.CUBLAS_INIT_FAILED,
    ),
)
"""Phrases of TensorFlow's errors and the root cause that they show. The first match counts.

They are used only if the log of the run shows no cause.
"""
NO_CODE_PHRASES = ("no kernel image", "INVALID_IMAGE", "NO_BINARY_FOR_GPU", "invalid device function")
"""Phrases of the errors that mean that the build has no code for the GPU."""


def check(context: RuleContext) -> Result:
    if context.observation is None:
        return NotApplicable("TensorFlow was not run (`--deep`)")
    if not context.observation.computed:
        return NotApplicable("TensorFlow lists no GPU to compute on")
    # each line reports the computation on one GPU
    failures = [line for line in context.observation.computed if "failed" in line]
    if not failures:
        return ()
    return [
        RULE.make_finding(
            context.observation.cause or _classify_error(context, failures[0]),
            Severity.ERROR,
            f"{len(failures)} of {len(context.observation.computed)} listed GPUs cannot compute: {failures[0]}",
            evidence=[Evidence("a product on each GPU, in a child process", line) for line in failures],
            remedies=[
                Remedy(
                    "Look at what the driver says while it happens: NVRM and Xid lines name a fault of card or driver.",
                    (
                        "sudo dmesg | grep -i -E 'nvrm|xid' | tail -n 20",
                        format_check_command(context.target),
                    ),
                )
            ],
        )
    ]


def classify_error_text(line: str) -> Cause | None:
    """Return the root cause that a TensorFlow error shows; None if it has no phrase of `CAUSES_BY_ERROR_PHRASES`."""
    return next(
        (cause for phrases, cause in CAUSES_BY_ERROR_PHRASES if any(phrase in line for phrase in phrases)),
        None,
    )


def _classify_error(context: RuleContext, line: str) -> Cause:
    """Return the root cause of a failed computation; INCONCLUSIVE if its error is not known."""
    cause = classify_error_text(line)
    if cause is not None:
        return cause
    if any(phrase in line for phrase in NO_CODE_PHRASES):
        return _classify_code_gap(context)
    return Cause.INCONCLUSIVE


def _classify_code_gap(context: RuleContext) -> Cause:
    """Return GPU_TOO_OLD if all GPUs are older than the build's oldest machine code, else GPU_TOO_NEW."""
    driver_result = value_of(context.facts.driver.cuda)
    build = context.build
    code_capabilities = build.release.cubin if build is not None and build.release is not None else ()
    gpu_capabilities = [
        device.compute_capability
        for device in (driver_result.devices if driver_result is not None else ())
        if device.compute_capability
    ]
    if code_capabilities and gpu_capabilities:
        oldest = min(code_capabilities, key=versions.parse_capability)
        if all(
            versions.parse_capability(capability) < versions.parse_capability(oldest)
            for capability in gpu_capabilities
        ):
            return Cause.GPU_TOO_OLD
    return Cause.GPU_TOO_NEW


RULE = Rule(
    "TFD115",
    "compute-fails",
    "A GPU is listed but does not compute",
    (
        Cause.OOM,
        Cause.GPU_BUSY_OTHER_PROCESS,
        Cause.DRIVER_TOO_OLD,
        Cause.GPU_TOO_NEW,
        Cause.GPU_TOO_OLD,
        Cause.CUDNN_INIT_FAILED,
        Cause.CUDNN_VERSION_MISMATCH,
        Cause.CUDNN_MISSING,
        Cause.CUBLAS_INIT_FAILED,
        Cause.LIBDEVICE_OR_PTXAS_MISSING,
        Cause.NCCL_FAILURE,
        Cause.INCONCLUSIVE,
    ),
    check,
    short_title="listed, but does not compute",
    area=GPU,
)
