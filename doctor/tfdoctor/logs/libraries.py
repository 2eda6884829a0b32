"""Find the libraries that a log reports as missing, and the reason why they are missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause
from tfdoctor.logs.dso import is_not_found_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.logs.events import Event, Log

__all__ = [
    "UnopenedLibrary",
    "choose_library_cause",
    "describe_available_libraries",
    "find_mismatched_cuda",
    "find_missing_libraries",
    "find_search_path",
    "is_cudnn_library",
    "is_driver_library",
    "is_nvml_library",
    "is_partly_installed",
    "strip_library_name",
]

_LIBRARY_PATH_LABEL = re.compile(r"[;,]?\s{0,3}LD_L\w{1,10}_PATH:\s{0,3}")
_SONAME_IN_ERROR = re.compile(r"(lib[\w.+-]{1,100}\.so[.\d]{0,24}):")
_GPU_LIBRARY = re.compile(
    r"(?:lib)?(?:cuda(?:rt)?|cublas|cublasLt|cufft|cufftw|curand|cusolver|cusolverMg|cusparse|cusparseLt|cudnn\w{0,40}|"
    r"cupti|nccl|nvcuda|nvrtc|nvrtc-builtins|nvJitLink|nvToolsExt|nvidia-[\w-]{1,40}|nvinfer\w{0,20}|nvonnxparser|"
    r"rocblas|rocsolver|rocrand|rocfft|rocm\w{0,20}|hip\w{0,20}|amdhip64|MIOpen|rccl|roctracer\w{0,10}|zlibwapi|"
    r"mklml|iomp5|d3d12|dxcore|directml[.\w]{0,60})",
    re.IGNORECASE,
)
"""Names of GPU libraries as `strip_library_name` returns them."""
_CUDA_VERSION_IN_PATH = re.compile(r"cuda[-_]?(\d{1,2}\.\d)\b")
_CUDA_FOLDER = re.compile(r"cuda", re.IGNORECASE)
_UNFIT_FILE_ERROR = re.compile(
    r"undefined symbol|version .{1,80} not found|invalid ELF header|wrong ELF class"
)
"""Loader errors for a library file that was found but has another version or another architecture."""
_DLL_VERSION = re.compile(r"64_(\d{2,3})(?:_\d)?\.dll$|32_(\d{2,3})\.dll$", re.IGNORECASE)
"""The digits of the version in a DLL name: "110" in "cudart64_110.dll" means 11.0."""


@dataclass(frozen=True, slots=True)
class UnopenedLibrary:
    """A library that could not be opened."""

    soname: str
    """The library that the loader did not find."""
    requested_soname: str
    """The library that TensorFlow tried to open: `soname` itself, or one that depends on it."""
    event: Event
    error: str = ""
    """The error text, or an empty string if the log has none."""
    search_path: str | None = None
    """LD_LIBRARY_PATH at that time, or None if it was not set or the message does not include it."""

    @property
    def is_transitive(self) -> bool:
        """Whether a dependency is missing, not the library that TensorFlow tried to open."""
        return self.soname != self.requested_soname

    @property
    def is_of_driver(self) -> bool:
        """Whether the driver's libcuda was found, and this library that it needs was not."""
        return self.is_transitive and is_driver_library(self.requested_soname)


def strip_library_name(name: str) -> str:
    """Return the base name of a library: "cudart" for "libcudart.so.11.0" and "cudart64_110.dll"."""
    name = name.rpartition("/")[2].rpartition("\\")[2]
    if name.lower().endswith(".dll"):
        return re.sub(r"(?:64|32)?(?:_[\d_]{1,12})?\.dll$", "", name, flags=re.IGNORECASE)
    return re.sub(r"(?:\.\d{1,6})*\.dylib$", "", name).partition(".so")[0].removeprefix("lib")


def is_cudnn_library(name: str) -> bool:
    return strip_library_name(name).startswith("cudnn")


def is_driver_library(name: str) -> bool:
    return strip_library_name(name) in ("cuda", "nvcuda")


def is_nvml_library(name: str) -> bool:
    return strip_library_name(name) == "nvidia-ml"


def is_tensorrt_library(name: str) -> bool:
    return strip_library_name(name).startswith(("nvinfer", "nvonnx"))


