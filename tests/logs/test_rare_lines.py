# ruff: noqa: E501 - lines of logs are long
"""Rare lines: of TensorFlow 0.x, of macOS, behind prefixes of other programs, or truncated."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.logs.report import LogReport, diagnose_log

COMPAT = Compat.load()
TIMESTAMP = "2020-05-01 10:00:00.000001: "
DSO_LOADER = "tensorflow/stream_executor/platform/default/dso_loader.cc:55] "
GPU = (
    TIMESTAMP + "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1247] Created TensorFlow device "
    "(/job:localhost/replica:0/task:0/device:GPU:0 with 7000 MB memory) -> physical GPU (device: 0, name: GeForce "
    "GTX 1080, pci bus id: 0000:01:00.0, compute capability: 6.1)\n"
)
CUINIT = TIMESTAMP + "E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: "
OLD_DSO_FAILURE = "I tensorflow/stream_executor/dso_loader.cc:99] Couldn't open CUDA library {0}. LD_LIBRARY_PATH: /usr/local/cuda/lib64\n"


CASES = [
    ("the toolkit's libcuda, before TensorFlow 1.13", "stub-libcuda", CUINIT + "CUresult(-1)\n"),
    ("no libcuda, before TensorFlow 1.0", "no-driver", OLD_DSO_FAILURE.format("libcuda.so.1")),
    (
        "neither libcuda nor cuDNN, before 1.0",
        "no-driver",
        OLD_DSO_FAILURE.format("libcudnn.so") + OLD_DSO_FAILURE.format("libcuda.so.1"),
    ),
    (
        "libcuda under its second name",
        "cudnn-missing",
        OLD_DSO_FAILURE.format("libcuda.so")
        + "I tensorflow/stream_executor/dso_loader.cc:105] successfully opened CUDA library libcuda.so.1 locally\n"
        + OLD_DSO_FAILURE.format("libcudnn.so"),
    ),
    (
        "cuDNN, and the line that names it is truncated",
        "cudnn-missing",
        "I tensorflow/stream_executor/cuda/cuda_dnn.cc:1062] Unable to load cuDNN DSO.\n",
    ),
    (
        "a Mac without CUDA",
        "import-missing-cuda-lib",
        (
            "ImportError: dlopen(/x/tensorflow/python/_pywrap_tensorflow.so, 10): Library not loaded: @rpath/libcudart.8.0.dylib\n"
            "  Reason: image not found\n"
        ),
    ),
    (
        "another program of a Mac",
        "inconclusive",
        "dyld: Library not loaded: /usr/local/lib/libpng.16.dylib\n",
    ),
    (
        "NCCL's warning behind a rank's name",
        "nccl-failure",
        GPU
        + "[1,1]<stdout>:node7:801:845 [1] misc/enqueue.cu:150 WARN Cuda failure 'invalid device function'\n",
    ),
    (
        "LLVM does not know the card",
        "gpu-too-new",
        "LLVM ERROR: PTX version 8.1 does not support target 'sm_100'. Minimum required PTX version is 8.6\n",
    ),
    (
        "the same device used by another process",
        "gpu-busy-other-process",
        "InternalError: cudaSetDevice() on GPU:0 failed. Status: CUDA-capable device(s) is/are busy or unavailable\n",
    ),
    (
        "a worker that was forked",
        "inconclusive",
        TIMESTAMP
        + "E cuda_driver.cc:1204] could not retrieve CUDA device count: CUDA_ERROR_NOT_INITIALIZED: initialization error\n",
    ),
    (
        "cuInit itself, and no word of another process",
        "driver-init-unknown",
        CUINIT + "CUDA_ERROR_NOT_INITIALIZED: initialization error\n",
    ),
]


def make_report(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT, "log.txt")


@pytest.mark.parametrize(("cause", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_rare_line_has_its_cause(cause: str, text: str) -> None:
    assert make_report(text).cause.value == cause


def test_forked_worker_is_named() -> None:
    report = make_report(
        GPU
        + "F cuda_driver.cc:148] Failed setting context: CUDA_ERROR_NOT_INITIALIZED: initialization error\n"
    )
    assert (report.cause, report.gpu_registered) == (Cause.INCONCLUSIVE, True)
    assert report.root_finding is not None
    assert "forked" in report.root_finding.title


def test_forking_is_named_as_a_possible_reason_of_cuinit() -> None:
    """The driver gives the same error without a fork (seen in the lab), and the log does not show which it was."""
    failure = CUINIT + "CUDA_ERROR_NOT_INITIALIZED: initialization error\n"
    without_gpu, with_gpu = make_report(failure), make_report(GPU + failure)
    assert (without_gpu.gpu_registered, with_gpu.gpu_registered) == (False, True)
    for report in (without_gpu, with_gpu):
        assert report.cause is Cause.DRIVER_INIT_UNKNOWN
        assert report.root_finding is not None
        assert "forked" in report.root_finding.explanation


def test_library_of_a_truncated_line_is_named() -> None:
    log = (
        TIMESTAMP
        + "W "
        + DSO_LOADER
        + "Could not load dynamic library 'libcudart.so.10.1'; dlerror: libcudart.so.10.1: cannot open shared object file\n"
        + TIMESTAMP
        + "W "
        + DSO_LOADER
        + "Could not load dynamic library 'libcufft.so.10'; dl"
    )
    assert make_report(log).missing_sonames == ("libcudart.so.10.1", "libcufft.so.10")


@pytest.mark.parametrize(
    ("line", "registered"),
    [
        (
            "W tf_gpu_runtime_wrappers.cc:40] 'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'",
            True,
        ),
        (
            "InternalError: CUDA runtime implicit initialization on GPU:0 failed. Status: device kernel image is invalid",
            None,
        ),
        (
            "InternalError: cudaSetDevice() on GPU:0 failed. Status: CUDA-capable device(s) is/are busy or unavailable",
            False,
        ),
    ],
)
def test_failed_call_shows_whether_a_gpu_was_registered(line: str, registered: bool | None) -> None:
    assert make_report(TIMESTAMP + line + "\n").gpu_registered is registered
