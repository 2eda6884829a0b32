"""What to do about a cause that a log shows: texts and commands, with the versions of the release that wrote it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.findings import Cause, Remedy

if TYPE_CHECKING:
    from tfdoctor.logs.case import Case

__all__ = ["CHECK", "CODES", "TITLES", "remedies"]

CHECK = Remedy("Look at the machine itself: it tells what a log cannot.", ("tfdoctor check",))

CODES: dict[Cause, str] = {
    Cause.NO_DRIVER: "TFD101",
    Cause.NO_DEVICE: "TFD102",
    Cause.DRIVER_TOO_OLD: "TFD103",
    Cause.DRIVER_LIB_MISMATCH: "TFD104",
    Cause.DRIVER_INIT_UNKNOWN: "TFD105",
    Cause.COMPAT_NOT_SUPPORTED: "TFD106",
    Cause.STUB_LIBCUDA: "TFD107",
    Cause.WSL_LIBCUDA: "TFD108",
    Cause.NVML_MISSING: "TFD109",
    Cause.GPU_TOO_OLD: "TFD110",
    Cause.GPU_TOO_NEW: "TFD111",
    Cause.LIBS_NOT_INSTALLED: "TFD201",
    Cause.LIBS_WRONG_VERSION: "TFD202",
    Cause.LIBS_NOT_ON_PATH: "TFD203",
    Cause.LIBS_TRANSITIVE: "TFD204",
    Cause.CUDNN_MISSING: "TFD205",
    Cause.CUDNN_VERSION_MISMATCH: "TFD206",
    Cause.IMPORT_MISSING_CUDA_LIB: "TFD207",
    Cause.LIBDEVICE_OR_PTXAS_MISSING: "TFD208",
    Cause.NO_MATCHING_WHEEL: "TFD302",
    Cause.CPU_ONLY_BUILD: "TFD303",
    Cause.BOTH_PACKAGES: "TFD304",
    Cause.WINDOWS_NATIVE_UNSUPPORTED: "TFD305",
    Cause.NUMPY_ABI: "TFD306",
    Cause.PROTOBUF_CONFLICT: "TFD307",
    Cause.GLIBC_TOO_OLD: "TFD308",
    Cause.LIBSTDCXX_TOO_OLD: "TFD309",
    Cause.ILLEGAL_INSTRUCTION_AVX: "TFD310",
    Cause.CONTAINER_NO_GPU: "TFD401",
    Cause.HIDDEN_BY_ENV: "TFD601",
    Cause.GPU_BUSY_OTHER_PROCESS: "TFD603",
    Cause.LIBS_UNLISTED: "TFD801",
    Cause.CUDNN_INIT_FAILED: "TFD802",
    Cause.CUBLAS_INIT_FAILED: "TFD803",
    Cause.OOM: "TFD804",
    Cause.NCCL_FAILURE: "TFD805",
    Cause.XLA_GPU_ONLY: "TFD806",
    Cause.PLACEMENT_ERROR: "TFD807",
    Cause.NO_NVIDIA_RUNTIME: "TFD808",
    Cause.CONTAINER_CUDA_REQUIREMENT: "TFD809",
    Cause.CONTAINER_DRIVER_LIBS: "TFD810",
    Cause.CONTAINER_NVML_LOST: "TFD811",
    Cause.PACKAGE_CONFLICT: "TFD312",
    Cause.SHADOWED_MODULE: "TFD701",
    Cause.DAMAGED_FILE: "TFD209",
    Cause.NOT_PERMITTED: "TFD319",
    Cause.PYTHON_UNUSABLE: "TFD317",
    Cause.TENSORFLOW_MISSING: "TFD301",
    Cause.CUPTI_MISSING: "TFD812",
    Cause.MSVC_RUNTIME_MISSING: "TFD813",
    Cause.INCONCLUSIVE: "TFD814",
    Cause.HEALTHY: "TFD815",
}
"""Cause → code: the rule's where `check` has one for it, TFD8xx where only a log shows it."""
HARMLESS, MISREAD = "TFD820", "TFD821"