def is_cupti_library(name: str) -> bool:
    return strip_library_name(name) == "cupti"


def is_gpu_library(name: str) -> bool:
    """Return whether this is a library of CUDA, cuDNN or ROCm, or one that they need, but not of TensorRT."""
    return _GPU_LIBRARY.fullmatch(strip_library_name(name)) is not None and not is_tensorrt_library(name)


def find_missing_libraries(log: Log) -> tuple[UnopenedLibrary, ...]:
    """Return the GPU libraries that could not be opened and were not opened later, in log order."""
    libraries: dict[str, UnopenedLibrary] = {}
    signature_ids = (
        "dso-failed",
        "dso-failed-old",
        "driver-dso-failed",
        "import-so",
        "import-dll",
        "import-dylib",
        "lazy-library-failed",
        "damaged-library",
    )
    for event in log.list_events(*signature_ids):
        for missing in _parse_event(event):
            library = libraries.get(missing.soname)
            # the first failure counts, unless only a later one includes the search path
            if library is None or (library.search_path is None and missing.search_path is not None):
                libraries[missing.soname] = missing
    opened_orders = {event.get("soname"): event.order for event in log.list_events("dso-opened")}
    last_failed_orders = {}
    for event in log.list_events("dso-failed", "dso-failed-old", "driver-dso-failed"):
        last_failed_orders[event.get("soname")] = event.order
    incomplete_drivers = {missing.requested_soname for missing in libraries.values() if missing.is_of_driver}
    return tuple(
        missing
        for soname, missing in libraries.items()
        # libcuda itself was found if the loader misses a library that it needs
        if soname not in incomplete_drivers
        # -1: the library was never opened
        and opened_orders.get(soname, -1)
        < last_failed_orders.get(missing.requested_soname, missing.event.order)
    )


def _parse_event(event: Event) -> list[UnopenedLibrary]:
    """Return the missing GPU libraries that a message names."""
    soname = event.get("soname").rstrip(".")
    if event.id == "import-so":
        return [] if event.get("opened") else _list_unopened(soname, soname, event)
    if event.id == "import-dll":
        # the error names several libraries if any of them can be the missing one
        names = [name.strip() for name in re.split(r" or |,", soname)]
        return [UnopenedLibrary(name, name, event) for name in names if name]
    if event.id == "lazy-library-failed":
        soname_match = _SONAME_IN_ERROR.search(event.get("error"))
        libraries = _list_unopened(soname, soname, event)
        if soname_match is not None and soname_match[1] != soname and is_not_found_error(event.get("error")):
            libraries += _list_unopened(soname_match[1], soname, event)
        return libraries
    if event.id in ("damaged-library", "import-dylib"):
        return _list_unopened(soname, soname, event)
    error_text = "" if event.id == "dso-failed-old" else event.get("error")
    parts = _LIBRARY_PATH_LABEL.split(error_text, maxsplit=1)
    error = parts[0].strip()
    search_path = parts[1].strip() if len(parts) > 1 else event.captures.get("path")
    soname_match = _SONAME_IN_ERROR.match(error)
    missing_soname = soname_match[1] if soname_match is not None and is_not_found_error(error) else soname
    return _list_unopened(_choose_untruncated_name(missing_soname, soname), soname, event, error, search_path)


def _choose_untruncated_name(missing_soname: str, requested_soname: str) -> str:
    """Return `requested_soname` if one of the names is the beginning of the other, else `missing_soname`.

    A message names the library twice, and an editor or a terminal can truncate one of the names.
    """
    is_truncated = missing_soname.startswith(requested_soname) or requested_soname.startswith(missing_soname)
    return requested_soname if is_truncated else missing_soname


def _list_unopened(
    missing_soname: str, requested_soname: str, event: Event, error: str = "", search_path: str | None = None
) -> list[UnopenedLibrary]:
    """Return the missing library as a list, which is empty if neither name is a GPU library."""
    return (
        [UnopenedLibrary(missing_soname, requested_soname, event, error, search_path)]
        if is_gpu_library(missing_soname) or is_gpu_library(requested_soname)
        else []
    )


# ---------------------------------------------------------------- reasons


