"""TFD115: GPUs that are listed but cannot compute."""

from __future__ import annotations

import dataclasses

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause, Observation, OutcomeKind
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.rules import compute_fails
from tfdoctor.rules.base import RuleContext

from .make_facts import healthy

SEEN = Observation(True, True, 1, (), 4.0, ("/physical_device:GPU:0",), ("GPU:0 ok",))


def make_observed(*computed: str) -> Observation:
    return dataclasses.replace(SEEN, computed=computed)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("GPU:0 failed: ResourceExhaustedError: OOM when allocating", Cause.OOM),
        (
            "GPU:0 failed: InternalError: 'cuLaunchKernel' failed with 'CUDA_ERROR_INVALID_PTX'",
            Cause.GPU_TOO_NEW,
        ),
        ("GPU:0 failed: InternalError: no kernel image is available for execution", Cause.GPU_TOO_NEW),
        (
            "GPU:0 failed: UnknownError: Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR",
            Cause.CUDNN_INIT_FAILED,
        ),
        (
            "GPU:1 failed: FailedPreconditionError: Failed to allocate scratch buffer for device 1",
            Cause.OOM,
        ),
        (
            "GPU:0 failed: Attempting to perform BLAS operation using StreamExecutor without BLAS support",
            Cause.CUBLAS_INIT_FAILED,
        ),
        ("GPU:0 failed: InternalError: INTERNAL: No blas support for stream", Cause.CUBLAS_INIT_FAILED),
        ("GPU:0 failed: the provided PTX was compiled with an unsupported toolchain.", Cause.DRIVER_TOO_OLD),
        ("GPU:0 failed: INTERNAL: a PTX JIT compilation failed", Cause.GPU_TOO_NEW),
        ("GPU:0 failed: failed to query event: CUDA_ERROR_ECC_UNCORRECTABLE", Cause.INCONCLUSIVE),
        ("GPU:0 failed: TensorFlow was ended by signal 11", Cause.INCONCLUSIVE),
    ],
)
def test_error_determines_the_cause(line: str, cause: Cause) -> None:
    report = diagnose(healthy(), Compat.load(), make_observed(line))
    assert report.root_finding is not None
    assert (report.root_finding.code, report.root_finding.cause) == ("TFD115", cause)
    assert report.verdict.gpu_usable is False


def test_outcomes_without_finding() -> None:
    facts, compat = healthy(), Compat.load()
    prediction = diagnose(facts, compat).prediction
    clean = compute_fails.RULE.run(RuleContext(facts, compat, prediction, SEEN))
    assert clean.kind is OutcomeKind.CLEAN
    assert compute_fails.RULE.run(RuleContext(facts, compat, prediction)).kind is OutcomeKind.NOT_APPLICABLE