TITLES: dict[Cause, str] = {
    Cause.HEALTHY: "TensorFlow registered the GPU, and nothing in this log speaks against it",
    Cause.INCONCLUSIVE: "This log does not say whether TensorFlow can use a GPU",
    Cause.NO_DRIVER: "There is no NVIDIA driver where this ran",
    Cause.NO_DEVICE: "The driver answers and shows no GPU",
    Cause.HIDDEN_BY_ENV: "CUDA_VISIBLE_DEVICES hides the GPUs from this process",
    Cause.DRIVER_TOO_OLD: "The NVIDIA driver is too old for this TensorFlow's CUDA or cuDNN",
    Cause.DRIVER_LIB_MISMATCH: "The NVIDIA kernel module and the driver's libraries are of two versions",
    Cause.DRIVER_INIT_UNKNOWN: "The driver is there and fails with an unknown error",
    Cause.COMPAT_NOT_SUPPORTED: "A forward-compatibility libcuda does not fit this card or driver",
    Cause.STUB_LIBCUDA: "A stub stands in the place of the driver's libcuda",
    Cause.WSL_LIBCUDA: "Under WSL, cuDNN does not find the driver's libcuda.so",
    Cause.NVML_MISSING: "libnvidia-ml.so.1 cannot be opened",
    Cause.LIBS_WRONG_VERSION: "CUDA is there in another version than this TensorFlow opens",
    Cause.LIBS_NOT_INSTALLED: "The CUDA libraries that this TensorFlow opens are not there",
    Cause.LIBS_NOT_ON_PATH: "The loader does not look where the CUDA libraries are",
    Cause.LIBS_TRANSITIVE: "A library that another library needs is missing",
    Cause.LIBS_UNLISTED: "CUDA libraries are missing, and this TensorFlow does not say which",
    Cause.CUDNN_MISSING: "cuDNN, in the version that this TensorFlow opens, cannot be found",
    Cause.CUDNN_VERSION_MISMATCH: "The cuDNN that is loaded does not fit this TensorFlow",
    Cause.CUDNN_INIT_FAILED: "cuDNN is there and does not start",
    Cause.CUBLAS_INIT_FAILED: "cuBLAS is there and does not start, or cannot run",
    Cause.IMPORT_MISSING_CUDA_LIB: "`import tensorflow` fails for want of a CUDA library",
    Cause.LIBDEVICE_OR_PTXAS_MISSING: "XLA does not find libdevice or ptxas",
    Cause.CUPTI_MISSING: "The profiler does not find CUPTI; nothing else needs it",
    Cause.CPU_ONLY_BUILD: "This TensorFlow seems to be built without GPU code",
    Cause.WINDOWS_NATIVE_UNSUPPORTED: "TensorFlow from 2.11 on has no GPU support on native Windows",
    Cause.BOTH_PACKAGES: "Two TensorFlow packages lie over each other",
    Cause.NO_MATCHING_WHEEL: "There is no package of that version for this Python and platform",
    Cause.ILLEGAL_INSTRUCTION_AVX: "The processor lacks an instruction set (AVX) that this build uses",
    Cause.GLIBC_TOO_OLD: "The system's C library is too old for this TensorFlow",
    Cause.LIBSTDCXX_TOO_OLD: "The libstdc++ that is loaded is too old for this TensorFlow",
    Cause.NUMPY_ABI: "numpy is of another binary interface than TensorFlow was compiled for",
    Cause.PROTOBUF_CONFLICT: "protobuf is of a version with which this TensorFlow cannot work",
    Cause.MSVC_RUNTIME_MISSING: "A DLL is missing on Windows: most often the Visual C++ runtime",
    Cause.GPU_TOO_OLD: "The card is older than this TensorFlow has code for",
    Cause.GPU_TOO_NEW: "The card is newer than this TensorFlow has code for",
    Cause.OOM: "The GPU's memory did not suffice",
    Cause.GPU_BUSY_OTHER_PROCESS: "Another process holds the GPU's memory",
    Cause.NCCL_FAILURE: "NCCL, through which several GPUs speak with each other, failed",
    Cause.XLA_GPU_ONLY: "Only XLA_GPU devices are listed: no GPU is registered",
    Cause.PLACEMENT_ERROR: "The program asks for a device that is not there, or that cannot run this operation",
    Cause.NO_NVIDIA_RUNTIME: "The container engine cannot give GPUs to containers",
    Cause.CONTAINER_NO_GPU: "The container was started without GPUs",
    Cause.CONTAINER_CUDA_REQUIREMENT: "The image demands a newer driver than the host has",
    Cause.CONTAINER_DRIVER_LIBS: "The NVIDIA container tools cannot use the driver's libraries on the host",
    Cause.CONTAINER_NVML_LOST: "The running container has lost its GPUs",
    Cause.PACKAGE_CONFLICT: "A package that TensorFlow imports does not fit it",
    Cause.SHADOWED_MODULE: "Another module is imported in place of the one that is meant",
    Cause.DAMAGED_FILE: "A file of TensorFlow or CUDA is damaged",
    Cause.NOT_PERMITTED: "A file that TensorFlow needs may not be read or run",
    Cause.PYTHON_UNUSABLE: "Python does not start",
    Cause.TENSORFLOW_MISSING: "There is no TensorFlow in this Python",
}

