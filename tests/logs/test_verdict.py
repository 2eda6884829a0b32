# ruff: noqa: E501 - lines of logs are long
"""The root cause of a log: small logs of each kind and era, and the corpus of real logs if it is present."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tfdoctor.logs
from tfdoctor.compat import Compat
from tfdoctor.core.causes.codes import MISLEADING
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.rules import ALL_RULES

COMPAT = Compat.load()
DATA = Path(__file__).parent / "data"
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "logs"

TIME = "2020-05-01 10:00:00.000001: "
DSO_LOADER = "tensorflow/stream_executor/platform/default/dso_loader.cc:55] "
CREATED = (
    TIME + "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1247] Created TensorFlow device "
    "(/job:localhost/replica:0/task:0/device:GPU:0 with {mb} MB memory) -> physical GPU (device: 0, name: {name}, "
    "pci bus id: 0000:01:00.0, compute capability: {cc})\n"
)
GPU = CREATED.format(mb=7000, name="GeForce GTX 1080", cc="6.1")
CUINIT = TIME + "E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: "
MISSING = (
    TIME
    + "W "
    + DSO_LOADER
    + "Could not load dynamic library '{0}'; dlerror: {1}: cannot open shared object file{2}\n"
)
SKIPPED = "Cannot dlopen some GPU libraries.\nSkipping registering GPU devices...\n"


def make_missing(*names: str, path: str = "") -> str:
    tail = f": No such file or directory; LD_LIBRARY_PATH: {path}" if path else ""
    return "".join(MISSING.format(name, name, tail) for name in names)


def make_opened(*names: str) -> str:
    return "".join(f"{TIME}I {DSO_LOADER}Successfully opened dynamic library {name}\n" for name in names)


PRIVILEGES = (
    TIME
    + "E tensorflow/core/profiler/internal/gpu/cupti_tracer.cc:1441] function cupti_interface_->Subscribe( "
    "&subscriber_, (CUpti_CallbackFunc)ApiCallback, this)failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\n"
)
NO_ATTRIBUTE = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 4, in <module>\n    tf.x\n'
    "AttributeError: module 'tensorflow' has no attribute '{0}'\n"
)
CUDA101 = ("libcudart.so.10.1", "libcublas.so.10", "libcufft.so.10", "libcusolver.so.10", "libcusparse.so.10")

CASES: list[tuple[str, str, str]] = [
    ("healthy", "healthy", GPU),
    (
        "healthy with a card left out",
        "healthy",
        GPU
        + "Ignoring visible gpu device (device: 1, name: GT 610, pci bus id: 0000:02:00.0) with Cuda compute capability 2.1. The minimum required Cuda capability is 3.5.\n",
    ),
    ("healthy without TensorRT", "healthy", make_missing("libnvinfer.so.6") + GPU),
    (
        "healthy, memory was tight",
        "healthy",
        GPU
        + "W bfc_allocator.cc:243] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.16GiB. The caller indicates that this is not a failure, but\n",
    ),
    (
        "a card that shares the system's memory has little left",
        "oom",
        CREATED.format(mb=161, name="NVIDIA Tegra X1", cc="5.3")
        + "W bfc_allocator.cc:431] Allocator (GPU_0_bfc) ran out of memory trying to allocate 27.85MiB (rounded to 29203200)requested by op Send\n",
    ),
    ("healthy after a first try", "healthy", make_missing(*CUDA101) + SKIPPED + make_opened(*CUDA101) + GPU),
    ("ready without a session", "healthy", make_opened("libcuda.so.1", *CUDA101, "libcudnn.so.7")),
    (
        "a parameter server",
        "healthy",
        GPU + "Initialize GrpcChannelCache for job ps -> {0 -> h:1}\n" + CUINIT + "CUDA_ERROR_NO_DEVICE\n",
    ),
    ("nothing", "inconclusive", "hello\n"),
    ("a folder that an uninstall left", "damaged-file", NO_ATTRIBUTE.format("__version__")),
    ("the same, asked for its devices", "damaged-file", NO_ATTRIBUTE.format("config")),
    (
        "a program that is called tensorflow.py",
        "shadowed-module",
        (
            'Traceback (most recent call last):\n  File "/w/tensorflow.py", line 1, in <module>\n    import tensorflow as tf\n'
            '  File "/w/tensorflow.py", line 2, in <module>\n    s = tf.constant(1)\n        ^^^^^^^^^^^\n'
            "AttributeError: partially initialized module 'tensorflow' has no attribute 'constant' (most likely due to a "
            "circular import)\n"
        ),
    ),
    (
        "half of TensorFlow, asked by its own import",
        "shadowed-module",
        "AttributeError: partially initialized module 'tensorflow' has no attribute 'compat' (most likely due to a circular import)\n",
    ),
    ("a program for TensorFlow 1", "inconclusive", NO_ATTRIBUTE.format("Session")),
    (
        "a program for TensorFlow 1 without a driver",
        "no-driver",
        CUINIT + "UNKNOWN ERROR (303)\n" + NO_ATTRIBUTE.format("placeholder"),
    ),
    ("a program for TensorFlow 1 on a GPU", "healthy", GPU + NO_ATTRIBUTE.format("contrib")),
    (
        "a program for TensorFlow 2 under 1.13",
        "inconclusive",
        "tensorflow version: 1.13.2\n" + NO_ATTRIBUTE.format("config"),
    ),
    (
        "two packages over each other lack names",
        "both-packages",
        "tensorflow==2.0.0\ntensorflow-gpu==2.0.0\n" + NO_ATTRIBUTE.format("compat"),
    ),
    (
        "both packages, of which one overwrites the other",
        "both-packages",
        "tensorflow==2.0.0\ntensorflow-gpu==2.0.0\n",
    ),
    (
        "both packages that do not overwrite each other",
        "inconclusive",
        "tensorflow==2.1.0\ntensorflow-gpu==2.1.0\n",
    ),
    (
        "both packages, and TensorFlow runs",
        "inconclusive",
        "tensorflow==2.0.0\ntensorflow-gpu==2.0.0\n" + make_opened("libcudart.so.10.0"),
    ),
    (
        "both packages, pip freeze",
        "both-packages",
        "Num GPUs Available:  0\ntensorflow==2.0.0\ntensorflow-estimator==2.0.1\ntensorflow-gpu==2.0.0\n",
    ),
    (
        "both packages, pip show",
        "both-packages",
        "AttributeError: module 'tensorflow' has no attribute 'config'\nName: tensorflow\nVersion: 1.8.0\n---\nName: tensorflow-gpu\nVersion: 1.3.0\n",
    ),
    (
        "both packages, and a GPU",
        "healthy",
        "tensorflow==2.0.0\ntensorflow-gpu==2.0.0\n" + GPU,
    ),
    (
        "conda's two names of one package",
        "cpu-only-build",
        "Num GPUs Available:  0\ntensorflow     2.3.0  mkl_py37h04bc1aa_0\ntensorflow-base  2.3.0  mkl_py37h936c3e2_0\n",
    ),
    (
        "nvidia-smi knows why there is no device",
        "no-driver",
        CUINIT
        + "CUDA_ERROR_NO_DEVICE\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
    ),
    (
        "GEMM fails on a card that is newer than CUDA 10.0, before a device line",
        "gpu-too-new",
        (
            "TensorFlow version: 1.14.0\nname: A100-SXM4-40GB major: 8 minor: 0 memoryClockRate(GHz): 1.41\n"
            "InternalError: Blas GEMM launch failed : a.shape=(32, 784), b.shape=(784, 512), m=32, n=512, k=784\n"
        ),
    ),
    (
        "GEMM fails on a card that CUDA 10.0 knows",
        "cublas-init-failed",
        (
            "TensorFlow version: 1.14.0\nname: Tesla T4 major: 7 minor: 5 memoryClockRate(GHz): 1.59\n"
            "InternalError: Blas GEMM launch failed : a.shape=(32, 784), b.shape=(784, 512), m=32, n=512, k=784\n"
        ),
    ),
    (
        "ROCm without a device",
        "no-device",
        "E rocm_driver.cc:1032] could not retrieve ROCM device count: HIP_ERROR_NoDevice\n",
    ),
    (
        "ROCm, a card it has no code for",
        "gpu-too-new",
        '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"\n',
    ),
    ("ROCm, an old card", "gpu-too-old", "hipErrorNoBinaryForGpu: x\n  Name:                    gfx803  \n"),
    (
        "cuDNN of two versions",
        "cudnn-version-mismatch",
        "Could not load library libcudnn_cnn_train.so.8. Error: /x/libcudnn_ops_train.so.8: symbol _Z2x, version libcudnn_ops_infer.so.8 not defined in file libcudnn_ops_infer.so.8 with link time reference\n",
    ),
    (
        "busy, newer words",
        "gpu-busy-other-process",
        "cudaSetDevice() on GPU:0 failed. Status: CUDA-capable device(s) is/are busy or unavailable\n",
    ),
    (
        "numpy, another way",
        "numpy-abi",
        "ModuleNotFoundError: No module named 'numpy.core._multiarray_umath'\n",
    ),
    (
        "ptxas",
        "libdevice-or-ptxas-missing",
        "OP_REQUIRES failed at xla_ops.cc:489 : Not found: ./bin/ptxas not found\n",
    ),
    (
        "the head of the line is lost",
        "cudnn-version-mismatch",
        "ibrary: 7.4.1 but source was compiled with: 7.6.4.  CuDNN library major\n",
    ),
    ("no driver", "no-driver", make_missing("libcuda.so.1") + CUINIT + "UNKNOWN ERROR (303)\n"),
    (
        "no driver, old",
        "no-driver",
        CUINIT + "CUDA_ERROR_UNKNOWN\nkernel driver does not appear to be running on this host (h)\n",
    ),
    ("no device", "no-device", CUINIT + "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"),
    ("ray", "hidden-by-env", "(pid=7) " + CUINIT + "CUDA_ERROR_NO_DEVICE\n"),
    ("hidden", "hidden-by-env", 'export CUDA_VISIBLE_DEVICES=""\n' + CUINIT + "CUDA_ERROR_NO_DEVICE\n"),
    (
        "hidden, 2.21",
        "hidden-by-env",
        'I0000 00:00:1775118342.960484  222489 cuda_diagnostics.cc:160] env: CUDA_VISIBLE_DEVICES="-1"\n'
        + CUINIT
        + "INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE\n",
    ),
    (
        "mismatch",
        "driver-lib-mismatch",
        CUINIT
        + "CUDA_ERROR_UNKNOWN\nkernel version 418.67.0 does not match DSO version 410.104.0 -- cannot\n",
    ),
    ("compat", "compat-not-supported", CUINIT + "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: forward\n"),
    ("unknown", "driver-init-unknown", CUINIT + "CUDA_ERROR_UNKNOWN: unknown error\n"),
    ("stub", "stub-libcuda", CUINIT + "UNKNOWN ERROR (34)\n"),
    (
        "driver too old",
        "driver-too-old",
        "cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version\n",
    ),
    ("all missing", "libs-not-installed", make_missing(*CUDA101) + SKIPPED),
    (
        "another CUDA on the path",
        "libs-wrong-version",
        make_missing(*CUDA101, path="/usr/local/cuda-9.0/lib64") + SKIPPED,
    ),
    (
        "some of the same CUDA",
        "libs-not-on-path",
        make_opened(CUDA101[0]) + make_missing(*CUDA101[1:], path="/usr/local/cuda-10.1/lib64") + SKIPPED,
    ),
    (
        "cuDNN, cut off",
        "damaged-file",
        make_opened(*CUDA101)
        + MISSING.format("libcudnn.so.7", "x", "").replace(
            "x: cannot open shared object file", "/x/libcudnn.so.7: file too short"
        )
        + SKIPPED,
    ),
    (
        "libraries of somebody else",
        "not-permitted",
        "".join(MISSING.format(name, name, ": Permission denied") for name in CUDA101) + SKIPPED,
    ),
    (
        "one of somebody else, the others nowhere",
        "libs-not-installed",
        MISSING.format(CUDA101[0], CUDA101[0], ": Permission denied") + make_missing(*CUDA101[1:]) + SKIPPED,
    ),
    ("cuDNN alone", "cudnn-missing", make_opened(*CUDA101) + make_missing("libcudnn.so.7") + SKIPPED),
    ("transitive", "libs-transitive", MISSING.format("libcudnn.so.7", "libcublas.so.10", "") + SKIPPED),
    (
        "unlisted",
        "libs-unlisted",
        "I tensorflow/tsl/cuda/cudart_stub.cc:28] Could not find cuda drivers on your machine, GPU will not be used.\n"
        + SKIPPED,
    ),
    (
        "memory of JAX beside it",
        "libs-unlisted",
        SKIPPED
        + "E0523 23:12:25.907730   21880 pjrt_stream_executor_client.cc:2826] failed: RESOURCE_EXHAUSTED: Out of memory\n",
    ),
    (
        "import",
        "import-missing-cuda-lib",
        "ImportError: libcublas.so.9.0: cannot open shared object file: No such file or directory\n",
    ),
    (
        "import, Windows",
        "import-missing-cuda-lib",
        "OSError: [WinError 126] x\nImportError: Could not find 'cudart64_90.dll'. TensorFlow requires that\n",
    ),
    (
        "import, driver's",
        "libs-transitive",
        "ImportError: libnvidia-fatbinaryloader.so.384.90: cannot open shared object file\n",
    ),
    (
        "old format",
        "cudnn-missing",
        "I tensorflow/stream_executor/dso_loader.cc:119] Couldn't open CUDA library libcudnn.so. LD_LIBRARY_PATH: /usr/local/cuda/lib64\n",
    ),
    (
        "runtime DLL",
        "msvc-runtime-missing",
        "ImportError: Could not find the DLL(s) 'msvcp140_1.dll'. TensorFlow requires\n",
    ),
    (
        "nameless DLL",
        "msvc-runtime-missing",
        "ImportError: DLL load failed: The specified module could not be found.\n",
    ),
    ("no AVX", "illegal-instruction-avx", "Illegal instruction (core dumped)\n"),
    (
        "DLL initialization",
        "msvc-runtime-missing",
        "ImportError: DLL load failed while importing _x: A dynamic link library (DLL) initialization routine failed.\n",
    ),
    (
        "glibc",
        "glibc-too-old",
        "ImportError: /lib/libm.so.6: version `GLIBC_2.23' not found (required by x)\n",
    ),
    ("libstdc++", "libstdcxx-too-old", "ImportError: libstdc++.so.6: version `CXXABI_1.3.8' not found\n"),
    ("numpy", "numpy-abi", "A module that was compiled using NumPy 1.x cannot be run in\n"),
    ("protobuf", "protobuf-conflict", "TypeError: Descriptors cannot not be created directly.\n"),
    ("pip", "no-matching-wheel", "ERROR: No matching distribution found for tensorflow-gpu==2.4.1\n"),
    (
        "native Windows",
        "windows-native-unsupported",
        "TensorFlow GPU support is not available on native Windows for TensorFlow >= 2.11.\n",
    ),
    (
        "below the floor",
        "gpu-too-old",
        "Ignoring visible gpu device (device: 0, name: GTX 550 Ti, pci bus id: 0000:01:00.0) with Cuda compute capability 2.1. The minimum required Cuda capability is 3.5.\n",
    ),
    (
        "no image",
        "gpu-too-old",
        "RuntimeError: CUDA runtime implicit initialization on GPU:0 failed. Status: device kernel image is invalid\n",
    ),
    (
        "from PTX",
        "gpu-too-new",
        "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0.\n",
    ),
    (
        "Ampere with CUDA 10.1",
        "gpu-too-new",
        make_opened(*CUDA101) + CREATED.format(mb=22000, name="GeForce RTX 3090", cc="8.6"),
    ),
    (
        "memory",
        "oom",
        GPU + "OOM when allocating tensor with shape[4608,512] on /device:GPU:0 by allocator GPU_0_bfc\n",
    ),
    (
        "busy",
        "gpu-busy-other-process",
        CREATED.format(mb=72, name="GeForce RTX 2060", cc="7.5")
        + "failed to allocate 72.19M (75694080 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY\n",
    ),
    (
        "cuDNN's version",
        "cudnn-version-mismatch",
        GPU + "Loaded runtime CuDNN library: 7.4.2 but source was compiled with: 7.6.0.\n",
    ),
    (
        "cuDNN's start",
        "cudnn-init-failed",
        GPU + "Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n",
    ),
    (
        "cuDNN not asked",
        "healthy",
        GPU + "Failed to determine cuDNN version (Note that this is expected): CUDNN_STATUS_INTERNAL_ERROR\n",
    ),
    ("cuBLAS", "cublas-init-failed", GPU + "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\n"),
    (
        "NCCL",
        "nccl-failure",
        GPU + "InternalError: NCCL: unhandled system error. Set NCCL_DEBUG=WARN for detail.\n",
    ),
    ("libdevice", "libdevice-or-ptxas-missing", GPU + "libdevice not found at ./libdevice.10.bc\n"),
    ("CUPTI", "cupti-missing", GPU + make_missing("libcupti.so.10.1")),
    ("CUPTI that only root may use", "cupti-missing", GPU + PRIVILEGES),
    ("XLA", "xla-gpu-only", '[name: "/device:CPU:0"\n, name: "/device:XLA_GPU:0"\n'),
    (
        "a cluster",
        "cluster-failure",
        GPU + "CreateSession still waiting for response from worker: /job:worker/replica:0/task:1\n",
    ),
    (
        "placement",
        "placement-error",
        GPU
        + "InvalidArgumentError: Cannot assign a device for operation MatMul: Could not satisfy explicit\n",
    ),
    ("CPU build", "cpu-only-build", ">>> tf.test.is_built_with_cuda()\nFalse\n"),
    (
        "engine",
        "no-nvidia-runtime",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n',
    ),
    (
        "requirement",
        "container-cuda-requirement",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8,\n",
    ),
    (
        "host's libraries",
        "container-driver-libs",
        r"caused \\\"error running hook: stderr: nvidia-container-cli: detection error: open failed: /usr/lib/libnvidia-tls.so.570.1: no such file\\\n\"",
    ),
    (
        "host's NVML",
        "driver-lib-mismatch",
        "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown\n",
    ),
    ("lost", "container-nvml-lost", "Failed to initialize NVML: Unknown Error\n"),
    (
        "container without GPUs",
        "container-no-gpu",
        "$ docker run -it tensorflow/tensorflow:latest-gpu\n"
        + make_missing("libcuda.so.1")
        + CUINIT
        + "UNKNOWN ERROR (303)\nno NVIDIA GPU device is present: /dev/nvidia0 does not exist\n",
    ),
    (
        "WSL",
        "wsl-libcuda",
        "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No such file\n",
    ),
]


def make_report(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT, "log.txt")


@pytest.mark.parametrize(("cause", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_log_has_its_root_cause(cause: str, text: str) -> None:
    report = make_report(text)
    assert report.cause.value == cause
    if cause not in ("healthy", "inconclusive"):
        assert report.root_finding is not None
        assert report.root_finding.evidence, "a cause without evidence"
        assert all(evidence.line for evidence in report.root_finding.evidence)
        assert report.root_finding.remedies
        assert report.root_finding.severity >= Severity.WARNING


IMPORT_CAUSES = (
    *("package-conflict", "shadowed-module", "damaged-file", "not-permitted"),
    *("python-unusable", "tensorflow-missing"),
)
"""Causes whose cases are in test_detectors_python_import.py."""


def list_causes_in_logs() -> set[str]:
    """Return the causes that a detector or a signature can give; the others come from `check` alone."""
    folder = Path(tfdoctor.logs.__file__).parent
    detectors = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    detected = {cause.value for cause in Cause if re.search(rf"Cause\.{cause.name}\b", detectors)}
    return detected | {name for signature in load_signatures().signatures for name in signature.causes}


def test_each_cause_that_a_log_can_show_has_a_case() -> None:
    possible = list_causes_in_logs()
    assert len(possible) > 40
    assert possible - {case[1] for case in CASES} <= {"nvml-missing", *IMPORT_CAUSES}


def test_missing_dependency_is_named() -> None:
    report = make_report(
        MISSING.format("libcudnn.so.7", "libcublas.so.10", "") + make_missing("libnvinfer.so.7")
    )
    assert report.missing_sonames == ("libcublas.so.10",)
    assert "tensorrt-missing" not in report.benign_codes
    assert make_report("TF-TRT Warning: Could not find TensorRT\n" + GPU).benign_codes == (
        "tensorrt-missing",
    )


def test_registered_device_is_parsed() -> None:
    (device,) = make_report(GPU).registered_devices
    assert (device.index, device.name, device.compute_capability) == (0, "GeForce GTX 1080", "6.1")
    assert (device.memory_mib, device.pci_bus_id) == (7000, "0000:01:00.0")


def test_easily_misread_line_is_explained() -> None:
    report = make_report('name: "/device:XLA_GPU:0"\n')
    assert any(finding.code == MISLEADING for finding in report.findings)


def test_undecided_causes_are_reported() -> None:
    report = make_report(make_missing(*CUDA101) + SKIPPED)
    assert Cause.LIBS_WRONG_VERSION in report.other_causes
    assert report.root_finding is not None
    assert "tfdoctor check" in report.root_finding.explanation


def test_codes_of_causes_are_those_of_the_rules() -> None:
    causes = {rule.code: rule.causes for rule in ALL_RULES}
    for cause in Cause:
        code = cause.data.finding_code
        assert code.startswith("TFD8") or cause in causes[code], (cause, code)
    assert not any(code.startswith("TFD8") for code in causes)


EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "truth.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_logs_of_real_tensorflow(name: str) -> None:
    """Logs of real releases on the stand-in driver (tests/lab), with the expected results."""
    expected = EXPECTED[name]
    report = make_report((DATA / name).read_text(encoding="utf-8"))
    assert list(report.missing_sonames) == expected["missing"]
    assert report.gpu_registered is expected["registered"]
    minor = tuple(int(part) for part in expected["tensorflow"].split(".")[:2])
    assert report.era is not None
    first, _, last = report.era.rstrip("+").partition("-")
    low, high = (tuple(int(part) for part in end.split(".")) for end in (first, last or first))
    assert low <= minor
    assert minor <= high or report.era.endswith("+")


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the real logs are not beside this checkout")
def test_corpus_accuracy() -> None:
    counts: Counter[str] = Counter()
    for folder in sorted(path for path in CORPUS.iterdir() if path.is_dir()):
        metadata = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        labels = metadata["labels"]
        report = diagnose_log([(folder / "log.txt").read_bytes()], COMPAT)
        counts["all"] += 1
        counts["strict"] += report.cause.value == labels["primary"]
        accepted = report.cause.value in (labels["primary"], *labels["acceptable"])
        counts["accepted"] += accepted
        counts["alarms"] += labels["primary"] == "healthy" and not accepted
        if labels["missing_libs"] or report.missing_sonames:
            counts["named"] += 1
            counts["libraries"] += sorted(labels["missing_libs"]) == sorted(report.missing_sonames)
    assert counts["accepted"] >= 0.96 * counts["all"]
    assert counts["strict"] >= 0.88 * counts["all"]
    assert counts["libraries"] >= 0.95 * counts["named"]
    assert counts["alarms"] == 0


@pytest.mark.parametrize(
    "error", ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ECC_UNCORRECTABLE"]
)
def test_aborted_kernel_is_not_healthy(error: str) -> None:
    line = f"{TIME}E cuda_event.cc:29] Error polling for event status: failed to query event: {error}: it failed\n"
    report = diagnose_log([(GPU + line).encode()], COMPAT)
    assert (report.cause, report.gpu_registered) == (Cause.INCONCLUSIVE, True)
    assert report.root_finding is not None
    assert "aborted" in report.summary
    assert diagnose_log([GPU.encode()], COMPAT).cause is Cause.HEALTHY


@pytest.mark.parametrize(
    ("log", "title"),
    [
        (NO_ATTRIBUTE.format("__version__"), "What is imported under the name tensorflow is not TensorFlow"),
        (NO_ATTRIBUTE.format("Session"), "The program asks for a name that TensorFlow 2 does not have"),
        (
            "tensorflow version: 1.13.2\n" + NO_ATTRIBUTE.format("config"),
            "The program asks for a name that this TensorFlow does not have yet",
        ),
    ],
)
def test_missing_attribute_is_explained(log: str, title: str) -> None:
    report = make_report(log)
    assert report.root_finding is not None
    assert report.root_finding.title == title
    assert report.root_finding.evidence[0].text.startswith("AttributeError")


@pytest.mark.parametrize(
    "error", ["ops.DataError: bad shape", "Segmentation fault (core dumped)", "ERROR: it failed"]
)
def test_unknown_error_is_quoted(error: str) -> None:
    report = make_report(f"ValueError: an earlier one\n{error}\nbye\n")
    assert report.cause is Cause.INCONCLUSIVE
    assert report.root_finding is not None
    assert [item.text for item in report.root_finding.evidence] == [error]
    assert "does not know the last error" in report.root_finding.explanation
    assert make_report(f"{error}\n{GPU}").cause is Cause.HEALTHY


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("error: externally-managed-environment", "pip installs nothing"),
        (
            (
                "ImportError: cannot import name 'Net' from partially initialized module 'models' (most likely due to a "
                "circular import) (/home/x/models.py)"
            ),
            "circular import",
        ),
    ],
)
def test_errors_of_python_are_named(line: str, title: str) -> None:
    root = diagnose_log([f"{line}\n".encode()], COMPAT).root_finding
    assert root is not None
    assert title in root.title
    assert root.remedies
