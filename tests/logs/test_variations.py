# ruff: noqa: E501 - lines of logs are long
"""Wordings beside those of the problems in `problems`: each class of message is recognized, and what is near it is not."""

from __future__ import annotations

import re

import pytest

from tfdoctor.compat import Compat
from tfdoctor.logs.reader import clean_text
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.render.log import render_log

COMPAT = Compat.load()
PLUGIN = "NotFoundError: dlopen(/x/lib/python3.11/site-packages/tensorflow-plugins/libmetal_plugin.dylib, 0x0006): "
FOUND = "ImportError: libcudart.so.9.0: cannot open shared object file: No such file or directory\n"
MISSING = (
    "2022-06-09 15:50:37.711160: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic "
    "library '{0}'; dlerror: {1}: cannot open shared object file: No such file or directory\n"
)
KERNEL = (
    "I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:193] kernel reported version is: {}\n"
    "I tensorflow/stream_executor/cuda/cuda_gpu_executor.cc:1066] failed to find libcuda.so on this system: Failed "
    "precondition: could not dlopen DSO: libcuda.so.1; dlerror: libnvidia-fatbinaryloader.so.390.48: cannot open shared "
    "object file: No such file or directory\n"
)
PIP = "ERROR: Could not find a version that satisfies the requirement {} (from versions: {})\nERROR: No matching distribution found for {}\n"
OTHER_PYTHONS = "ERROR: Ignored the following versions that require a different python version: 1.21.2 Requires-Python >=3.7,<3.11; 1.6.2 Requires-Python >=3.7,<3.10\n"
BLAS = "2021-03-24 19:51:27.096512: E tensorflow/stream_executor/cuda/cuda_blas.cc:428] failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\n"
IGNORED = "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1843] Ignoring visible gpu device (device: 1, name: Quadro K620, pci bus id: 0000:05:00.0, compute capability: 5.0) with core count: 3. The minimum required count is 8.\n"
NVML_OF_TOOLS = "nvidia-container-cli: initialization error: nvml error: insufficient permissions: unknown\n"
WINDOWS_MAMBA = "conda-forge/win-64       18.5MB\n"


def make_report(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT, "log.txt")


def render_flat(text: str) -> str:
    return " ".join(re.sub(r"\\\n\s*|[│]", " ", render_log(make_report(text), width=100)).split())