_INSTALL_DRIVER = Remedy(
    "Install NVIDIA's driver with the system's package manager, then restart.", changes_system=True
)
_RESTART = Remedy(
    "Restart the machine: the new kernel module is loaded then.", ("sudo reboot",), changes_system=True
)
_GPUS_ALL = Remedy("Start the container with GPUs.", ("docker run --rm --gpus all IMAGE nvidia-smi",))
_TOOLKIT = Remedy(
    "Install the NVIDIA Container Toolkit on the host and register it with the engine.",
    (
        "sudo apt-get install nvidia-container-toolkit",
        "sudo nvidia-ctk runtime configure",
        "sudo systemctl restart docker",
    ),
    changes_system=True,
)
_GROW = Remedy(
    "Let TensorFlow take memory as it needs it, and look who else holds some.",
    ("export TF_FORCE_GPU_ALLOW_GROWTH=true", "nvidia-smi"),
)
_NAME_THEM = Remedy(
    "Let TensorFlow name the libraries: run the program once more under tfdoctor, which has them named.",
    ("tfdoctor run python3 -c \"import tensorflow as tf; tf.config.list_physical_devices('GPU')\"",),
)

_FIXED: dict[Cause, tuple[Remedy, ...]] = {
    Cause.NO_DRIVER: (
        _INSTALL_DRIVER,
        Remedy(
            "In a container, start it with GPUs; on a cluster, run on a node that has some.",
            _GPUS_ALL.commands,
        ),
    ),
    Cause.NO_DEVICE: (Remedy("See whether the driver shows a card at all.", ("nvidia-smi -L",)), CHECK),
    Cause.HIDDEN_BY_ENV: (
        Remedy(
            "Remove the variable, or ask the scheduler (Ray: num_gpus) for a GPU.",
            ("unset CUDA_VISIBLE_DEVICES",),
        ),
    ),
    Cause.DRIVER_TOO_OLD: (
        Remedy(
            "Install a newer NVIDIA driver; `matrix` shows which one.", ("tfdoctor matrix --tf latest",), True
        ),
    ),
    Cause.DRIVER_LIB_MISMATCH: (
        _RESTART,
        Remedy("In a container or an image: remove the driver's libraries that it brings itself."),
    ),
    Cause.DRIVER_INIT_UNKNOWN: (
        Remedy(
            "Load the module that serves CUDA again (suspend and some updates lose it); else restart.",
            ("sudo modprobe nvidia_uvm",),
            changes_system=True,
        ),
        CHECK,
    ),
    Cause.COMPAT_NOT_SUPPORTED: (
        _RESTART,
        Remedy("Take the folder of the cuda-compat package off LD_LIBRARY_PATH, or remove the package."),
    ),
    Cause.STUB_LIBCUDA: (
        Remedy("Take the folder `stubs` off LD_LIBRARY_PATH; in a container, start it with GPUs."),
        CHECK,
    ),
    Cause.WSL_LIBCUDA: (
        Remedy(
            "Put WSL's own driver folder first.",
            ('export LD_LIBRARY_PATH="/usr/lib/wsl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',),
        ),
    ),
    Cause.LIBS_UNLISTED: (_NAME_THEM, CHECK),
    Cause.CUDNN_INIT_FAILED: (_GROW, CHECK),
    Cause.CUBLAS_INIT_FAILED: (_GROW, CHECK),
    Cause.OOM: (
        Remedy(
            "Use a smaller batch or model, or mixed precision; close what else uses the GPU.", ("nvidia-smi",)
        ),
        _GROW,
    ),
    Cause.GPU_BUSY_OTHER_PROCESS: (
        Remedy("See who holds the memory, and end it or choose another GPU.", ("nvidia-smi",)),
        _GROW,
    ),
    Cause.NCCL_FAILURE: (Remedy("Let NCCL say more.", ("export NCCL_DEBUG=INFO",)), CHECK),
    Cause.LIBDEVICE_OR_PTXAS_MISSING: (
        Remedy(
            "Name the folder of a CUDA toolkit that has nvvm/libdevice and bin/ptxas.",
            ("export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda",),
        ),
    ),
    Cause.WINDOWS_NATIVE_UNSUPPORTED: (
        Remedy("Use WSL2 or a container; TensorFlow 2.10 is the last for native Windows."),
    ),
    Cause.NO_NVIDIA_RUNTIME: (_TOOLKIT,),
    Cause.CONTAINER_NO_GPU: (_GPUS_ALL, _TOOLKIT),
    Cause.CONTAINER_CUDA_REQUIREMENT: (
        Remedy("Update the host's driver, or use an image with an older CUDA.", changes_system=True),
    ),
    Cause.CONTAINER_DRIVER_LIBS: (
        Remedy(
            "See whether the driver works on the host; reinstall it and the container toolkit where it does not.",
            ("nvidia-smi", "nvidia-container-cli -k -d /dev/stderr info"),
        ),
    ),
    Cause.CONTAINER_NVML_LOST: (
        Remedy(
            "Start the container again. To keep it from happening, name the device nodes or use the cgroupfs driver.",
            (
                "docker run --gpus all --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm IMAGE",
            ),
        ),
    ),
    Cause.CUPTI_MISSING: (
        Remedy("Put extras/CUPTI/lib64 of the CUDA toolkit on LD_LIBRARY_PATH, or do without the profiler."),
    ),
    Cause.MSVC_RUNTIME_MISSING: (
        Remedy("Install the Microsoft Visual C++ Redistributable (x64, 2015 or newer).", changes_system=True),
    ),
    Cause.NUMPY_ABI: (
        Remedy("Install the numpy that this TensorFlow was made for.", ("python3 -m pip install 'numpy<2'",)),
    ),
    Cause.PROTOBUF_CONFLICT: (
        Remedy(
            "Install the protobuf that this TensorFlow was made for.",
            ("python3 -m pip install 'protobuf<3.21'",),
        ),
    ),
    Cause.PACKAGE_CONFLICT: (
        Remedy(
            "Install the packages that this TensorFlow asks for, in its environment.",
            ("python3 -m pip check",),
        ),
        CHECK,
    ),
    Cause.SHADOWED_MODULE: (
        Remedy("Rename the file that has a module's name, or start from another folder."),
        CHECK,
    ),
    Cause.DAMAGED_FILE: (
        Remedy("Install the package of that file again, without what pip keeps of it (--no-cache-dir)."),
        CHECK,
    ),
    Cause.NOT_PERMITTED: (
        Remedy("See which user may read and run that file, and whether its file system is mounted noexec."),
        CHECK,
    ),
    Cause.PYTHON_UNUSABLE: (
        Remedy("Make the environment anew: the Python that it was made with is gone."),
        CHECK,
    ),
    Cause.TENSORFLOW_MISSING: (
        Remedy(
            "See which TensorFlow fits, and install it into the Python that runs the program.",
            ("tfdoctor recommend",),
        ),
        CHECK,
    ),
    Cause.PLACEMENT_ERROR: (
        Remedy(
            "Let TensorFlow choose another device where needed: tf.config.set_soft_device_placement(True)."
        ),
    ),
    Cause.ILLEGAL_INSTRUCTION_AVX: (
        Remedy(
            "Use a build made for this processor (conda-forge's, or TensorFlow 1.5, the last without AVX).",
            ("grep -c avx /proc/cpuinfo",),
        ),
    ),
    Cause.LIBSTDCXX_TOO_OLD: (
        Remedy("In conda, update its libstdc++.", ("conda install -c conda-forge libstdcxx-ng",)),
    ),
}


