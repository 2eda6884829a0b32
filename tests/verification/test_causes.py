"""Cause of a failed stage, from the output of real TensorFlow on a faulty software GPU."""

from __future__ import annotations

import pytest

from rules.make_facts import COMPAT, healthy
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.diagnosis import evaluate_facts
from tfdoctor.diagnosis.tensorflow_run import make_observation
from tfdoctor.system import CommandResult
from tfdoctor.system.payloads import MARKER
from tfdoctor.verification.session import VerificationRun, VerifyRequest, complete_request, ignore_stage
from tfdoctor.verification.stages import Limits, parse_payload_results
from tfdoctor.verification.target_stages import (
    _add_nccl_warning,
    _build_run_output,
    _find_cause,
    _list_stage_findings,
    _record_stages,
)

CREATED = (
    "2026-11-25 07:36:28.4: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1929] Created device "
    "/job:localhost/replica:0/task:0/device:GPU:0 with {mb} MB memory:  -> device: 0, name: Stand-in GPU, "
    "pci bus id: 0000:01:00.0, compute capability: 9.0\n"
)
PTX = (
    "2026-11-25 07:36:28.3: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2348] TensorFlow was not built with "
    "CUDA kernel binaries compatible with compute capability 9.0. CUDA kernels will be jit-compiled from PTX, which "
    "could take 30 minutes or longer.\n"
)
LAUNCH_FAILED = (
    "2026-11-25 07:37:53.7: F ./tensorflow/core/kernels/reduction_gpu_kernels.cu.h:683] Non-OK-status: "
    "GpuLaunchKernel(BlockReduceKernel<IN_T, T*, num_threads, Op>, num_blocks, num_threads, 0, cu_stream, in, "
    "(T*)temp_storage.flat<int8_t>().data(), in_size, op, init) status: INTERNAL: {}\n"
)
OUT_OF_MEMORY = (
    "2026-11-25 07:36:48.4: W external/local_tsl/tsl/framework/bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of "
    "memory trying to allocate 1.0KiB (rounded to 1280)requested by op ScratchBuffer\n"
)
CUDNN_MISMATCH = (
    "2026-11-25 07:53:20.2: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:447] Loaded runtime CuDNN "
    "library: 8.5.0 but source was compiled with: 8.9.4.  CuDNN library needs to have matching major version and "
    "equal or higher minor version.\n"
)
NO_BINARY = (
    "2026-11-25 08:07:23.2: W tensorflow/compiler/mlir/tools/kernel_gen/tf_gpu_runtime_wrappers.cc:40] "
    "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_NO_BINARY_FOR_GPU'\n"
)
HANDLE = "InternalError: INTERNAL: 'cuLaunchKernel(function, params, nullptr)' failed with 'CUDA_ERROR_INVALID_HANDLE'"
NOT_FOUND = "UnimplementedError: UNIMPLEMENTED: DNN library is not found."
NO_SCRATCH = "FailedPreconditionError: FAILED_PRECONDITION: Failed to allocate scratch buffer for device 0"


def format_lines(*stage_lines: str) -> str:
    """Return the output of the stages payload: the import, the visible GPU and `stage_lines`."""
    passed = [
        f'{{"stage": "{name}", "status": "passed", "detail": "", "seconds": 1}}'
        for name in ("import", "visible")
    ]
    devices = '{"stage": "visible", "devices": ["/physical_device:GPU:0"]}'
    return "\n".join(MARKER + line for line in (passed[0], devices, passed[1], *stage_lines)) + "\n"


def format_gpu_failure(error: str) -> str:
    """Return the line of a GPU that fails to compute."""
    return f'{{"stage": "compute", "gpu": 0, "ok": false, "error": "{error}"}}'


def format_stage_failure(stage: str, error: str) -> str:
    """Return the line of a failed stage."""
    return (
        f'{{"stage": "{stage}", "status": "failed", "detail": "{error}", "error": "{error}", "seconds": 1}}'
    )


