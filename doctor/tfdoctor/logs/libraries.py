"""Find the libraries that a log reports as missing, and the reason why they are missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.findings import Cause
from tfdoctor.logs.dso import is_not_found

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
    "is_cudnn",
    "is_driver",
    "is_nvml",
    "is_partly_installed",
    "strip_library_name",
]

_LIBRARY_PATH = re.compile(r"[;,]?\s{0,3}LD_L\w{1,10}_PATH:\s{0,3}")
_SONAME_IN_ERROR = re.compile(r"(lib[\w.+-]{1,100}\.so[.\d]{0,24}):")
_GPU_LIBRARY = re.compile(
    r"(?:lib)?(?:cuda(?:rt)?|cublas|cublasLt|cufft|cufftw|curand|cusolver|cusolverMg|cusparse|cusparseLt|cudnn\w{0,40}|"
    r"cupti|nccl|nvcuda|nvrtc|nvrtc-builtins|nvJitLink|nvToolsExt|nvidia-[\w-]{1,40}|nvinfer\w{0,20}|nvonnxparser|"
    r"rocblas|rocsolver|rocrand|rocfft|rocm\w{0,20}|hip\w{0,20}|amdhip64|MIOpen|rccl|roctracer\w{0,10}|zlibwapi|"
    r"mklml|iomp5)",
    re.IGNORECASE,
)
"""Names of GPU libraries as `strip_library_name` returns them."""
_CUDA_IN_PATH = re.compile(r"cuda[-_]?(\d{1,2}\.\d)\b")
_CUDA_FOLDER = re.compile(r"cuda", re.IGNORECASE)
_OTHER_VERSION = re.compile(r"undefined symbol|version .{1,80} not found|invalid ELF header|wrong ELF class")
"""Loader errors for a library file that is found but does not fit: another version or another architecture."""
_DLL_VERSION = re.compile(r"64_(\d{2,3})(?:_\d)?\.dll$|32_(\d{2,3})\.dll$", re.IGNORECASE)
"""The digits of the version in a DLL name: "110" in "cudart64_110.dll" means 11.0."""


@dataclass(frozen=True, slots=True)
class UnopenedLibrary:
    """A library that could not be opened."""

    soname: str
    """The library that the loader did not find."""
    requested: str
    """The library that TensorFlow tried to open: `soname` itself, or one that depends on it."""
    event: Event
    error: str = ""
    """The error text, or an empty string if the log has none."""
    search_path: str | None = None
    """LD_LIBRARY_PATH at that time, or None if it was not set or the message does not include it."""

    @property
    def is_transitive(self) -> bool:
        """Whether a dependency is missing, not the library that TensorFlow tried to open."""
        return self.soname != self.requested


def strip_library_name(name: str) -> str:
    """Return the base name of a library: "cudart" for "libcudart.so.11.0" and "cudart64_110.dll"."""
    name = name.rpartition("/")[2].rpartition("\\")[2]
    if name.lower().endswith(".dll"):
        return re.sub(r"(?:64|32)?(?:_[\d_]{1,12})?\.dll$", "", name, flags=re.IGNORECASE)
    return re.sub(r"(?:\.\d{1,6})*\.dylib$", "", name).partition(".so")[0].removeprefix("lib")


def is_cudnn(name: str) -> bool:
    return strip_library_name(name).startswith("cudnn")


def is_driver(name: str) -> bool:
    return strip_library_name(name) in ("cuda", "nvcuda")


def is_nvml(name: str) -> bool:
    return strip_library_name(name) == "nvidia-ml"


def is_tensorrt(name: str) -> bool:
    return strip_library_name(name).startswith(("nvinfer", "nvonnx"))


def is_cupti(name: str) -> bool:
    return strip_library_name(name) == "cupti"


def is_gpu_library(name: str) -> bool:
    """Return whether CUDA, cuDNN or ROCm contains or needs this library. TensorRT does not count."""
    return _GPU_LIBRARY.fullmatch(strip_library_name(name)) is not None and not is_tensorrt(name)


def find_missing_libraries(log: Log) -> tuple[UnopenedLibrary, ...]:
    """Return the GPU libraries that could not be opened and were not opened later, in log order."""
    libraries: dict[str, UnopenedLibrary] = {}
    signature_ids = (
        "dso-failed",
        "dso-failed-old",
        "import-so",
        "import-dll",
        "import-dylib",
        "lazy-library-failed",
        "damaged-library",
    )
    for event in log.list_events(*signature_ids):
        for missing in _parse_event(event):
            library = libraries.get(missing.soname)
            if library is None or (library.search_path is None and missing.search_path is not None):
                libraries[missing.soname] = missing
    opened = {event.get("soname"): event.order for event in log.list_events("dso-opened")}
    last_failed = {}
    for event in log.list_events("dso-failed", "dso-failed-old"):
        last_failed[event.get("soname")] = event.order
    return tuple(
        missing
        for name, missing in libraries.items()
        if opened.get(name, -1) < last_failed.get(missing.requested, missing.event.order)
    )


def _parse_event(event: Event) -> list[UnopenedLibrary]:
    """Return the missing GPU libraries that a message names."""
    soname = event.get("soname").rstrip(".")
    if event.id == "import-so":
        return [] if event.get("opened") else _make_unopened(soname, soname, event)
    if event.id == "import-dll":
        names = [name.strip() for name in re.split(r" or |,", soname)]
        return [UnopenedLibrary(name, name, event) for name in names if name]
    if event.id == "lazy-library-failed":
        soname_match = _SONAME_IN_ERROR.search(event.get("error"))
        result = _make_unopened(soname, soname, event)
        if soname_match is not None and soname_match[1] != soname and is_not_found(event.get("error")):
            result += _make_unopened(soname_match[1], soname, event)
        return result
    if event.id in ("damaged-library", "import-dylib"):
        return _make_unopened(soname, soname, event)
    parts = _LIBRARY_PATH.split(event.get("error") if event.id == "dso-failed" else "", maxsplit=1)
    error = parts[0].strip()
    path = parts[1].strip() if len(parts) > 1 else event.fields.get("path")
    soname_match = _SONAME_IN_ERROR.match(error)
    missing = soname_match[1] if soname_match is not None and is_not_found(error) else soname
    return _make_unopened(_choose_uncut_name(missing, soname), soname, event, error, path)


def _choose_uncut_name(missing: str, soname: str) -> str:
    """Return `soname` if one of the two names is the beginning of the other, else `missing`.

    A message names the library twice, and an editor or a terminal can truncate one of the names.
    """
    return soname if missing.startswith(soname) or soname.startswith(missing) else missing


def _make_unopened(
    missing: str, requested: str, event: Event, error: str = "", path: str | None = None
) -> list[UnopenedLibrary]:
    """Return a list with the missing library, or an empty list if neither name is a GPU library."""
    return (
        [UnopenedLibrary(missing, requested, event, error, path)]
        if is_gpu_library(missing) or is_gpu_library(requested)
        else []
    )


# ---------------------------------------------------------------- reasons


def find_search_path(missing: Sequence[UnopenedLibrary]) -> str | None:
    """Return LD_LIBRARY_PATH from the first message that includes it, or None if no message does."""
    return next((library.search_path for library in missing if library.search_path is not None), None)


def list_required_cuda_versions(names: Sequence[str], compat: Compat) -> tuple[str, ...]:
    """Return the CUDA versions that these libraries belong to.

    ("10.0",) is an exact version; ("11",) means any 11.x.
    """
    cudas: dict[str, None] = {}
    for name in names:
        version = _DLL_VERSION.search(name)
        if version is not None:
            digits = version[1] or version[2]
            # other DLLs have version numbers of their own
            if strip_library_name(name) in ("cudart", "cublas") and not is_cudnn(name):
                cudas[f"{digits[:-1]}.{digits[-1]}" if len(digits) > 1 else digits] = None
            continue
        if not is_cudnn(name):
            cudas.update(dict.fromkeys(compat.list_cuda_with_soname(name)))
    return tuple(cudas)


def choose_library_cause(missing: Sequence[UnopenedLibrary], log: Log, compat: Compat) -> Cause:
    """Return the most likely cause for these missing libraries.

    A log seldom shows for certain whether they have the wrong version, are not installed or are not on the search
    path. If only dependencies are missing, the cause is LIBS_TRANSITIVE; if only cuDNN is, CUDNN_MISSING.
    `missing` must hold only libraries that registration needs: not the driver, CUPTI or TensorRT.
    """
    direct = [library for library in missing if not library.is_transitive]
    if not direct:
        return Cause.LIBS_TRANSITIVE
    if all(is_cudnn(library.soname) for library in direct):
        return Cause.CUDNN_MISSING
    toolkit_libraries = [library for library in direct if not is_cudnn(library.soname)]
    opened = {event.get("soname") for event in log.list_events("dso-opened")}
    is_rocm = any(
        strip_library_name(library.soname).startswith(("roc", "hip", "MIOpen"))
        for library in toolkit_libraries
    )
    opened_toolkit = [
        name for name in opened if not is_driver(name) and not is_nvml(name) and not is_cupti(name)
    ]
    opened_gpu_libraries = [name for name in opened_toolkit if is_gpu_library(name)]
    path = find_search_path(missing) or ""
    if any(_OTHER_VERSION.search(library.error) for library in toolkit_libraries):
        return Cause.LIBS_WRONG_VERSION
    if is_rocm:
        return Cause.LIBS_NOT_INSTALLED
    required = list_required_cuda_versions([library.soname for library in toolkit_libraries], compat)
    other_versions = [
        version for version in _CUDA_IN_PATH.findall(path) if not _is_required_cuda(version, required)
    ]
    same_versions = [
        version for version in _CUDA_IN_PATH.findall(path) if _is_required_cuda(version, required)
    ]
    if other_versions and not same_versions:
        return Cause.LIBS_WRONG_VERSION
    opened_cuda_libraries = [name for name in opened_gpu_libraries if not is_cudnn(name)]
    if same_versions:
        return Cause.LIBS_NOT_ON_PATH if opened_cuda_libraries else Cause.LIBS_WRONG_VERSION
    if opened_gpu_libraries or _CUDA_FOLDER.search(path) or _has_opened_runtime(log):
        return Cause.LIBS_WRONG_VERSION
    return Cause.LIBS_NOT_INSTALLED


def describe_available_libraries(missing: Sequence[UnopenedLibrary], log: Log, compat: Compat) -> str:
    """Describe the CUDA, libraries and GPUs that the log shows. Return an empty string if it shows none."""
    sentences = []
    other_cuda = find_mismatched_cuda(missing, compat)
    if other_cuda is not None:
        sentences.append(f"CUDA {other_cuda[0]} is on LD_LIBRARY_PATH, but CUDA {other_cuda[1]} is needed.")
    opened = _list_opened_libraries(missing, log)
    if opened:
        sentences.append(f"{', '.join(opened[:6])} {'was' if len(opened) == 1 else 'were'} found.")
    gpu_count = len({event.get("index") for event in log.list_events("device-found")})
    if gpu_count and log.has("registration-skipped"):
        sentences.append(
            "One card is present but not registered."
            if gpu_count == 1
            else f"{gpu_count} cards are present, but none is registered."
        )
    return " ".join(sentences)


def _list_opened_libraries(missing: Sequence[UnopenedLibrary], log: Log) -> list[str]:
    """Return the sonames of the GPU libraries that were opened, without the driver and NVML."""
    opened = dict.fromkeys(event.get("soname") for event in log.list_events("dso-opened"))
    unopened_names = {library.requested for library in missing}
    return [
        soname
        for soname in opened
        if is_gpu_library(soname)
        and soname not in unopened_names
        and not is_driver(soname)
        and not is_nvml(soname)
    ]


def is_partly_installed(missing: Sequence[UnopenedLibrary], log: Log) -> bool:
    """Return whether other GPU libraries were opened.

    Return False if an error says that a missing library has another version.
    """
    return not any(_OTHER_VERSION.search(library.error) for library in missing) and bool(
        _list_opened_libraries(missing, log)
    )


def is_cuda_only_on_search_path(missing: Sequence[UnopenedLibrary], log: Log) -> bool:
    """Return whether the search path is the only sign of CUDA. Its folders may be empty or missing."""
    return (
        not any(_OTHER_VERSION.search(library.error) for library in missing)
        and not _list_opened_libraries(missing, log)
        and not _has_opened_runtime(log)
        and _CUDA_FOLDER.search(find_search_path(missing) or "") is not None
    )


def find_mismatched_cuda(missing: Sequence[UnopenedLibrary], compat: Compat) -> tuple[str, str] | None:
    """Return (CUDA version on the search path, required CUDA version) if they differ.

    Return None if the required version is on the path too, or if one of the versions is not known.
    """
    runtime = next(
        (library.soname for library in missing if strip_library_name(library.soname) == "cudart"), ""
    )
    required = compat.list_cuda_with_soname(runtime) if runtime.startswith("lib") else ()
    required = required or list_required_cuda_versions(
        [library.soname for library in missing if not is_driver(library.soname)], compat
    )
    on_path = list(dict.fromkeys(_CUDA_IN_PATH.findall(find_search_path(missing) or "")))
    if not required or not on_path or any(_is_required_cuda(version, required) for version in on_path):
        return None
    return " and ".join(on_path[:2]), required[0]


def _is_required_cuda(version: str, required: Sequence[str]) -> bool:
    """Return whether a CUDA version is one of the required ones: "11.2" is, if "11" or "11.2" is required."""
    return any(version == release or version.startswith(f"{release}.") for release in required)


def _has_opened_runtime(log: Log) -> bool:
    """Return whether libcudart must have been opened, although the log does not say so.

    TensorFlow opens libcudart first, so libcudart was opened if several other libraries failed and it did not.
    """
    names = {event.get("soname") for event in log.list_events("dso-failed")}
    return len(names) >= 3 and not any(strip_library_name(name) == "cudart" for name in names)


def list_sonames(missing: Sequence[UnopenedLibrary]) -> tuple[str, ...]:
    """Return the sonames in log order, each once."""
    return tuple(dict.fromkeys(library.soname for library in missing))
