# ruff: noqa: E501 - lines of logs are long
"""Errors of other frameworks are called theirs, also beside messages of TensorFlow."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.render.log import render_log

COMPAT = Compat.load()
TORCH_FRAME = (
    '  File "/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py", line 456, in _conv_forward\n'
)
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
MISSING_LIBRARY = "ImportError: libcublas.so.11: cannot open shared object file: No such file or directory\n"
CREATED = "I0000 00:00:1712000000.000001    1001 gpu_device.cc:2019] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 13775 MB memory:  -> device: 0, name: Tesla T4, pci bus id: 0000:00:04.0, compute capability: 7.5\n"
TENSORFLOW_TRACEBACK = """\
Traceback (most recent call last):
  File "/venv/lib/python3.6/site-packages/tensorflow/__init__.py", line 24, in <module>
    from tensorflow.python import pywrap_tensorflow
"""
FRAMEWORK_ERRORS = {
    "PyTorch": f"Traceback (most recent call last):\n{TORCH_FRAME}    return F.conv2d(input, weight)\n{NO_KERNEL}",
    "JAX": "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.\n",
    "ONNX Runtime": "[E:onnxruntime:Default, provider_bridge_ort.cc:1744 TryGetProviderInfo_CUDA] [ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object file: No such file or directory\n",
    "CuPy": f"Failed to import CuPy.\n\nOriginal error:\n  {MISSING_LIBRARY}",
    "Numba": f'  File "/venv/lib/python3.11/site-packages/numba/cuda/cudadrv/libs.py", line 60, in open_cudalib\n    return ctypes.CDLL(path)\n{MISSING_LIBRARY}',
    "PaddlePaddle": f'  File "/venv/lib/python3.9/site-packages/paddle/base/core.py", line 274, in <module>\n    from . import libpaddle\n{MISSING_LIBRARY}',
}


def diagnose(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT, "log.txt")


@pytest.mark.parametrize("name", FRAMEWORK_ERRORS)
def test_error_of_another_framework_is_called_so(name: str) -> None:
    report = diagnose(FRAMEWORK_ERRORS[name])
    assert report.cause is Cause.INCONCLUSIVE
    assert report.headline == f"This is an error of {name}, not of TensorFlow."
    screen = render_log(report, width=100)
    for claim in ("TensorFlow did not use", "TensorFlow may not", "tfdoctor fix", "tensorflow[and-cuda]"):
        assert claim not in screen


@pytest.mark.parametrize("name", FRAMEWORK_ERRORS)
def test_error_beside_a_healthy_tensorflow(name: str) -> None:
    for text in (CREATED + FRAMEWORK_ERRORS[name], FRAMEWORK_ERRORS[name] + CREATED):
        report = diagnose(text)
        assert report.cause is Cause.HEALTHY
        assert name in {process.label for process in report.processes}
        assert any(f"is one of {name}" in finding.explanation for finding in report.findings)


@pytest.mark.parametrize("name", FRAMEWORK_ERRORS)
def test_error_of_tensorflow_stays_its_own(name: str) -> None:
    """A traceback of TensorFlow above the error, or its name in it, decides."""
    report = diagnose(
        FRAMEWORK_ERRORS[name] + TENSORFLOW_TRACEBACK + MISSING_LIBRARY.replace(".so.11", ".so.9.0")
    )
    assert report.cause is Cause.IMPORT_MISSING_CUDA_LIB
    assert report.missing_sonames == ("libcublas.so.9.0",)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{TORCH_FRAME}RuntimeError: No CUDA GPUs are available\n", Cause.NO_DEVICE),
        (f"{TORCH_FRAME}RuntimeError: Found no NVIDIA driver on your system.\n", Cause.NO_DRIVER),
        (
            f"{TORCH_FRAME}RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n",
            Cause.DRIVER_TOO_OLD,
        ),
        (
            "numba.cuda.cudadrv.driver.CudaAPIError: [999] CUDA driver version is insufficient for CUDA runtime version\n",
            Cause.DRIVER_TOO_OLD,
        ),
    ],
)
def test_fault_of_the_machine_concerns_every_framework(text: str, cause: Cause) -> None:
    report = diagnose(text)
    assert report.cause is cause
    assert report.headline.startswith(("PyTorch: ", "Numba: "))
    assert "TensorFlow did not use" not in report.headline


def test_memory_that_tensorflow_took() -> None:
    text = f"{CREATED}{TORCH_FRAME}torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB.\n"
    assert "TF_FORCE_GPU_ALLOW_GROWTH" in render_log(diagnose(text))