COMPUTE_BEGUN = (
    '{"stage": "compute", "status": "begin"}',
    '{"stage": "compute", "computing": 0, "dtype": "float32"}',
)
COMPUTE_PASSED = (
    '{"stage": "compute", "gpu": 0, "ok": true}',
    '{"stage": "compute", "status": "passed", "seconds": 1}',
)
CASES = {
    "a card whose memory another process holds": (
        (format_gpu_failure(NO_SCRATCH), format_stage_failure("compute", NO_SCRATCH)),
        0,
        CREATED.format(mb=0) + PTX + OUT_OF_MEMORY,
        Cause.GPU_BUSY_OTHER_PROCESS,
    ),
    "memory that is all used up": (
        (format_gpu_failure(NO_SCRATCH), format_stage_failure("compute", NO_SCRATCH)),
        0,
        CREATED.format(mb=79096) + PTX + OUT_OF_MEMORY,
        Cause.OOM,
    ),
    "a kernel that the driver cannot compile": (
        COMPUTE_BEGUN,
        -6,
        PTX + CREATED.format(mb=79096) + LAUNCH_FAILED.format("a PTX JIT compilation failed"),
        Cause.GPU_TOO_NEW,
    ),
    "PTX that is newer than the driver": (
        COMPUTE_BEGUN,
        -6,
        PTX + LAUNCH_FAILED.format("the provided PTX was compiled with an unsupported toolchain."),
        Cause.DRIVER_TOO_OLD,
    ),
    "a memory error of the card": (
        COMPUTE_BEGUN,
        -6,
        PTX + CREATED.format(mb=79096) + LAUNCH_FAILED.format("uncorrectable ECC error encountered"),
        Cause.INCONCLUSIVE,
    ),
    "a card that fell off the bus": (
        COMPUTE_BEGUN,
        -6,
        PTX + CREATED.format(mb=79096) + LAUNCH_FAILED.format("unknown error"),
        Cause.INCONCLUSIVE,
    ),
    "a card that no kernel is for": (
        (format_gpu_failure(HANDLE), format_stage_failure("compute", HANDLE)),
        0,
        PTX + CREATED.format(mb=79096) + NO_BINARY,
        Cause.GPU_TOO_NEW,
    ),
    "an older cuDNN": (
        (*COMPUTE_PASSED, format_stage_failure("cudnn", NOT_FOUND)),
        0,
        PTX + CREATED.format(mb=79096) + CUDNN_MISMATCH,
        Cause.CUDNN_VERSION_MISMATCH,
    ),
    "NCCL": (
        (
            *COMPUTE_PASSED,
            '{"stage": "cudnn", "status": "passed"}',
            format_stage_failure("nccl", "unhandled cuda error"),
        ),
        0,
        PTX + CREATED.format(mb=79096),
        Cause.NCCL_FAILURE,
    ),
}


@pytest.mark.parametrize(("said", "code", "stderr", "cause"), CASES.values(), ids=CASES)
def test_failed_stage_has_a_cause_and_a_finding(
    said: tuple[str, ...], code: int, stderr: str, cause: Cause
) -> None:
    run = VerificationRun("/opt/bin/python", complete_request(VerifyRequest(expected=1)), ignore_stage)
    result = CommandResult(("python",), code, stdout=format_lines(*said), stderr=stderr, seconds=9)
    answer = parse_payload_results(result, Limits())
    facts = healthy()
    report = evaluate_facts(
        facts, COMPAT, make_observation(_build_run_output(answer, result), result, frozenset(), COMPAT)
    )
    _record_stages(run, answer, result, report, COMPAT)
    assert run.cause is cause
    stage = next(item for item in run.stages if item.status == "failed")
    assert _find_cause(stage.name, answer, result, report, COMPAT) in (cause, None)
    findings = [*_list_stage_findings(run, stage, answer, result, report), *report.findings]
    errors = [item for item in findings if item.severity is Severity.ERROR]
    assert {item.cause for item in errors} == {cause}  # no other cause is reported
    assert all(item.remedies for item in errors)
    run.findings += findings
    summary = run.make_result().summary
    assert summary.startswith(f"{stage.name} failed: ")
    if code:
        assert summary.endswith(stderr.rstrip()[-40:])  # the status is at the end of a long line


def test_nccl_warning_is_added_to_the_error() -> None:
    log = (
        "vm:32631:889 [0] external/nccl_archive/src/enqueue.cc:100 NCCL WARN Cuda failure 'no kernel image is "
        "available for execution on the device'\nvm:32631:889 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.2<0>\n"
    )
    message = _add_nccl_warning("UNKNOWN: Error invoking NCCL: unhandled cuda error", log)
    assert message.endswith(
        "error. NCCL: Cuda failure 'no kernel image is available for execution on the device'"
    )
    assert _add_nccl_warning("the sum is off.", "nothing") == "the sum is off."