def find_search_path(missing: Sequence[UnopenedLibrary]) -> str | None:
    """Return LD_LIBRARY_PATH from the first message that includes it, or None if no message does."""
    return next((library.search_path for library in missing if library.search_path is not None), None)


def list_required_cuda_versions(names: Sequence[str], compat: Compat) -> tuple[str, ...]:
    """Return the CUDA versions that these libraries belong to: "10.0" is exact, and "11" means any 11.x."""
    cuda_versions: dict[str, None] = {}
    for name in names:
        version_match = _DLL_VERSION.search(name)
        if version_match is not None:
            digits = version_match[1] or version_match[2]
            # the names of other DLLs do not contain the CUDA version
            if strip_library_name(name) in ("cudart", "cublas") and not is_cudnn_library(name):
                cuda_versions[f"{digits[:-1]}.{digits[-1]}" if len(digits) > 1 else digits] = None
            continue
        if not is_cudnn_library(name):
            cuda_versions.update(dict.fromkeys(compat.list_cuda_with_soname(name)))
    return tuple(cuda_versions)


def choose_library_cause(missing: Sequence[UnopenedLibrary], log: Log, compat: Compat) -> Cause:
    """Return the most likely cause for these missing libraries.

    A log seldom shows for certain whether they have the wrong version, are not installed or are not on the search
    path. The cause is LIBS_TRANSITIVE if only dependencies are missing, and CUDNN_MISSING if only cuDNN is missing.
    `missing` must hold only libraries that registration needs: not the driver, CUPTI or TensorRT.
    """
    direct = [library for library in missing if not library.is_transitive]
    if not direct:
        return Cause.LIBS_TRANSITIVE
    if all(is_cudnn_library(library.soname) for library in direct):
        return Cause.CUDNN_MISSING
    toolkit_libraries = [library for library in direct if not is_cudnn_library(library.soname)]
    opened_sonames = {event.get("soname") for event in log.list_events("dso-opened")}
    is_rocm = any(
        strip_library_name(library.soname).startswith(("roc", "hip", "MIOpen"))
        for library in toolkit_libraries
    )
    opened_toolkit = [
        name
        for name in opened_sonames
        if not is_driver_library(name) and not is_nvml_library(name) and not is_cupti_library(name)
    ]
    opened_gpu_libraries = [name for name in opened_toolkit if is_gpu_library(name)]
    path = find_search_path(missing) or ""
    if any(_UNFIT_FILE_ERROR.search(library.error) for library in toolkit_libraries):
        return Cause.LIBS_WRONG_VERSION
    if is_rocm:
        return Cause.LIBS_NOT_INSTALLED
    required = list_required_cuda_versions([library.soname for library in toolkit_libraries], compat)
    other_versions = [
        version for version in _CUDA_VERSION_IN_PATH.findall(path) if not _is_required_cuda(version, required)
    ]
    same_versions = [
        version for version in _CUDA_VERSION_IN_PATH.findall(path) if _is_required_cuda(version, required)
    ]
    if other_versions and not same_versions:  # the search path names only other CUDA versions
        return Cause.LIBS_WRONG_VERSION
    opened_cuda_libraries = [name for name in opened_gpu_libraries if not is_cudnn_library(name)]
    if same_versions:
        return Cause.LIBS_NOT_ON_PATH if opened_cuda_libraries else Cause.LIBS_WRONG_VERSION
    # cuDNN is installed separately: alone it shows no CUDA
    if (
        not opened_cuda_libraries
        and not path
        and any(strip_library_name(library.soname) == "cudart" for library in toolkit_libraries)
    ):
        return Cause.LIBS_NOT_INSTALLED
    # a CUDA of unknown version is installed
    if opened_gpu_libraries or _CUDA_FOLDER.search(path) or _has_opened_runtime(log):
        return Cause.LIBS_WRONG_VERSION
    return Cause.LIBS_NOT_INSTALLED


