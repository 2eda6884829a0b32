"""The root causes, which all commands use. Each is defined by one `CauseData`.

An entry has:

* the cause's word and meaning;
* the title and the code of the finding about a log that shows the cause;
* whether TensorFlow still registers a GPU;
* the causes that follow from it;
* the remedies if only a log is available.

To add a cause, add an entry here (see CONTRIBUTING.md). Details of a check's findings belong in the check.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from tfdoctor.causes.entry import CauseData, CommonRemedy, Severity
from tfdoctor.causes.steps import Remedy

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
        return frozenset(Cause(word) for word in self.data.consequences)

    HEALTHY = CauseData(
        "healthy",
        "Found nothing that keeps TensorFlow from using the GPU.",
        title="TensorFlow registered the GPU, and nothing in this log contradicts that",
        code="TFD815",
        severity=Severity.INFO,
        remedies=(),
    )
    INCONCLUSIVE = CauseData(
        "inconclusive",
        "The available evidence does not show what is wrong.",
        title="This log does not say whether TensorFlow can use a GPU",
        code="TFD814",
        severity=Severity.WARNING,
        remedies=(CommonRemedy.CHECK, CommonRemedy.RUN),
    )
    NO_DRIVER = CauseData(
        "no-driver",
        "The driver's library (libcuda.so.1, on Windows nvcuda.dll) cannot be opened, or there is no "
        "kernel driver behind it "
        "(CUDA error 303).",
        title="No NVIDIA driver was available where this ran",
        code="TFD101",
        registers=False,
        refusal_rank=1,
        consequences=("no-device", "nvml-missing", "gpu-too-old", "gpu-too-new"),
        remedies=(
            Remedy(
                "Install NVIDIA's driver, then restart. On that machine this names the commands:",
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
        "The driver answers, but shows no GPU.",
        title="The driver answers but shows no GPU",
        refusal_rank=2,
        code="TFD102",
        registers=False,
        remedies=(
            Remedy("Check whether the driver shows a card at all.", ("nvidia-smi -L",)),
            CommonRemedy.CHECK,
        ),
    )
    HIDDEN_BY_ENV = CauseData(
        "hidden-by-env",
        "CUDA_VISIBLE_DEVICES, or a scheduler that sets it, hides the GPUs from the program.",
        title="CUDA_VISIBLE_DEVICES hides the GPUs from this process",
        code="TFD601",
        registers=False,
        remedies=Remedy(
            "Remove the variable, or ask the scheduler (Ray: num_gpus) for a GPU.",
            ("unset CUDA_VISIBLE_DEVICES",),
        ),
    )
    DRIVER_TOO_OLD = CauseData(
        "driver-too-old",
        "The driver is too old for the CUDA that this TensorFlow was built with.",
        title="The NVIDIA driver is too old for this TensorFlow's CUDA or cuDNN",
        code="TFD103",
        refusal_rank=6,
        remedies=(CommonRemedy.DRIVER,),
    )
    DRIVER_LIB_MISMATCH = CauseData(
        "driver-lib-mismatch",
        "The kernel module and the driver's libraries have different versions: an update without a "
        "reboot (CUDA error "
        "803).",
        title="The NVIDIA kernel module and the driver's libraries have different versions",
        code="TFD104",
        registers=False,
        consequences=("no-device", "driver-init-unknown", "nvml-missing"),
        remedies=(
            CommonRemedy.RESTART,
            Remedy("In a container or an image: remove the driver's libraries that it brings itself."),
        ),
    )
    DRIVER_INIT_UNKNOWN = CauseData(
        "driver-init-unknown",
        "The driver's library opens, but initializing it or querying a device fails with CUDA_ERROR_UNKNOWN (999).",
        title="The driver is installed but fails with an unknown error",
        code="TFD105",
        registers=False,
        remedies=(
            Remedy(
                "Load the module that serves CUDA again (suspend and some updates lose it); otherwise restart.",
                ("sudo modprobe nvidia_uvm",),
                changes_system=True,
            ),
            CommonRemedy.CHECK,
        ),
    )
    COMPAT_NOT_SUPPORTED = CauseData(
        "compat-not-supported",
        "A forward-compatibility libcuda is in use on a card or driver that does not support it (CUDA error 804).",
        title="A forward-compatibility libcuda does not fit this card or driver",
        code="TFD106",
        registers=False,
        remedies=(
            CommonRemedy.RESTART,
            Remedy("Take the folder of the cuda-compat package off LD_LIBRARY_PATH, or remove the package."),
        ),
    )
    STUB_LIBCUDA = CauseData(
        "stub-libcuda",
        "The CUDA toolkit's stub, which is for linking only, is found in place of the driver's libcuda (CUDA error "
        "34).",
        title="A stub is loaded in place of the driver's libcuda",
        code="TFD107",
        registers=False,
        consequences=("no-driver", "driver-init-unknown", "nvml-missing"),
        remedies=(CommonRemedy.STUB, CommonRemedy.CHECK),
    )
    WSL_LIBCUDA = CauseData(
        "wsl-libcuda",
        "Under WSL, the libcuda.so.1 that is found is not the one in /usr/lib/wsl/lib.",
        title="Under WSL, cuDNN does not find the driver's libcuda.so",
        code="TFD108",
        consequences=("no-driver", "nvml-missing"),
        remedies=Remedy(
            "Put WSL's own driver folder first.",
            ('export LD_LIBRARY_PATH="/usr/lib/wsl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',),
        ),
    )
    NVML_MISSING = CauseData(
        "nvml-missing",
        "libnvidia-ml.so.1 cannot be opened, and TensorFlow from 2.21 on registers no GPU without it.",
        title="libnvidia-ml.so.1 cannot be opened",
        code="TFD109",
        registers=False,
        remedies=(CommonRemedy.CHECK, CommonRemedy.UTILITIES),
    )
    LIBS_WRONG_VERSION = CauseData(
        "libs-wrong-version",
        "CUDA or cuDNN is installed, in a different version than the one whose file names this TensorFlow opens.",
        title="A different CUDA version is installed than this TensorFlow opens",
        code="TFD202",
        registers=False,
        consequences=("libs-not-installed", "cudnn-missing", "cudnn-version-mismatch"),
        remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBS_NOT_INSTALLED = CauseData(
        "libs-not-installed",
        "A CUDA library that this TensorFlow opens is nowhere on the machine.",
        title="CUDA libraries that TensorFlow opens are not installed",
        code="TFD201",
        registers=False,
        consequences=("libs-transitive", "cudnn-missing"),
        remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBS_NOT_ON_PATH = CauseData(
        "libs-not-on-path",
        "The CUDA libraries are installed, but not where the loader looks.",
        title="The loader does not look where the CUDA libraries are",
        code="TFD203",
        registers=False,
        consequences=("libs-transitive", "cudnn-missing"),
        remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBS_TRANSITIVE = CauseData(
        "libs-transitive",
        "A library that TensorFlow opens is found, but another library that it needs is not.",
        title="A library that another library needs is missing",
        code="TFD204",
        registers=False,
        remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBS_UNLISTED = CauseData(
        "libs-unlisted",
        "TensorFlow 2.12 or newer says that some libraries could not be opened, but not which.",
        title="CUDA libraries are missing, and this TensorFlow does not say which",
        code="TFD801",
        registers=False,
        remedies=(CommonRemedy.LIBRARIES, CommonRemedy.NAME_LIBRARIES),
    )
    CUDNN_MISSING = CauseData(
        "cudnn-missing",
        "cuDNN, in the major version that this TensorFlow opens, cannot be found by the loader.",
        title="cuDNN, in the version that this TensorFlow opens, cannot be found",
        code="TFD205",
        registers=False,
        remedies=(CommonRemedy.LIBRARIES,),
    )
    CUDNN_VERSION_MISMATCH = CauseData(
        "cudnn-version-mismatch",
        "The cuDNN that is loaded is older than the one TensorFlow was built with, or its parts have different "
        "versions.",
        title="The cuDNN that is loaded does not fit this TensorFlow",
        code="TFD206",
        remedies=(CommonRemedy.LIBRARIES,),
    )
    CUDNN_INIT_FAILED = CauseData(
        "cudnn-init-failed",
        "cuDNN is loaded but cannot create its handle: usually the GPU's memory is full, or the driver is too old "
        "for it.",
        title="cuDNN is installed but does not start",
        code="TFD802",
        remedies=(CommonRemedy.MEMORY, CommonRemedy.CHECK),
    )
    CUBLAS_INIT_FAILED = CauseData(
        "cublas-init-failed",
        "cuBLAS is loaded but cannot create its handle: usually the GPU's memory is full, or the card is not one "
        "it has code for.",
        title="cuBLAS is installed but does not start, or cannot run",
        code="TFD803",
        remedies=(CommonRemedy.MEMORY, CommonRemedy.CHECK),
    )
    IMPORT_MISSING_CUDA_LIB = CauseData(
        "import-missing-cuda-lib",
        "`import tensorflow` itself fails: a CUDA library is missing. TensorFlow 1.13 and older, and "
        "TensorFlow on Windows, are linked against them.",
        title="`import tensorflow` fails because a CUDA library is missing",
        code="TFD207",
        registers=False,
        remedies=(CommonRemedy.LIBRARIES,),
    )
    LIBDEVICE_OR_PTXAS_MISSING = CauseData(
        "libdevice-or-ptxas-missing",
        "XLA compiles for the GPU but finds no libdevice.10.bc, or no usable ptxas.",
        title="XLA does not find libdevice or ptxas",
        code="TFD208",
        remedies=Remedy(
            "Name the folder of a CUDA toolkit that has nvvm/libdevice and bin/ptxas.",
            ("export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda",),
        ),
    )
    CUPTI_MISSING = CauseData(
        "cupti-missing",
        "libcupti, which only the profiler needs, cannot be opened, or may not be used.",
        title="The profiler does not find CUPTI; nothing else needs it",
        code="TFD812",
        severity=Severity.WARNING,
        remedies=(CommonRemedy.PROFILER,),
    )
    CPU_ONLY_BUILD = CauseData(
        "cpu-only-build",
        "This TensorFlow was built without GPU code; no driver and no library can change that.",
        title="This TensorFlow seems to be built without GPU code",
        code="TFD303",
        registers=False,
        refusal_rank=3,
        consequences=("both-packages",),
        remedies=(CommonRemedy.LIBRARIES,),
    )
    WINDOWS_NATIVE_UNSUPPORTED = CauseData(
        "windows-native-unsupported",
        "TensorFlow from 2.11 on has no GPU code for native Windows; use WSL2 or a container.",
        title="TensorFlow from 2.11 on has no GPU support on native Windows",
        code="TFD305",
        registers=False,
        remedies=Remedy(
            "Use WSL 2, and make an environment there; TensorFlow 2.10 is the last for native Windows.",
            ("tfdoctor install",),
        ),
    )
    BOTH_PACKAGES = CauseData(
        "both-packages",
        "Two TensorFlow distributions (tensorflow and tensorflow-gpu, or two builds) are installed over each other.",
        title="Two TensorFlow packages are installed over each other",
        code="TFD304",
        consequences=("cpu-only-build",),
    )
    NO_MATCHING_WHEEL = CauseData(
        "no-matching-wheel",
        "There is no wheel of that TensorFlow for this Python or platform.",
        title="There is no package of that version for this Python and platform",
        code="TFD302",
        refusal_rank=7,
        remedies=(CommonRemedy.RELEASE, CommonRemedy.LIBRARY, CommonRemedy.CHECK),
    )
    ILLEGAL_INSTRUCTION_AVX = CauseData(
        "illegal-instruction-avx",
        "The processor lacks an instruction set (AVX, AVX2, …) that this build uses: the process ends with SIGILL.",
        title="The processor lacks an instruction set (AVX) that this build uses",
        code="TFD310",
        registers=False,
        remedies=Remedy(
            "Use a build made for this processor (conda-forge's, or TensorFlow 1.5, the last without AVX).",
            ("grep -c avx /proc/cpuinfo",),
        ),
    )
    GLIBC_TOO_OLD = CauseData(
        "glibc-too-old",
        "The C library of this system is older than what TensorFlow's shared objects ask for.",
        title="The system's C library is too old for this TensorFlow",
        code="TFD308",
        registers=False,
        remedies=(CommonRemedy.RELEASE, CommonRemedy.LIBRARY, CommonRemedy.CHECK),
    )
    LIBSTDCXX_TOO_OLD = CauseData(
        "libstdcxx-too-old",
        "The libstdc++ that is loaded first (the system's or conda's) lacks a symbol version that TensorFlow asks for.",
        title="The libstdc++ that is loaded is too old for this TensorFlow",
        code="TFD309",
        registers=False,
        remedies=Remedy("In conda, update its libstdc++.", ("conda install -c conda-forge libstdcxx-ng",)),
    )
    NUMPY_ABI = CauseData(
        "numpy-abi",
        "The installed numpy has a different binary interface than the one TensorFlow was compiled for.",
        title="numpy has a different binary interface than TensorFlow was compiled for",
        code="TFD306",
        remedies=Remedy(
            "Install the numpy that this TensorFlow was made for.", ("python3 -m pip install 'numpy<2'",)
        ),
    )
    PROTOBUF_CONFLICT = CauseData(
        "protobuf-conflict",
        "The installed protobuf version does not work with this TensorFlow's generated code.",
        title="The protobuf version does not work with this TensorFlow",
        code="TFD307",
        registers=False,
        remedies=Remedy(
            "Install the protobuf that this TensorFlow was made for.",
            ("python3 -m pip install 'protobuf<3.21'",),
        ),
    )
    MSVC_RUNTIME_MISSING = CauseData(
        "msvc-runtime-missing",
        "On Windows, the Microsoft Visual C++ runtime that TensorFlow links against is missing.",
        title="A DLL is missing on Windows: usually the Visual C++ runtime",
        code="TFD813",
        registers=False,
        remedies=Remedy(
            "Install the Microsoft Visual C++ Redistributable (x64, 2015 or newer).",
            ("winget install --id Microsoft.VCRedist.2015+.x64",),
            changes_system=True,
        ),
    )
    GPU_TOO_OLD = CauseData(
        "gpu-too-old",
        "The card's compute capability is below TensorFlow's minimum, or below what the wheel or its "
        "cuDNN has code for.",
        title="The card is older than this TensorFlow has code for",
        code="TFD110",
        refusal_rank=5,
        remedies=(CommonRemedy.RELEASE, CommonRemedy.CHECK),
    )
    GPU_TOO_NEW = CauseData(
        "gpu-too-new",
        "The wheel has no machine code for this card: its PTX is compiled at first use, rejected, or missing.",
        title="The card is newer than this TensorFlow has code for",
        code="TFD111",
        refusal_rank=4,
        remedies=(CommonRemedy.RELEASE, CommonRemedy.CHECK),
    )
    OOM = CauseData(
        "oom",
        "There is not enough memory: on the GPU, on the machine, or within the container's limit.",
        title="The GPU ran out of memory",
        code="TFD804",
        remedies=(
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
        title="Another process holds the GPU's memory",
        code="TFD603",
        remedies=(
            Remedy("See which process holds the memory; end it or choose another GPU.", ("nvidia-smi",)),
            CommonRemedy.MEMORY,
        ),
    )
    NCCL_FAILURE = CauseData(
        "nccl-failure",
        "NCCL, through which several GPUs communicate with each other, fails.",
        title="NCCL, through which several GPUs communicate with each other, failed",
        code="TFD805",
        remedies=(Remedy("Turn on NCCL's own log.", ("export NCCL_DEBUG=INFO",)), CommonRemedy.CHECK),
    )
    CLUSTER_FAILURE = CauseData(
        "cluster-failure",
        "The tasks of a distributed job do not find each other: one does not answer, or its cluster is wrong.",
        title="A task of the cluster lost its connection to another one",
        code="TFD816",
        remedies=Remedy("On each machine: check TF_CONFIG and who answers.", ("tfdoctor cluster --connect",)),
    )
    XLA_GPU_ONLY = CauseData(
        "xla-gpu-only",
        "XLA_GPU devices are listed and no GPU is registered: ordinary operations run on the CPU.",
        title="Only XLA_GPU devices are listed: no GPU is registered",
        code="TFD806",
        registers=False,
        remedies=(CommonRemedy.LIBRARIES,),
    )
    PLACEMENT_ERROR = CauseData(
        "placement-error",
        "A program asks for a device that does not exist, or that cannot run that operation.",
        title="The program asks for a device that does not exist, or that cannot run this operation",
        code="TFD807",
        remedies=(
            Remedy(
                "Let TensorFlow choose another device where needed: tf.config.set_soft_device_placement(True)."
            ),
            Remedy(
                "See in the code what asks for that device, and in the log where operations went.",
                ("tfdoctor lint .", "tfdoctor placement train.log"),
            ),
            CommonRemedy.CHECK,
        ),
    )
    NO_NVIDIA_RUNTIME = CauseData(
        "no-nvidia-runtime",
        "The container engine has no NVIDIA toolkit, runtime or CDI specification, so it cannot give "
        "GPUs to containers.",
        title="The container engine cannot give GPUs to containers",
        code="TFD808",
        registers=False,
        remedies=(CommonRemedy.TOOLKIT,),
    )
    CONTAINER_NO_GPU = CauseData(
        "container-no-gpu",
        "The container was started without GPUs.",
        title="The container was started without GPUs",
        code="TFD401",
        registers=False,
        consequences=("no-driver", "no-device", "nvml-missing"),
        remedies=(CommonRemedy.GPUS, CommonRemedy.TOOLKIT),
    )
    CONTAINER_CUDA_REQUIREMENT = CauseData(
        "container-cuda-requirement",
        "The image requires a newer driver than the host has.",
        title="The image requires a newer driver than the host has",
        code="TFD809",
        registers=False,
        remedies=(
            CommonRemedy.HOST_DRIVER,
            Remedy("Or update the host's driver.", changes_system=True),
            CommonRemedy.CHECK,
        ),
    )
    CONTAINER_DRIVER_LIBS = CauseData(
        "container-driver-libs",
        "The NVIDIA container tools cannot load or find the driver's libraries on the host.",
        title="The NVIDIA container tools cannot use the driver's libraries on the host",
        code="TFD810",
        registers=False,
        remedies=Remedy(
            "Check whether the driver works on the host; if not, reinstall it and the container toolkit.",
            ("nvidia-smi", "nvidia-container-cli -k -d /dev/stderr info"),
        ),
    )
    CONTAINER_NVML_LOST = CauseData(
        "container-nvml-lost",
        'A running container has lost its GPUs: "Failed to initialize NVML: Unknown Error".',
        title="The running container has lost its GPUs",
        code="TFD811",
        registers=False,
        remedies=Remedy(
            "Start the container again. To keep it from happening, name the device nodes or use the cgroupfs "
            "driver.",
            (f"docker run --gpus all {_NODES} IMAGE",),
        ),
    )
    PACKAGE_CONFLICT = CauseData(
        "package-conflict",
        "A package that TensorFlow imports, directly or indirectly, has a version or a build with which the import "
        "fails.",
        title="A package that TensorFlow imports is incompatible with it",
        code="TFD312",
        registers=False,
        remedies=(
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
        title="Another module is imported in place of the intended one",
        code="TFD701",
        registers=False,
        consequences=(
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
        remedies=(
            Remedy("Rename the file that has a module's name, or start from another folder."),
            CommonRemedy.CHECK,
        ),
    )
    DAMAGED_FILE = CauseData(
        "damaged-file",
        "A file of TensorFlow, of CUDA or of a plugin is truncated, of the wrong class, or not what its name says.",
        title="A file of TensorFlow or CUDA is damaged",
        code="TFD209",
        registers=False,
        consequences=("libs-transitive", "cudnn-missing"),
        remedies=(
            Remedy("Reinstall the package that has this file, with --no-cache-dir."),
            CommonRemedy.CHECK,
            CommonRemedy.LIBRARY,
        ),
    )
    NOT_PERMITTED = CauseData(
        "not-permitted",
        "The file exists, but its permissions or its file system (noexec) keep this user from reading or running it.",
        title="No permission to read or run a file that TensorFlow needs",
        code="TFD319",
        registers=False,
        remedies=(
            Remedy(
                "See which user may read and run that file, and whether its file system is mounted noexec."
            ),
            CommonRemedy.CHECK,
        ),
    )
    PYTHON_UNUSABLE = CauseData(
        "python-unusable",
        "The examined Python does not start, does not answer, or is gone.",
        title="Python does not start",
        code="TFD317",
        registers=False,
        consequences=("tensorflow-missing",),
        remedies=(
            Remedy("Recreate the environment: the Python that it was created with is gone."),
            CommonRemedy.CHECK,
        ),
    )
    TENSORFLOW_MISSING = CauseData(
        "tensorflow-missing",
        "TensorFlow is not installed in this Python.",
        title="TensorFlow is not installed in this Python",
        code="TFD301",
        registers=False,
        remedies=(
            Remedy(
                "See which TensorFlow fits, and install it into the Python that runs the program.",
                ("tfdoctor recommend",),
            ),
            CommonRemedy.CHECK,
        ),
    )
