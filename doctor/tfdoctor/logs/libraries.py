"""Which libraries a log says are missing, which of them matter, and what the log tells of the reason."""

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
    "describe_present",
    "find_missing_libraries",
    "find_other_cuda",
    "is_cudnn",
    "is_driver",
    "is_nvml",
    "libraries_cause",
    "partly_there",
    "search_path",
    "stem_of",
]

_LIBRARY_PATH = re.compile(r"[;,]?\s{0,3}LD_L\w{1,10}_PATH:\s{0,3}")
_NAMES = re.compile(r"(lib[\w.+-]{1,100}\.so[.\d]{0,24}):")
_CUDA = re.compile(
    r"(?:lib)?(?:cuda(?:rt)?|cublas|cublasLt|cufft|cufftw|curand|cusolver|cusolverMg|cusparse|cusparseLt|cudnn\w{0,40}|"
    r"cupti|nccl|nvcuda|nvrtc|nvrtc-builtins|nvJitLink|nvToolsExt|nvidia-[\w-]{1,40}|nvinfer\w{0,20}|nvonnxparser|"
    r"rocblas|rocsolver|rocrand|rocfft|rocm\w{0,20}|hip\w{0,20}|amdhip64|MIOpen|rccl|roctracer\w{0,10}|zlibwapi|"
    r"mklml|iomp5)",
    re.IGNORECASE,
)
_CUDA_IN_PATH = re.compile(r"cuda[-_]?(\d{1,2}\.\d)\b")
_CUDA_PLACE = re.compile(r"cuda", re.IGNORECASE)
_OTHER_VERSION = re.compile(r"undefined symbol|version .{1,80} not found|invalid ELF header|wrong ELF class")
_DLL_VERSION = re.compile(r"64_(\d{2,3})(?:_\d)?\.dll$|32_(\d{2,3})\.dll$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UnopenedLibrary:
    """A library that could not be opened."""

    soname: str
    """The one really missing."""
    opened: str
    """The one that was asked for: the same, or one that needs it."""
    event: Event
    error: str = ""
    path: str | None = None
    """LD_LIBRARY_PATH as it was; None where it was not set or the message does not say."""

    @property
    def transitive(self) -> bool:
        return self.soname != self.opened


def stem_of(name: str) -> str:
    """Return "libcudart.so.11.0", "cudart64_110.dll" and "libcudart.8.0.dylib" → "cudart"."""
    name = name.rpartition("/")[2].rpartition("\\")[2]
    if name.lower().endswith(".dll"):
        return re.sub(r"(?:64|32)?(?:_[\d_]{1,12})?\.dll$", "", name, flags=re.IGNORECASE)
    return re.sub(r"(?:\.\d{1,6})*\.dylib$", "", name).partition(".so")[0].removeprefix("lib")


def is_cudnn(name: str) -> bool:
    return stem_of(name).startswith("cudnn")


def is_driver(name: str) -> bool:
    return stem_of(name) in ("cuda", "nvcuda")


def is_nvml(name: str) -> bool:
    return stem_of(name) == "nvidia-ml"


def is_tensorrt(name: str) -> bool:
    return stem_of(name).startswith(("nvinfer", "nvonnx"))


def is_cupti(name: str) -> bool:
    return stem_of(name) == "cupti"


def matters(name: str) -> bool:
    """Return whether a library has to do with GPUs, and TensorFlow needs it to use one."""
    return _CUDA.fullmatch(stem_of(name)) is not None and not is_tensorrt(name)


def find_missing_libraries(log: Log) -> tuple[UnopenedLibrary, ...]:
    """Return every library that could not be opened and was not opened later, in the order of the log."""
    found: dict[str, UnopenedLibrary] = {}
    names = (
        "dso-failed",
        "dso-failed-old",
        "import-so",
        "import-dll",
        "import-dylib",
        "lazy-library-failed",
        "damaged-library",
    )
    for event in log.list_events(*names):
        for missing in _read_event(event):
            known = found.get(missing.soname)
            if known is None or (known.path is None and missing.path is not None):
                found[missing.soname] = missing
    opened = {event.get("soname"): event.order for event in log.list_events("dso-opened")}
    last = {}
    for event in log.list_events("dso-failed", "dso-failed-old"):
        last[event.get("soname")] = event.order
    return tuple(
        missing
        for name, missing in found.items()
        if opened.get(name, -1) < last.get(missing.opened, missing.event.order)
    )


def _read_event(event: Event) -> list[UnopenedLibrary]:
    soname = event.get("soname").rstrip(".")
    if event.id == "import-so":
        return [] if event.get("opened") else _make_missing(soname, soname, event)
    if event.id == "import-dll":
        names = [name.strip() for name in re.split(r" or |,", soname)]
        return [UnopenedLibrary(name, name, event) for name in names if name]
    if event.id == "lazy-library-failed":
        inner = _NAMES.search(event.get("error"))
        result = _make_missing(soname, soname, event)
        if inner is not None and inner[1] != soname and is_not_found(event.get("error")):
            result += _make_missing(inner[1], soname, event)
        return result
    if event.id in ("damaged-library", "import-dylib"):
        return _make_missing(soname, soname, event)
    parts = _LIBRARY_PATH.split(event.get("error") if event.id == "dso-failed" else "", maxsplit=1)
    error = parts[0].strip()
    path = parts[1].strip() if len(parts) > 1 else event.fields.get("path")
    inner = _NAMES.match(error)
    really = inner[1] if inner is not None and is_not_found(error) else soname
    return _make_missing(_whole(really, soname), soname, event, error, path)


def _whole(really: str, soname: str) -> str:
    """Return the same library, cut by an editor or a terminal in one of the two places, is the same."""
    return soname if really.startswith(soname) or soname.startswith(really) else really


def _make_missing(
    really: str, opened: str, event: Event, error: str = "", path: str | None = None
) -> list[UnopenedLibrary]:
    return [UnopenedLibrary(really, opened, event, error, path)] if matters(really) or matters(opened) else []


# ---------------------------------------------------------------- why


def search_path(missing: Sequence[UnopenedLibrary]) -> str | None:
    """Return LD_LIBRARY_PATH as the log shows it; None if it does not."""
    return next((m.path for m in missing if m.path is not None), None)


def cuda_wanted(names: Sequence[str], compat: Compat) -> tuple[str, ...]:
    """Return the CUDA versions to which these sonames belong: ("10.0",), or ("11",) for any 11.x."""
    wanted: dict[str, None] = {}
    for name in names:
        version = _DLL_VERSION.search(name)
        if version is not None:
            digits = version[1] or version[2]
            if stem_of(name) in ("cudart", "cublas") and not is_cudnn(name):
                wanted[f"{digits[:-1]}.{digits[-1]}" if len(digits) > 1 else digits] = None
            continue
        if not is_cudnn(name):
            wanted.update(dict.fromkeys(compat.cuda_of_soname(name)))
    return tuple(wanted)


def libraries_cause(missing: Sequence[UnopenedLibrary], log: Log, compat: Compat) -> Cause:
    """Return the likeliest of wrong version, not installed, not on the path.

    The log seldom tells them apart.

    Only what concerns registration is given: no driver, no CUPTI, no TensorRT.
    """
    direct = [m for m in missing if not m.transitive]
    if not direct:
        return Cause.LIBS_TRANSITIVE
    if all(is_cudnn(m.soname) for m in direct):
        return Cause.CUDNN_MISSING
    toolkit = [m for m in direct if not is_cudnn(m.soname)]
    opened = {event.get("soname") for event in log.list_events("dso-opened")}
    rocm = any(stem_of(m.soname).startswith(("roc", "hip", "MIOpen")) for m in toolkit)
    ours = [name for name in opened if not is_driver(name) and not is_nvml(name) and not is_cupti(name)]
    siblings = [name for name in ours if matters(name)]
    path = search_path(missing) or ""
    if any(_OTHER_VERSION.search(m.error) for m in toolkit):
        return Cause.LIBS_WRONG_VERSION
    if rocm:
        return Cause.LIBS_NOT_INSTALLED
    wanted = cuda_wanted([m.soname for m in toolkit], compat)
    others = [v for v in _CUDA_IN_PATH.findall(path) if not _fits(v, wanted)]
    same = [v for v in _CUDA_IN_PATH.findall(path) if _fits(v, wanted)]
    if others and not same:
        return Cause.LIBS_WRONG_VERSION
    toolkit_found = [name for name in siblings if not is_cudnn(name)]
    if same:
        return Cause.LIBS_NOT_ON_PATH if toolkit_found else Cause.LIBS_WRONG_VERSION
    if siblings or _CUDA_PLACE.search(path) or _has_runtime_alone(log):
        return Cause.LIBS_WRONG_VERSION
    return Cause.LIBS_NOT_INSTALLED


def describe_present(missing: Sequence[UnopenedLibrary], log: Log, compat: Compat) -> str:
    """Return what the log shows to be there in the place of what is missing, as sentences.

    Empty if it shows nothing.
    """
    said = []
    other = find_other_cuda(missing, compat)
    if other is not None:
        said.append(f"CUDA {other[0]} is on LD_LIBRARY_PATH, but CUDA {other[1]} is needed.")
    found = _list_opened_beside(missing, log)
    if found:
        said.append(f"{', '.join(found[:6])} {'was' if len(found) == 1 else 'were'} found.")
    cards = len({event.get("index") for event in log.list_events("device-found")})
    if cards and log.has("registration-skipped"):
        said.append(
            "One card is present but not registered."
            if cards == 1
            else f"{cards} cards are present, but none is registered."
        )
    return " ".join(said)


def _list_opened_beside(missing: Sequence[UnopenedLibrary], log: Log) -> list[str]:
    """Sonames of the libraries that the log shows to be opened where others of them are missing."""
    opened = dict.fromkeys(event.get("soname") for event in log.list_events("dso-opened"))
    gone = {m.opened for m in missing}
    return [
        one for one in opened if matters(one) and one not in gone and not is_driver(one) and not is_nvml(one)
    ]


def partly_there(missing: Sequence[UnopenedLibrary], log: Log) -> bool:
    """Return whether libraries of the same kind were opened, and no error says that those missing are of another
    version.
    """
    return not any(_OTHER_VERSION.search(one.error) for one in missing) and bool(
        _list_opened_beside(missing, log)
    )


def is_only_path(missing: Sequence[UnopenedLibrary], log: Log) -> bool:
    """Return whether nothing but the search path tells of a CUDA: its folder can be empty."""
    return (
        not any(_OTHER_VERSION.search(one.error) for one in missing)
        and not _list_opened_beside(missing, log)
        and not _has_runtime_alone(log)
        and _CUDA_PLACE.search(search_path(missing) or "") is not None
    )


def find_other_cuda(missing: Sequence[UnopenedLibrary], compat: Compat) -> tuple[str, str] | None:
    """Return (the CUDA on the search path, the one that is wanted), where only another one is there."""
    runtime = next((one.soname for one in missing if stem_of(one.soname) == "cudart"), "")
    wanted = compat.cuda_of_soname(runtime) if runtime.startswith("lib") else ()
    wanted = wanted or cuda_wanted([one.soname for one in missing if not is_driver(one.soname)], compat)
    found = list(dict.fromkeys(_CUDA_IN_PATH.findall(search_path(missing) or "")))
    if not wanted or not found or any(_fits(version, wanted) for version in found):
        return None
    return " and ".join(found[:2]), wanted[0]


def _fits(version: str, wanted: Sequence[str]) -> bool:
    return any(version == want or version.startswith(f"{want}.") for want in wanted)


def _has_runtime_alone(log: Log) -> bool:
    """Return whether many failed and libcudart, which TensorFlow opens first, did not: it was opened before."""
    names = {event.get("soname") for event in log.list_events("dso-failed")}
    return len(names) >= 3 and not any(stem_of(name) == "cudart" for name in names)


def list_names(missing: Sequence[UnopenedLibrary]) -> tuple[str, ...]:
    """Return sonames in the order of the log, each once."""
    return tuple(dict.fromkeys(m.soname for m in missing))
