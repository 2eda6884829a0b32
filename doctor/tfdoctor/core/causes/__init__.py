"""The root causes, which all commands use. Each is defined by one `CauseData`.

An entry has:

* the cause's word and meaning;
* the title and the code of the finding about a log that shows the cause;
* whether TensorFlow still registers a GPU;
* the causes that follow from it;
* the remedies if only a log is available.

To add a cause, add an entry here (see docs/maintaining.md). Details of a check's findings belong in the check.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from tfdoctor.core.causes.entry import CauseData, CommonRemedy, Severity
from tfdoctor.core.causes.steps import Remedy

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Cause", "CauseData", "CommonRemedy", "Severity"]

_NODES = "--device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm"
"""Options of `docker run` that name the GPU's device nodes."""


class Cause(str, enum.Enum):
    """A root cause. Every command uses the same word for it."""

    _value_: str
    data: CauseData

    def __new__(cls, data: Any) -> Self:
        """Create a member from its CauseData.

        `Cause("oom")` returns an existing member, and raises ValueError if there is no such word.
        """
        cause = str.__new__(cls, data.word)
        cause._value_ = data.word
        cause.data = data
        return cause

    @property
    def consequences(self) -> frozenset[Cause]:
        """The causes whose findings are only consequences of this one, or are fixed together with it."""
        return frozenset(Cause(word) for word in self.data.consequence_words)

    HEALTHY = CauseData(
        "healthy",
        "Found nothing that keeps TensorFlow from using the GPU.",
        finding_title="TensorFlow registered the GPU, and nothing in this log contradicts that",
        finding_code="TFD815",
        severity=Severity.INFO,
        log_remedies=(),
    )
    INCONCLUSIVE = CauseData(
        "inconclusive",
        "The available evidence does not show what is wrong.",
        finding_title="This log does not say whether TensorFlow can use a GPU",
        finding_code="TFD814",
        severity=Severity.WARNING,
        log_remedies=(CommonRemedy.CHECK, CommonRemedy.RUN),
    )
    NO_DRIVER = CauseData(
        "no-driver",
        "The driver's library (libcuda.so.1, on Windows nvcuda.dll) cannot be opened, or there is no "
        "kernel driver behind it "
        "(CUDA error 303).",
        finding_title="No NVIDIA driver was available where this ran",
        finding_code="TFD101",
        allows_registration=False,
        refusal_rank=1,
        consequence_words=("no-device", "nvml-missing", "gpu-too-old", "gpu-too-new"),
        log_remedies=(
            Remedy(
                "Install NVIDIA's driver, then restart. On that machine, this prints the commands:",
                ("tfdoctor check",),
                changes_system=True,
            ),
            Remedy(
                "In a container, start it with GPUs; on a cluster, run on a node that has some.",
                ("docker run --rm --gpus all IMAGE nvidia-smi",),
            ),
        ),
    )
    NO_DEVICE = CauseData(
        "no-device",
        "The driver's library answers, but shows no GPU.",
        finding_title="The driver answers but shows no GPU",
        refusal_rank=2,
        finding_code="TFD102",
        allows_registration=False,
        log_remedies=(
            Remedy("Check whether the driver shows a card at all.", ("nvidia-smi -L",)),
            CommonRemedy.CHECK,
        ),
    )
    HIDDEN_BY_ENV = CauseData(
        "hidden-by-env",
        "CUDA_VISIBLE_DEVICES, or a scheduler that sets it, hides the GPUs from the program.",
        finding_title="CUDA_VISIBLE_DEVICES hides the GPUs from this process",
        finding_code="TFD601",
        allows_registration=False,
        log_remedies=Remedy(
            "Remove the variable, or ask the scheduler (Ray: num_gpus) for a GPU.",
            ("unset CUDA_VISIBLE_DEVICES",),
        ),
    )
    DRIVER_TOO_OLD = CauseData(
        "driver-too-old",
        "The driver is too old for the CUDA that this TensorFlow was built with.",
        finding_title="The NVIDIA driver is too old for this TensorFlow's CUDA or cuDNN",
        finding_code="TFD103",
        refusal_rank=6,
        log_remedies=(CommonRemedy.DRIVER,),
    )
    DRIVER_LIB_MISMATCH = CauseData(
        "driver-lib-mismatch",
        "The kernel module and the driver's libraries have different versions: an update without a "
        "reboot (CUDA error "
        "803).",
        finding_title="The NVIDIA kernel module and the driver's libraries have different versions",
        finding_code="TFD104",
        allows_registration=False,
        consequence_words=("no-device", "driver-init-unknown", "nvml-missing"),
        log_remedies=(
            CommonRemedy.RESTART,
            Remedy("In a container or an image: remove the driver's libraries that it brings itself."),
        ),
    )
    DRIVER_INIT_UNKNOWN = CauseData(
        "driver-init-unknown",
        "The driver's library opens, but initializing it or querying a device fails with CUDA_ERROR_UNKNOWN (999).",
        finding_title="The driver is installed but fails with an unknown error",
        finding_code="TFD105",
        allows_registration=False,
        log_remedies=(CommonRemedy.DRIVER_START, CommonRemedy.CHECK),
    )
    COMPAT_NOT_SUPPORTED = CauseData(
        "compat-not-supported",
        "A forward-compatibility libcuda is in use on a card or driver that does not support it (CUDA error 804).",
        finding_title="A forward-compatibility libcuda does not fit this card or driver",
        finding_code="TFD106",
        allows_registration=False,
        log_remedies=(
            Remedy(
                "Take the folder of the cuda-compat package off LD_LIBRARY_PATH, or remove the package. This names the folder.",
                ("tfdoctor check",),
            ),
            CommonRemedy.RESTART,
        ),
    )
    STUB_LIBCUDA = CauseData(
        "stub-libcuda",
        "The CUDA toolkit's stub, which is for linking only, is found in place of the driver's libcuda (CUDA error "
        "34, or -1 before CUDA 11).",
        finding_title="A stub is loaded in place of the driver's libcuda",
        finding_code="TFD107",
        allows_registration=False,
        consequence_words=("no-driver", "driver-init-unknown", "nvml-missing"),
        log_remedies=(CommonRemedy.STUB, CommonRemedy.CHECK),
    )
    WSL_LIBCUDA = CauseData(
        "wsl-libcuda",
        "Under WSL, the libcuda.so.1 that is found is not the one in /usr/lib/wsl/lib.",
        finding_title="Under WSL, cuDNN does not find the driver's libcuda.so",
        finding_code="TFD108",
        consequence_words=("no-driver", "nvml-missing"),
        log_remedies=Remedy(
            "Put WSL's own driver folder first.",
            ('export LD_LIBRARY_PATH="/usr/lib/wsl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',),
        ),
    )
    NVML_MISSING = CauseData(
        "nvml-missing",
        "libnvidia-ml.so.1 cannot be opened, and TensorFlow from 2.21 on registers no GPU without it.",
        finding_title="libnvidia-ml.so.1 cannot be opened",
        finding_code="TFD109",
        allows_registration=False,
        log_remedies=(CommonRemedy.CHECK, CommonRemedy.UTILITIES),
    )
    LIBS_WRONG_VERSION = CauseData(
        "libs-wrong-version",
        "CUDA or cuDNN is installed, in a different version than the one whose file names this TensorFlow opens.",
        finding_title="A different CUDA version is installed than this TensorFlow opens",
        finding_code="TFD202",
        allows_registration=False,
        consequence_words=("libs-not-installed", "cudnn-missing", "cudnn-version-mismatch"),
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBS_NOT_INSTALLED = CauseData(
        "libs-not-installed",
        "A CUDA library that this TensorFlow opens is nowhere on the machine.",
        finding_title="CUDA libraries that TensorFlow needs are not installed",
        finding_code="TFD201",
        allows_registration=False,
        consequence_words=("libs-transitive", "cudnn-missing"),
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBS_NOT_ON_PATH = CauseData(
        "libs-not-on-path",
        "The CUDA libraries are installed, but not where the loader looks.",
        finding_title="The loader does not look where the CUDA libraries are",
        finding_code="TFD203",
        allows_registration=False,
        consequence_words=("libs-transitive", "cudnn-missing"),
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBS_TRANSITIVE = CauseData(
        "libs-transitive",
        "A library that TensorFlow opens is found, but another library that it needs is not.",
        finding_title="A library that another library needs is missing",
        finding_code="TFD204",
        allows_registration=False,
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBS_UNLISTED = CauseData(
        "libs-unlisted",
        "TensorFlow 2.12 or newer says that some libraries could not be opened, but not which.",
        finding_title="CUDA libraries are missing, and this TensorFlow does not say which",
        finding_code="TFD801",
        allows_registration=False,
        log_remedies=(CommonRemedy.LIBRARIES, CommonRemedy.NAME_LIBRARIES),
    )
    CUDNN_MISSING = CauseData(
        "cudnn-missing",
        "cuDNN, in the major version that this TensorFlow opens, cannot be found by the loader.",
        finding_title="cuDNN, in the version that this TensorFlow opens, cannot be found",
        finding_code="TFD205",
        allows_registration=False,
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    CUDNN_VERSION_MISMATCH = CauseData(
        "cudnn-version-mismatch",
        "The cuDNN that is loaded is older than the one TensorFlow was built with, or its parts have different "
        "versions.",
        finding_title="The cuDNN that is loaded does not fit this TensorFlow",
        finding_code="TFD206",
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    CUDNN_INIT_FAILED = CauseData(
        "cudnn-init-failed",
        "cuDNN is loaded but cannot create its handle: usually the GPU's memory is full, or the driver is too old "
        "for it.",
        finding_title="cuDNN is installed but does not start",
        finding_code="TFD802",
        log_remedies=(CommonRemedy.MEMORY, CommonRemedy.CHECK),
    )
    CUBLAS_INIT_FAILED = CauseData(
        "cublas-init-failed",
        "cuBLAS is loaded but cannot create its handle: usually the GPU's memory is full, or the card is not one "
        "it has code for.",
        finding_title="cuBLAS is installed but does not start, or cannot run",
        finding_code="TFD803",
        log_remedies=(CommonRemedy.MEMORY, CommonRemedy.CHECK),
    )
    IMPORT_MISSING_CUDA_LIB = CauseData(
        "import-missing-cuda-lib",
        "`import tensorflow` itself fails: a CUDA library is missing. TensorFlow 1.13 and older, and "
        "TensorFlow on Windows, are linked against them.",
        finding_title="`import tensorflow` fails because a CUDA library is missing",
        finding_code="TFD207",
        allows_registration=False,
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBDEVICE_OR_PTXAS_MISSING = CauseData(
        "libdevice-or-ptxas-missing",
        "XLA compiles for the GPU but finds no libdevice.10.bc, or no usable ptxas.",
        finding_title="XLA does not find libdevice or ptxas",
        finding_code="TFD208",
        log_remedies=Remedy(
            "Name the folder of a CUDA toolkit that has nvvm/libdevice and bin/ptxas.",
            ("export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda",),
        ),
    )
    CUPTI_MISSING = CauseData(
        "cupti-missing",
        "libcupti, which only the profiler needs, cannot be opened, or may not be used.",
        finding_title="The profiler does not find CUPTI; nothing else needs it",
        finding_code="TFD812",
        severity=Severity.WARNING,
        log_remedies=(CommonRemedy.PROFILER,),
    )
    CPU_ONLY_BUILD = CauseData(
        "cpu-only-build",
        "This TensorFlow was built without GPU code; no driver and no library can change that.",
        finding_title="This TensorFlow seems to be built without GPU code",
        finding_code="TFD303",
        allows_registration=False,
        refusal_rank=3,
        consequence_words=("both-packages",),
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    WINDOWS_NATIVE_UNSUPPORTED = CauseData(
        "windows-native-unsupported",
        "TensorFlow from 2.11 on has no GPU code for native Windows; use WSL2 or a container.",
        finding_title="TensorFlow from 2.11 on has no GPU support on native Windows",
        finding_code="TFD305",
        allows_registration=False,
        log_remedies=(
            Remedy(
                "Or stay on native Windows with TensorFlow 2.10 (Python 3.7 to 3.10), CUDA 11.2 and cuDNN 8.1.",
                ('py -3.10 -m pip install "tensorflow==2.10.1" "numpy<2"',),
            ),
            Remedy(
                "Or use DirectML, for any GPU with DirectX 12: tensorflow-directml-plugin beside tensorflow-cpu 2.10."
            ),
        ),
    )
    BOTH_PACKAGES = CauseData(
        "both-packages",
        "Two TensorFlow distributions (tensorflow and tensorflow-gpu, or two builds) are installed over each other.",
        finding_title="Two TensorFlow packages are installed over each other",
        finding_code="TFD304",
        consequence_words=("cpu-only-build",),
    )
    NO_MATCHING_WHEEL = CauseData(
        "no-matching-wheel",
        "There is no wheel of that TensorFlow for this Python or platform.",
        finding_title="There is no package of that version for this Python and platform",
        finding_code="TFD302",
        refusal_rank=7,
        log_remedies=(CommonRemedy.RELEASE, CommonRemedy.LIBRARY, CommonRemedy.CHECK),
    )
    ILLEGAL_INSTRUCTION_AVX = CauseData(
        "illegal-instruction-avx",
        "The processor lacks an instruction set (AVX, AVX2, …) that this build uses: the process ends with SIGILL.",
        finding_title="The processor lacks an instruction set (AVX) that this build uses",
        finding_code="TFD310",
        allows_registration=False,
        log_remedies=Remedy(
            "Use a build made for this processor (conda-forge's, or TensorFlow 1.5, the last without AVX).",
            ("grep -c avx /proc/cpuinfo",),
        ),
    )
    GLIBC_TOO_OLD = CauseData(
        "glibc-too-old",
        "The C library of this system is older than what TensorFlow's shared objects ask for.",
        finding_title="The system's C library is too old for this TensorFlow",
        finding_code="TFD308",
        allows_registration=False,
        log_remedies=(
            Remedy(
                "A container image brings a newer C library. Do not replace that of the system: no program would start then.",
                ("tfdoctor build",),
            ),
            CommonRemedy.APPTAINER,
            CommonRemedy.RELEASE,
            CommonRemedy.CHECK,
        ),
    )
    LIBSTDCXX_TOO_OLD = CauseData(
        "libstdcxx-too-old",
        "The libstdc++ that is loaded first (the system's or conda's) lacks a symbol version that TensorFlow asks for.",
        finding_title="The libstdc++ that is loaded is too old for this TensorFlow",
        finding_code="TFD309",
        allows_registration=False,
        log_remedies=Remedy(
            "In conda, update its libstdc++.", ("conda install -c conda-forge libstdcxx-ng",)
        ),
    )
    NUMPY_ABI = CauseData(
        "numpy-abi",
        "The installed numpy has a different binary interface than the one TensorFlow was compiled for.",
        finding_title="numpy has a different binary interface than TensorFlow was compiled for",
        finding_code="TFD306",
        log_remedies=Remedy(
            "Install the numpy that this TensorFlow was made for.", ("python3 -m pip install 'numpy<2'",)
        ),
    )
    PROTOBUF_CONFLICT = CauseData(
        "protobuf-conflict",
        "The installed protobuf version does not work with this TensorFlow's generated code.",
        finding_title="The protobuf version does not work with this TensorFlow",
        finding_code="TFD307",
        allows_registration=False,
        log_remedies=Remedy(
            "Install the protobuf that this TensorFlow was made for.",
            ("python3 -m pip install 'protobuf<3.21'",),
        ),
    )
    MSVC_RUNTIME_MISSING = CauseData(
        "msvc-runtime-missing",
        "On Windows, the Microsoft Visual C++ runtime that TensorFlow links against is missing.",
        finding_title="A DLL is missing on Windows: usually the Visual C++ runtime",
        finding_code="TFD813",
        allows_registration=False,
        log_remedies=Remedy(
            "Install the Microsoft Visual C++ Redistributable (x64, 2015 or newer).",
            ("winget install --id Microsoft.VCRedist.2015+.x64",),
            changes_system=True,
        ),
    )
    GPU_TOO_OLD = CauseData(
        "gpu-too-old",
        "The card's compute capability is below TensorFlow's minimum, or below what the wheel or its "
        "cuDNN has code for.",
        finding_title="This TensorFlow has no code for a card as old as this one",
        finding_code="TFD110",
        refusal_rank=5,
        log_remedies=(CommonRemedy.RELEASE, CommonRemedy.CHECK),
    )
    GPU_TOO_NEW = CauseData(
        "gpu-too-new",
        "The wheel has no machine code for this card: its PTX is compiled at first use, rejected, or missing.",
        finding_title="The card is newer than this TensorFlow has code for",
        finding_code="TFD111",
        refusal_rank=4,
        log_remedies=(CommonRemedy.RELEASE, CommonRemedy.CHECK),
    )
    OOM = CauseData(
        "oom",
        "There is not enough memory: on the GPU, on the machine, or within the container's limit.",
        finding_title="The GPU ran out of memory",
        finding_code="TFD804",
        log_remedies=(
            Remedy(
                "Use a smaller batch or model, or mixed precision; close what else uses the GPU.",
                ("nvidia-smi",),
            ),
            CommonRemedy.MEMORY,
        ),
    )
    GPU_BUSY_OTHER_PROCESS = CauseData(
        "gpu-busy-other-process",
        "Another process holds the GPU's memory, or the GPU itself in exclusive mode.",
        finding_title="Another process holds the GPU's memory",
        finding_code="TFD603",
        log_remedies=(
            Remedy("See which process holds the memory; end it or choose another GPU.", ("nvidia-smi",)),
            CommonRemedy.MEMORY,
        ),
    )
    NCCL_FAILURE = CauseData(
        "nccl-failure",
        "NCCL, through which several GPUs communicate with each other, fails.",
        finding_title="NCCL, through which several GPUs communicate with each other, failed",
        finding_code="TFD805",
        log_remedies=(Remedy("Turn on NCCL's own log.", ("export NCCL_DEBUG=INFO",)), CommonRemedy.CHECK),
    )
    CLUSTER_FAILURE = CauseData(
        "cluster-failure",
        "The tasks of a distributed job do not find each other: one does not answer, or its cluster is wrong.",
        finding_title="A task of the cluster lost its connection to another one",
        finding_code="TFD816",
        log_remedies=Remedy(
            "On each machine: check TF_CONFIG and who answers.", ("tfdoctor cluster --connect",)
        ),
    )
    XLA_GPU_ONLY = CauseData(
        "xla-gpu-only",
        "XLA_GPU devices are listed and no GPU is registered: ordinary operations run on the CPU.",
        finding_title="Only XLA_GPU devices are listed: no GPU is registered",
        finding_code="TFD806",
        allows_registration=False,
        log_remedies=(CommonRemedy.LIBRARIES,),
    )
    PLACEMENT_ERROR = CauseData(
        "placement-error",
        "A program asks for a device that does not exist, or that cannot run that operation.",
        finding_title="The program asks for a device that does not exist, or that cannot run this operation",
        finding_code="TFD807",
        log_remedies=(
            Remedy(
                "Let TensorFlow choose another device where needed: tf.config.set_soft_device_placement(True), or in "
                "TensorFlow 1 tf.ConfigProto(allow_soft_placement=True) for the session."
            ),
            Remedy(
                "See in the code what asks for that device, and in the log where operations went.",
                ("tfdoctor lint .", "tfdoctor diagnose --placement train.log"),
            ),
            CommonRemedy.CHECK,
        ),
    )
    NO_NVIDIA_RUNTIME = CauseData(
        "no-nvidia-runtime",
        "The container engine has no NVIDIA toolkit, runtime or CDI specification, so it cannot give "
        "GPUs to containers.",
        finding_title="The container engine cannot give GPUs to containers",
        finding_code="TFD808",
        allows_registration=False,
        log_remedies=(CommonRemedy.TOOLKIT,),
    )
    CONTAINER_NO_GPU = CauseData(
        "container-no-gpu",
        "The container was started without GPUs.",
        finding_title="The container was started without GPUs",
        finding_code="TFD401",
        allows_registration=False,
        consequence_words=("no-driver", "no-device", "nvml-missing"),
        log_remedies=(CommonRemedy.GPUS, CommonRemedy.TOOLKIT),
    )
    CONTAINER_CUDA_REQUIREMENT = CauseData(
        "container-cuda-requirement",
        "The image requires a newer driver than the host has.",
        finding_title="The image requires a newer driver than the host has",
        finding_code="TFD809",
        allows_registration=False,
        log_remedies=(
            CommonRemedy.HOST_DRIVER,
            Remedy("Or update the host's driver.", changes_system=True),
            CommonRemedy.CHECK,
        ),
    )
    CONTAINER_DRIVER_LIBS = CauseData(
        "container-driver-libs",
        "The NVIDIA container tools cannot load or find the driver's libraries on the host.",
        finding_title="The NVIDIA container tools cannot use the driver's libraries on the host",
        finding_code="TFD810",
        allows_registration=False,
        log_remedies=Remedy(
            "Check whether the driver works on the host; if not, reinstall it and the container toolkit.",
            ("nvidia-smi", "nvidia-container-cli -k -d /dev/stderr info"),
        ),
    )
    CONTAINER_NVML_LOST = CauseData(
        "container-nvml-lost",
        'A running container has lost its GPUs: "Failed to initialize NVML: Unknown Error".',
        finding_title="The running container has lost its GPUs",
        finding_code="TFD811",
        allows_registration=False,
        log_remedies=Remedy(
            "Start the container again. To keep it from happening, name the device nodes or use the cgroupfs "
            "driver.",
            (f"docker run --gpus all {_NODES} IMAGE",),
        ),
    )
    PACKAGE_CONFLICT = CauseData(
        "package-conflict",
        "A package that TensorFlow imports, directly or indirectly, has a version or a build with which the import "
        "fails.",
        finding_title="A package that TensorFlow imports is incompatible with it",
        finding_code="TFD312",
        allows_registration=False,
        log_remedies=(
            Remedy(
                "Install the packages that this TensorFlow asks for, in its environment.",
                ("python3 -m pip check",),
            ),
            CommonRemedy.CHECK,
        ),
    )
    # The consequences are problems of the wrong module: they no longer matter once the intended one is imported.
    SHADOWED_MODULE = CauseData(
        "shadowed-module",
        "Python finds another module or installation under that name first: in the working folder, on PYTHONPATH, "
        "in the user's site-packages, through a .pth file.",
        finding_title="Another module is imported in place of the intended one",
        finding_code="TFD701",
        allows_registration=False,
        consequence_words=(
            "libs-wrong-version",
            "libs-not-installed",
            "libs-not-on-path",
            "libs-transitive",
            "cudnn-missing",
            "cudnn-version-mismatch",
            "both-packages",
            "numpy-abi",
            "protobuf-conflict",
            "package-conflict",
        ),
        log_remedies=(
            Remedy("Rename the file that has a module's name, or start from another folder."),
            CommonRemedy.CHECK,
        ),
    )
    DAMAGED_FILE = CauseData(
        "damaged-file",
        "A file of TensorFlow, of CUDA or of a plugin is truncated, of the wrong class, or not what its name says.",
        finding_title="A file of TensorFlow or CUDA is damaged",
        finding_code="TFD209",
        allows_registration=False,
        consequence_words=("libs-transitive", "cudnn-missing"),
        log_remedies=(
            Remedy("Reinstall the package that has this file, with --no-cache-dir."),
            CommonRemedy.CHECK,
            CommonRemedy.LIBRARY,
        ),
    )
    NOT_PERMITTED = CauseData(
        "not-permitted",
        "The file exists, but its permissions, its file system (noexec) or a limit (ulimit -v) keep this user from using it.",
        finding_title="No permission to read or run a file that TensorFlow needs",
        finding_code="TFD319",
        allows_registration=False,
        log_remedies=(
            Remedy(
                "See which user may read and run that file, and whether its file system is mounted noexec."
            ),
            CommonRemedy.CHECK,
        ),
    )
    PYTHON_UNUSABLE = CauseData(
        "python-unusable",
        "The examined Python does not start, does not answer, is gone, or is not the one that the shell starts.",
        finding_title="Python does not start",
        finding_code="TFD317",
        allows_registration=False,
        consequence_words=("tensorflow-missing",),
        log_remedies=(
            Remedy("Recreate the environment: the Python that it was created with is gone."),
            CommonRemedy.CHECK,
        ),
    )
    TENSORFLOW_MISSING = CauseData(
        "tensorflow-missing",
        "TensorFlow is not installed in this Python.",
        finding_title="TensorFlow is not installed in this Python",
        finding_code="TFD301",
        allows_registration=False,
        log_remedies=(
            Remedy(
                "See which TensorFlow fits, and install it into the Python that runs the program.",
                ("tfdoctor recommend",),
            ),
            CommonRemedy.CHECK,
        ),
    )