def remedies(case: Case, cause: Cause) -> tuple[Remedy, ...]:
    """What to do about this cause, with the versions of the release that wrote the log where it is known."""
    if cause is Cause.HEALTHY:
        return ()
    fixed = _FIXED.get(cause)
    if cause in _NOT_THIS_RELEASE:
        return (_another_release(case), *_libraries(case)[:1], CHECK)
    if cause in _NEEDS_LIBRARIES:
        return (*_libraries(case), CHECK)
    if cause is Cause.LIBS_UNLISTED:
        return (*_libraries(case), _NAME_THEM)
    return fixed if fixed is not None else (CHECK,)


_NEEDS_LIBRARIES = frozenset(
    {
        Cause.LIBS_NOT_INSTALLED,
        Cause.LIBS_WRONG_VERSION,
        Cause.LIBS_NOT_ON_PATH,
        Cause.LIBS_TRANSITIVE,
        Cause.CUDNN_MISSING,
        Cause.CUDNN_VERSION_MISMATCH,
        Cause.IMPORT_MISSING_CUDA_LIB,
        Cause.XLA_GPU_ONLY,
        Cause.CPU_ONLY_BUILD,
    }
)
_NOT_THIS_RELEASE = frozenset(
    {Cause.GPU_TOO_NEW, Cause.GPU_TOO_OLD, Cause.NO_MATCHING_WHEEL, Cause.GLIBC_TOO_OLD}
)