def describe_available_libraries(
    missing: Sequence[UnopenedLibrary], log: Log, compat: Compat, gpu_names: Sequence[str]
) -> str:
    """Describe the CUDA versions, libraries and GPUs in the log. Return an empty string if it names none.

    `gpu_names` are the different names of the GPUs in the log.
    """
    sentences = []
    mismatched_cuda = find_mismatched_cuda(missing, compat)
    if mismatched_cuda is not None:
        path_version, required_version = mismatched_cuda
        sentences.append(f"CUDA {path_version} is on LD_LIBRARY_PATH, but CUDA {required_version} is needed.")
    sonames = _list_opened_libraries(missing, log)
    if sonames:
        sentences.append(f"{', '.join(sonames[:6])} {'was' if len(sonames) == 1 else 'were'} found.")
    gpu_count = len({event.get("index") for event in log.list_events("device-found")})
    if gpu_count and log.has("registration-skipped"):
        name = f" ({gpu_names[0]})" if len(gpu_names) == 1 else ""
        sentences.append(
            f"One card{name} is present but not registered."
            if gpu_count == 1
            else f"{gpu_count} cards{name} are present, but none is registered."
        )
    return " ".join(sentences)


def _list_opened_libraries(missing: Sequence[UnopenedLibrary], log: Log) -> list[str]:
    """Return the sonames of the GPU libraries that were opened, without the driver and NVML."""
    opened_sonames = dict.fromkeys(event.get("soname") for event in log.list_events("dso-opened"))
    unopened_names = {library.requested_soname for library in missing}
    return [
        soname
        for soname in opened_sonames
        if is_gpu_library(soname)
        and soname not in unopened_names
        and not is_driver_library(soname)
        and not is_nvml_library(soname)
    ]


def is_partly_installed(missing: Sequence[UnopenedLibrary], log: Log) -> bool:
    """Return whether other GPU libraries were opened.

    Return False if an error says that a missing library has another version.
    """
    return not any(_UNFIT_FILE_ERROR.search(library.error) for library in missing) and bool(
        _list_opened_libraries(missing, log)
    )


def is_cuda_only_on_search_path(missing: Sequence[UnopenedLibrary], log: Log) -> bool:
    """Return whether only the search path names CUDA. The folders on it may be empty or missing."""
    return (
        not any(_UNFIT_FILE_ERROR.search(library.error) for library in missing)
        and not _list_opened_libraries(missing, log)
        and not _has_opened_runtime(log)
        and _CUDA_FOLDER.search(find_search_path(missing) or "") is not None
    )


def find_mismatched_cuda(missing: Sequence[UnopenedLibrary], compat: Compat) -> tuple[str, str] | None:
    """Return (CUDA version on the search path, required CUDA version) if they differ.

    The first is "A and B" if the path names several. Return None if the required version is on the path too, or if
    one of the versions is not known.
    """
    runtime_soname = next(
        (library.soname for library in missing if strip_library_name(library.soname) == "cudart"), ""
    )
    # only the name of libcudart identifies the exact version
    required = compat.list_cuda_with_soname(runtime_soname) if runtime_soname.startswith("lib") else ()
    required = required or list_required_cuda_versions(
        [library.soname for library in missing if not is_driver_library(library.soname)], compat
    )
    path_versions = list(dict.fromkeys(_CUDA_VERSION_IN_PATH.findall(find_search_path(missing) or "")))
    if (
        not required
        or not path_versions
        or any(_is_required_cuda(version, required) for version in path_versions)
    ):
        return None
    return " and ".join(path_versions[:2]), required[0]


def _is_required_cuda(version: str, required: Sequence[str]) -> bool:
    """Return whether a CUDA version such as "11.2" is required, as "11.2" or as "11"."""
    return any(version == item or version.startswith(f"{item}.") for item in required)


def _has_opened_runtime(log: Log) -> bool:
    """Return whether libcudart must have been opened, although the log does not say so.

    TensorFlow opens libcudart first. If several other libraries failed and libcudart did not, it was opened.
    """
    failed_sonames = {event.get("soname") for event in log.list_events("dso-failed")}
    return len(failed_sonames) >= 3 and not any(
        strip_library_name(soname) == "cudart" for soname in failed_sonames
    )


def list_sonames(missing: Sequence[UnopenedLibrary]) -> tuple[str, ...]:
    """Return the sonames in log order, each once."""
    return tuple(dict.fromkeys(library.soname for library in missing))
