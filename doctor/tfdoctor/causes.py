"""What each root cause means, in a sentence: `tfdoctor explain CAUSE`, also where no rule has it (yet).

The vocabulary itself is `findings.Cause`; every word of it has its line here, and a test holds the two
together.
"""

from __future__ import annotations

from tfdoctor.findings import Cause

MEANINGS: dict[Cause, str] = {
    Cause.HEALTHY: "Nothing was found that stands between TensorFlow and the GPU.",
    Cause.INCONCLUSIVE: "What could be looked at does not say what is wrong.",
    Cause.NO_DRIVER: (
        "The driver's library (libcuda.so.1, on Windows nvcuda.dll) cannot be opened, or no kernel "
        "driver stands behind it (CUDA error 303)."
    ),
    Cause.NO_DEVICE: "The driver answers, and has no GPU to show.",
    Cause.HIDDEN_BY_ENV: (
        "CUDA_VISIBLE_DEVICES, or a scheduler that sets it, hides the GPUs from the program."
    ),
    Cause.DRIVER_TOO_OLD: (
        "The driver is older than the CUDA that this TensorFlow was built with can work with."
    ),
    Cause.DRIVER_LIB_MISMATCH: (
        "The kernel module and the driver's libraries are of two versions: an update without a reboot "
        "(CUDA error 803)."
    ),
    Cause.DRIVER_INIT_UNKNOWN: (
        "The driver's library opens, and starting it or asking a device fails with CUDA_ERROR_UNKNOWN (999)."
    ),
    Cause.COMPAT_NOT_SUPPORTED: (
        "A forward-compatibility libcuda is in use on a card or driver that does not take it (CUDA error "
        "804)."
    ),
    Cause.STUB_LIBCUDA: (
        "The CUDA toolkit's stub, which is for linking only, is found in place of the driver's libcuda "
        "(CUDA error 34)."
    ),
    Cause.WSL_LIBCUDA: "Under WSL the libcuda.so.1 that is found is not the one of /usr/lib/wsl/lib.",
    Cause.NVML_MISSING: (
        "libnvidia-ml.so.1 cannot be opened, and TensorFlow from 2.21 on registers no GPU without it."
    ),
    Cause.LIBS_WRONG_VERSION: (
        "CUDA or cuDNN is installed, in another version than the one whose file names this TensorFlow opens."
    ),
    Cause.LIBS_NOT_INSTALLED: "A CUDA library that this TensorFlow opens is nowhere on the machine.",
    Cause.LIBS_NOT_ON_PATH: (
        "The CUDA libraries are on the machine, and the loader does not look where they are."
    ),
    Cause.LIBS_TRANSITIVE: (
        "A library that TensorFlow opens is found, and another one that this library needs itself is not."
    ),
    Cause.LIBS_UNLISTED: (
        "TensorFlow 2.12 or newer says that some libraries could not be opened, and does not say which."
    ),
    Cause.CUDNN_MISSING: (
        "cuDNN, in the major version that this TensorFlow opens, cannot be found by the loader."
    ),
    Cause.CUDNN_VERSION_MISMATCH: (
        "The cuDNN that is loaded is older than the one TensorFlow was built with, or its parts are of "
        "several versions."
    ),
    Cause.CUDNN_INIT_FAILED: (
        "cuDNN is loaded and cannot make its handle: most often the GPU's memory is full, or the driver "
        "is too old for it."
    ),
    Cause.CUBLAS_INIT_FAILED: (
        "cuBLAS is loaded and cannot make its handle: most often the GPU's memory is full, or the card "
        "is not one it has code for."
    ),
    Cause.IMPORT_MISSING_CUDA_LIB: (
        "`import tensorflow` itself fails for want of a CUDA library: 1.13 and older, and Windows, link "
        "them hard."
    ),
    Cause.LIBDEVICE_OR_PTXAS_MISSING: (
        "XLA compiles for the GPU and finds no libdevice.10.bc, or no ptxas that it can use."
    ),
    Cause.CUPTI_MISSING: "libcupti, which only the profiler needs, cannot be opened.",
    Cause.CPU_ONLY_BUILD: (
        "This TensorFlow was built without GPU code; no driver and no library can change that."
    ),
    Cause.WINDOWS_NATIVE_UNSUPPORTED: (
        "TensorFlow from 2.11 on has no GPU code for native Windows; WSL2 or a container is the way."
    ),
    Cause.BOTH_PACKAGES: (
        "Two TensorFlow distributions (tensorflow and tensorflow-gpu, or two builds) are installed over "
        "each other."
    ),
    Cause.NO_MATCHING_WHEEL: "There is no wheel of that TensorFlow for this Python or platform.",
    Cause.ILLEGAL_INSTRUCTION_AVX: (
        "The processor lacks an instruction set (AVX, AVX2, …) that this build uses: the process ends "
        "with SIGILL."
    ),
    Cause.GLIBC_TOO_OLD: (
        "The C library of this system is older than what TensorFlow's shared objects ask for."
    ),
    Cause.LIBSTDCXX_TOO_OLD: (
        "The libstdc++ that is loaded first (the system's or conda's) lacks a symbol version that "
        "TensorFlow asks for."
    ),
    Cause.NUMPY_ABI: (
        "The installed numpy is of another binary interface than the one TensorFlow was compiled for."
    ),
    Cause.PROTOBUF_CONFLICT: (
        "The installed protobuf is one with which this TensorFlow's generated code cannot work."
    ),
    Cause.MSVC_RUNTIME_MISSING: (
        "On Windows, the Microsoft Visual C++ runtime that TensorFlow links against is missing."
    ),
    Cause.GPU_TOO_OLD: (
        "The card's compute capability is below what TensorFlow takes, or what the wheel or its cuDNN "
        "has code for."
    ),
    Cause.GPU_TOO_NEW: (
        "The wheel has no machine code for this card: its PTX is compiled at first use, is refused, or "
        "is not there."
    ),
    Cause.OOM: "The GPU's memory is not enough for what was asked of it.",
    Cause.GPU_BUSY_OTHER_PROCESS: (
        "Another process holds the GPU's memory, or the GPU itself in exclusive mode."
    ),
    Cause.NCCL_FAILURE: "NCCL, through which several GPUs speak with each other, fails.",
    Cause.XLA_GPU_ONLY: (
        "XLA_GPU devices are listed and no GPU is registered: ordinary operations run on the CPU."
    ),
    Cause.PLACEMENT_ERROR: (
        "A program asks for a device that does not exist, or that cannot run that operation."
    ),
    Cause.NO_NVIDIA_RUNTIME: "The container engine has nothing with which it could give GPUs to a container.",
    Cause.CONTAINER_NO_GPU: "The container was started without GPUs.",
    Cause.CONTAINER_CUDA_REQUIREMENT: "The image demands a newer driver than the host has.",
    Cause.CONTAINER_DRIVER_LIBS: (
        "The NVIDIA container tools cannot load or find the driver's libraries on the host."
    ),
    Cause.CONTAINER_NVML_LOST: (
        'A running container has lost its GPUs: "Failed to initialize NVML: Unknown Error".'
    ),
    Cause.PACKAGE_CONFLICT: (
        "A package that TensorFlow imports, or one that such a package imports, is of a version, or built in a way, "
        "with which the import fails."
    ),
    Cause.SHADOWED_MODULE: (
        "Python finds another module or installation under that name first: in the working folder, on PYTHONPATH, in "
        "the user's site-packages, through a .pth file."
    ),
    Cause.DAMAGED_FILE: (
        "A file of TensorFlow, of CUDA or of a plugin is cut off, of the wrong class, or not what its name says."
    ),
    Cause.NOT_PERMITTED: (
        "It is there, and this user or this file system (its mode, noexec) does not let it be read or run."
    ),
    Cause.PYTHON_UNUSABLE: "The Python that is to be examined does not start, does not answer, or is gone.",
    Cause.TENSORFLOW_MISSING: "There is no TensorFlow in this Python.",
}