def _another_release(case: Case) -> Remedy:
    """Which release fits: for the cards that the log names, else for the machine that is asked."""
    names = dict.fromkeys(device.name for device in case.devices if device.name)
    cards = "".join(f" --gpu {shlex.quote(name)}" for name in list(names)[:4])
    return Remedy("See which TensorFlow fits, and how to get it.", (f"tfdoctor recommend{cards}",))


def _libraries(case: Case) -> tuple[Remedy, ...]:
    """What this release needs, and the shortest way to have it."""
    release, version = case.origin.release, case.origin.version
    if release is None or not release.gpu:
        return (Remedy("See what each release needs.", ("tfdoctor matrix",)),)
    exact = version or release.minor
    cudnn = f" and cuDNN {release.cudnn}" if release.cudnn else ""
    about = "" if version else " (the release was deduced from the names of the libraries)"
    command = f"tfdoctor matrix --tf {shlex.quote(exact)}"
    needs = Remedy(f"TensorFlow {exact} needs CUDA {release.cuda}{cudnn}{about}.", (command,))
    if case.log.has("windows-hint"):
        return (needs,)
    built = exact if version is None or versions.is_version(version) else release.version
    image = Remedy(
        "Or build a container image in which it finds them.", (f"tfdoctor build --tf {shlex.quote(built)}",)
    )
    if release.pip_extra is None or not versions.at_least(release.minor, "2.14"):
        return (needs, image)
    wanted = shlex.quote(f"{release.package}[{release.pip_extra}]=={release.version}")
    install = Remedy("Install it with its CUDA libraries.", (f"python3 -m pip install {wanted}",))
    return (install, needs, image)