@pytest.mark.parametrize(
    ("cause", "log", "expected", "unexpected"),
    [
        (
            "package-conflict",
            PLUGIN + "symbol not found in flat namespace '_TF_AllocateOutput'",
            "--upgrade tensorflow-metal",
            "macOS 12",
        ),
        (
            "package-conflict",
            PLUGIN + "Library not loaded: @rpath/_pywrap_tensorflow_internal.so",
            "does not fit this TensorFlow",
            "CUDA",
        ),
        (
            "package-conflict",
            PLUGIN + "Symbol not found: (_OBJC_CLASS_$_MPSGraphRandomOpDescriptor)",
            "Update macOS",
            "--upgrade tensorflow-metal",
        ),
        (
            "package-conflict",
            PLUGIN.replace("libmetal_plugin.dylib", "libitex.dylib")
            + "symbol not found in flat namespace '_TF_Dim'",
            "plug-in's documentation",
            "tensorflow-metal",
        ),
        (
            "driver-lib-mismatch",
            KERNEL.format("384.130.0"),
            "libcuda is of driver 390.48 and needs libnvidia-fatbinaryloader.so.390.48",
            "No NVIDIA driver",
        ),
        (
            "libs-transitive",
            KERNEL.format("390.48.0"),
            "another library of the driver is not: libnvidia-fatbinaryloader.so.390.48",
            "different versions of the",
        ),
        (
            "driver-lib-mismatch",
            "kernel reported version is: 430.50.0\n"
            + MISSING.format("libcuda.so.1", "libnvidia-fatbinaryloader.so.418.87.00"),
            "Reinstall the driver",
            "docker run",
        ),
        ("no-driver", MISSING.format("libcuda.so.1", "libcuda.so.1"), "libcuda.so.1", "Reinstall"),
        (
            "container-driver-libs",
            "$ docker exec -it trainer bash\nfailed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (500)\n",
            "Docker Desktop to 4.31",
            "modprobe",
        ),
        (
            "driver-init-unknown",
            "failed call to cuInit: CUDA_ERROR_NOT_FOUND: named symbol not found\n",
            "CUDA_ERROR_NOT_FOUND",
            "Docker Desktop",
        ),
        (
            "no-matching-wheel",
            WINDOWS_MAMBA
            + "└─ tensorflow-gpu >=2.11  does not exist (perhaps a typo or a missing channel).\n",
            "channels of conda have no package of tensorflow-gpu >=2.11.*WSL 2",
            "has wheels for",
        ),
        (
            "no-matching-wheel",
            WINDOWS_MAMBA
            + "PackagesNotFoundError: The following packages are not available from current channels:\n  - tensorflow==2.12\n",
            r"py -3\.10 -m pip install",
            "sudo",
        ),
        (
            "no-matching-wheel",
            PIP.format(
                "tensorflow==2.3.1",
                "2.5.0rc0, 2.5.0, 2.5.1, 2.6.0, 2.6.1, 2.7.0rc1, 2.7.0",
                "tensorflow==2.3.1",
            ),
            r"2\.3\.1 has wheels for Python 3\.5 to 3\.8 only\. For this Python, there is tensorflow 2\.5\.0 to 2\.7\.0\..*recommend --tf 2\.3\.1",
            "may not have used",
        ),
        (
            "no-matching-wheel",
            PIP.format("tensorflow", "none", "tensorflow"),
            r"has wheels for Python 3\.\d+ to 3\.\d+ only.*Use Python 3\.\d+",
            "For this Python, there",
        ),
        (
            "no-matching-wheel",
            OTHER_PYTHONS
            + PIP.format("tensorflow-addons==0.17.1", "0.21.0, 0.22.0, 0.23.0", "tensorflow-addons==0.17.1"),
            r"no package of tensorflow-addons 0\.17\.1.*there is tensorflow-addons 0\.21\.0, 0\.22\.0 and 0\.23\.0\. This is Python 3\.11 or newer\..*take Python 3\.10 or older",
            "tfdoctor install|no wheel of that TensorFlow",
        ),
        (
            "no-matching-wheel",
            PIP.format("tf-models-official==2.4.0", "none", "tf-models-official==2.4.0"),
            "no package of tf-models-official",
            "tfdoctor install",
        ),
        (
            "import-missing-cuda-lib",
            "# github.com/tensorflow/tensorflow/tensorflow/go\n"
            + FOUND.replace("ImportError: ", "./server: error while loading shared libraries: "),
            "native library needs",
            "`import tensorflow`|pip install",
        ),
        ("import-missing-cuda-lib", FOUND, "`import tensorflow`", "native library"),
        (
            "libs-transitive",
            "Could not load library cudnn_ops_train64_8.dll. Error code 126\n",
            "zlibwapi",
            "CUDA of the release",
        ),
        (
            "cudnn-missing",
            "Could not load library cudnn_ops_infer64_8.dll. Error code 193\n",
            "zlibwapi",
            "modprobe",
        ),
        (
            "gpu-too-new",
            "I rented an H100 for this.\n" + BLAS + "TensorFlow version: 1.15.5\n",
            "tf1-py3",
            "ALLOW_GROWTH",
        ),
        (
            "cublas-init-failed",
            BLAS + "TensorFlow version: 1.15.5\n",
            "failed at work.*newer than this TensorFlow.*tf1-py3",
            "does not start",
        ),
        ("cublas-init-failed", BLAS + "TensorFlow version: 2.9.1\n", "failed at work", "RTX 30"),
        (
            "cublas-init-failed",
            "cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\n" + BLAS,
            "ALLOW_GROWTH",
            "failed at work",
        ),
        (
            "shadowed-module",
            "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n    import tensorflow as tf\n  File \"tensorflow.py\", line 3, in <module>\n    x = tf.constant(1)\nAttributeError: 'module' object has no attribute 'constant'\n",
            "Rename tensorflow.py",
            "may not",
        ),
        (
            "package-conflict",
            "tensorflow.python.framework.errors_impl.AlreadyExistsError: Another metric with the same name already exists.\n",
            "keras of the same minor version",
            "may not",
        ),
        (
            "inconclusive",
            "Cannot register 2 metrics with the same name: /tensorflow/core/bfc_allocator_delay\n",
            "does not say",
            "keras",
        ),
        (
            "tensorflow-missing",
            "Cell In[1], line 1\n----> 1 import tensorflow as tf\n\nModuleNotFoundError: No module named 'tensorflow'\n",
            "ipykernel install",
            "recommend",
        ),
        (
            "tensorflow-missing",
            "ModuleNotFoundError: No module named 'tensorflow'\n",
            "recommend",
            "ipykernel",
        ),
        (
            "inconclusive",
            "2020-06-01 10:00:00.000001: E tensorflow/core/grappler/optimizers/meta_optimizer.cc:563] remapper failed: Invalid argument: Mutation::Apply error: fanout 'x' exist for missing node 'y'.\n",
            "Harmless: An optimizer of graphs",
            "GPU failed",
        ),
        (
            "no-device",
            "2024-01-16 06:36:17.062953: I tensorflow/c/logging.cc:34] DirectML device enumeration: found 0 compatible adapters.\n[]\n",
            "o GPU is found by DirectML.*wsl.exe --update",
            "without GPU code|CUDA",
        ),
        (
            "xla-gpu-only",
            "InvalidArgumentError: Cannot assign a device for operation a: node a (defined at t.py:1) was explicitly assigned to /device:GPU:1 but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0, /job:localhost/replica:0/task:0/device:XLA_GPU:0 ].\n",
            "CUDA 10.0.*LD_LIBRARY_PATH",
            "set_soft_device_placement",
        ),
        (
            "placement-error",
            "InvalidArgumentError: 'visible_device_list' listed an invalid Device id '1' but visible device count is 1\n",
            "asks for GPU 1, and this process sees 1 of them.*local_rank",
            "allow_soft_placement",
        ),
        (
            "healthy",
            IGNORED + "gpu_device.cc:1858] Adding visible gpu devices: 0\n",
            "TF_MIN_GPU_MULTIPROCESSOR_COUNT=3",
            "too old",
        ),
        (
            "not-permitted",
            "Failed to initialize NVML: Insufficient Permissions\n",
            "group that owns them",
            "Install NVIDIA's driver|SELinux",
        ),
        ("not-permitted", NVML_OF_TOOLS, "label=disable", "Install NVIDIA's driver"),
        (
            "container-nvml-lost",
            "$ docker run --rm --gpus all nvidia/cuda:12.2.0-base nvidia-smi\nFailed to initialize NVML: Unknown Error\n",
            "just started.*no-cgroups",
            "has lost",
        ),
        (
            "container-nvml-lost",
            "$ docker exec trainer nvidia-smi\nFailed to initialize NVML: Unknown Error\n",
            "has lost its GPUs",
            "just started",
        ),
        (
            "cpu-only-build",
            "Xavier NX, L4T 32.7\n>>> tf.test.is_built_with_cuda()\nFalse\n",
            "JetPack",
            "tfdoctor install|and-cuda",
        ),
        (
            "cpu-only-build",
            ">>> tf.test.is_built_with_cuda()\nFalse\n>>> torch.cuda.is_available()\nTrue\n",
            r"tensorflow\[and-cuda\]",
            r"\d │ True|TensorFlow: TensorFlow|tfdoctor does not judge",
        ),
        (
            "nccl-failure",
            "node1:12:90 [0] NCCL INFO misc/socket.cc:46 -> 3\nnode1:12:90 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 172.17.0.1<40311> failed : Software caused connection abort\n",
            "NCCL_SOCKET_IFNAME",
            "shm-size",
        ),
        (
            "libs-not-on-path",
            "$ find / -name 'libcudart*'\n/usr/local/cuda-11.2/lib64/libcudart.so.11.0\n"
            + MISSING.format("libcudart.so.11.0", "libcudart.so.11.0"),
            r'LD_LIBRARY_PATH="/usr/local/cuda-11\.2/lib64\$',
            "not installed",
        ),
        (
            "libs-not-installed",
            "$ find / -name 'libcudart*'\n/usr/local/cuda-10.1/lib64/libcudart.so.10.1\n"
            + MISSING.format("libcudart.so.11.0", "libcudart.so.11.0"),
            "libcudart.so.11.0",
            "lists the libraries",
        ),
        (
            "libs-not-installed",
            "The missing libraries:\nlibcudart.so.11.0\n"
            + MISSING.format("libcudart.so.11.0", "libcudart.so.11.0"),
            "libcudart.so.11.0",
            "lists the libraries",
        ),
        (
            "package-conflict",
            "NotFoundError: /x/site-packages/tensorflow_io/python/ops/libtensorflow_io.so: undefined symbol: _ZN10tensorflow8OpKernel11TraceStringEPNS\n",
            "version of tensorflow-io that was built for your TensorFlow",
            "does not say",
        ),
        (
            "package-conflict",
            "NotFoundError: /x/site-packages/horovod/tensorflow/mpi_lib.cpython-37m-x86_64-linux-gnu.so: undefined symbol: _ZNK10tensorflow8OpKernel4nameEv\n",
            "HOROVOD_WITH_TENSORFLOW=1",
            "README",
        ),
        (
            "package-conflict",
            "NotFoundError: ./zero_out.so: undefined symbol: _ZTIN10tensorflow8OpKernelE\n",
            "must be compiled again",
            "horovod",
        ),
        (
            "inconclusive",
            "ImportError: /x/site-packages/torchvision/_C.so: undefined symbol: _ZN3c106detail23torchInternalAssertFailE\n",
            "does not say",
            "different release of TensorFlow",
        ),
        (
            "illegal-instruction-avx",
            "Model name: QEMU Virtual CPU version 2.5+\nIllegal instruction (core dumped)\n",
            "CPU type `host`",
            "without AVX.*CPU type",
        ),
        (
            "illegal-instruction-avx",
            "flags : fpu sse4_2 avx2 avx hypervisor\nIllegal instruction (core dumped)\n",
            "lacks an instruction set",
            "CPU type",
        ),
        (
            "libstdcxx-too-old",
            "ImportError: /usr/lib64/libstdc++.so.6: version `GLIBCXX_3.4.21' not found (required by /home/user/miniconda3/envs/t/lib/python3.7/site-packages/tensorflow/libtensorflow_framework.so.2)\n",
            r'LD_LIBRARY_PATH="/home/user/miniconda3/envs/t/lib\$',
            "does not say",
        ),
        (
            "libdevice-or-ptxas-missing",
            "W Couldn't get ptxas version string: INTERNAL: Couldn't invoke ptxas --version\nFAILED_PRECONDITION: Couldn't find a suitable version of ptxas. The minimum version required is 11.8.\n",
            "nvidia-cuda-nvcc-cu11 or -cu12",
            "Harmless|pip install nvidia-cuda-nvcc-cu12",
        ),
        (
            "driver-too-old",
            "$ docker run --gpus all -it tensorflow/tensorflow:2.9.1-gpu-jupyter bash\ncudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version\n",
            "450.80.02 or newer",
            "does not say",
        ),
        (
            "numpy-abi",
            '  File "/x/site-packages/tensorflow/__init__.py", line 37, in <module>\nRuntimeError: module compiled against API version 0xe but this version of numpy is 0xd\n',
            "than TensorFlow was compiled for",
            "not in its traceback",
        ),
    ],
)
def test_variation(cause: str, log: str, expected: str, unexpected: str) -> None:
    screen = render_flat(log)
    assert make_report(log).cause.value == cause, screen
    assert re.search(expected, screen), screen
    assert not re.search(unexpected, screen), screen


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (r"C:\Users\u\envs\tf\lib\site-packages\google\protobuf\__init__.py", None),
        (r"File ~\anaconda3\Lib\site-packages\keras\_tf.py", None),
        (r"tensorflow/core/common\_runtime/gpu\_device.cc", "tensorflow/core/common_runtime/gpu_device.cc"),
        (r"dlerror: \"C:\\cuda\\bin\\_x.dll\" not found", r'dlerror: "C:\\cuda\\bin\\_x.dll" not found'),
    ],
)
def test_escapes_are_removed_and_paths_of_windows_stay(raw: str, text: str | None) -> None:
    assert clean_text(raw) == (text or raw)


def test_library_that_dlerror_names_stays_in_the_quoted_line() -> None:
    assert "'libcusolver.so.11'; dlerror: libnvJitLink.so.12" in render_flat(
        MISSING.format("libcusolver.so.11", "libnvJitLink.so.12")
    )
    assert "'libcudnn.so.8'; …" in render_flat(MISSING.format("libcudnn.so.8", "libcudnn.so.8"))


def test_output_of_an_installer_is_no_process() -> None:
    log = "$ poetry install\n  • Installing tensorflow (2.4.1)\n$ poetry run python\nPython 3.8.8 (default, Apr 13 2021)\n"
    assert make_report(log + MISSING.format("libcudart.so.11.0", "libcudart.so.11.0")).processes == ()


@pytest.mark.parametrize(
    ("needs", "python"),
    [
        (">=3.7,<3.11; 1.6.2 Requires-Python >=3.7, <3.10", "3.11"),
        (">=3.7,<3.9; 2.0.0 Requires-Python >=3.10", "3.9"),
        (">=3.7,<3.11; 1.22.0 Requires-Python >=3.8", None),
        (">=3.8", None),
    ],
)
def test_python_is_at_least_the_limit_of_the_versions_left_out(needs: str, python: str | None) -> None:
    """A version for Python 3.7 to 3.10 is also left out for Python 3.6; versions for 3.8 and newer show that."""
    log = f"ERROR: Ignored the following versions that require a different python version: 1.0 Requires-Python {needs}\n"
    screen = render_flat(log + PIP.format("tensorflow-text==2.4.0", "none", "tensorflow-text==2.4.0"))
    assert re.findall(r"This is Python (\S+) or newer", screen) == ([python] if python else [])


@pytest.mark.parametrize(
    ("path", "env"),
    [
        ("~/anaconda3/envs/tf", "$HOME/anaconda3/envs/tf"),
        ("/opt/anaconda/3-2018.12/envs/tf", "/opt/anaconda/3-2018.12/envs/tf"),
        ("~/anaconda3/envs/tf\n/home/user/anaconda3/envs/tf", "/home/user/anaconda3/envs/tf"),
    ],
)
def test_environment_in_a_command_is_the_one_of_the_log(path: str, env: str) -> None:
    listing = "\n".join(f"$ ls {line}/lib" for line in path.splitlines())
    screen = render_flat(
        f"{listing}\nlibcudart.so.11.0\n" + MISSING.format("libcudart.so.11.0", "libcudart.so.11.0")
    )
    assert f'export LD_LIBRARY_PATH="{env}/lib$' in screen
