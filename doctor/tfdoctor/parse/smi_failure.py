"""What stands in place of nvidia-smi's answer when it fails: sentences and exit statuses, classified."""

from __future__ import annotations

import re

from tfdoctor.parse._text import VERSION, Parsed, clean
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

#: Exit statuses that name a cause by themselves: nvidia-smi's are NVML's error numbers, 127 is the shell's.
EXIT_STATUS_KINDS = {
    4: "nvml_insufficient_permissions",
    6: "no_devices",
    9: "driver_not_communicating",
    12: "libnvidia_ml_missing",
    15: "gpu_lost",
    17: "nvml_access_blocked_os",
    18: "nvml_mismatch",
    127: "command_not_found",
}

# How shells and launchers say that there is no such program, in the languages that bug reports come in.
_ABSENT = (
    "not found", "could not be found", "cannot be found", "can't be found", "couldn't find",
    "could not find", "cannot find", "can't find", "unable to find", "unable to locate",
    "no such file or directory", "unknown command", "is not recognized",
    "is not recognised", "not installed", "isn't installed", "not available", "not on path",
    "not in path", "nicht gefunden", "falsch geschrieben", "wurde nicht als name",
    "introuvable", "n'est pas reconnu", "no encontrad", "no se encontr", "no se reconoce",
    "não encontrad", "não é reconhecid", "non trovat", "non è riconosciut", "niet gevonden",
    "nie znaleziono", "nie odnaleziono", "nie jest rozpoznawan", "nenalezen", "bulunamad",
    "не найден", "не знайден", "не является внутренней", "未找到", "找不到", "不是内部或外部命令",
    "不是內部或外部命令", "无法识别", "無法辨識", "無法識別", "見つかりません",
    "認識されていません", "찾을 수 없", "내부 또는 외부 명령",
)  # fmt: skip

# Sentences, looked for in lower case with single spaces. The one that stands first in the text leads,
# whatever the order here.
_NVML_SAYS = (
    r"(?:failed to initialize nvml|could not initialize nvml|nvml error|(?<!shut down )nvml: )[: ]{0,3}"
)
_LIBRARY_MISSING = (
    r"couldn't find libnvidia-ml\.so|libnvidia-ml\.so[.0-9]{0,16}: cannot open shared object"
    r"|couldn't find nvml\.dll|could not load nvml|nvml shared library not found|nvmlerror_librarynotfound"
    rf"|{_NVML_SAYS}(?:nvml )?(?:shared )?(?:library )?not found"
)
_NOT_IN_CONTAINER = (
    r"\"?nvidia-smi(?:\.exe)?\\?\"?: (?:executable file not found|stat [^\n]{0,80}no such file)"
    r"|executable file [`'\"]?nvidia-smi[`'\"]? not found"
)
_SENTENCES = tuple(
    (kind, lazy_pattern(pattern))
    for kind, pattern in (
        ("driver_not_communicating", r"couldn't communicate with (?:the )?nvidia driver"),
        ("gpu_lost", r"gpu is lost|gpu has fallen off the bus"),
        (
            "device_handle_unknown_error",
            r"unable to (?:determine|detect) the device handle for [^\n]{0,60}?: unknown error",
        ),
        (
            "device_handle_not_found",
            r"unable to (?:determine|detect) the device handle for [^\n]{0,60}?: not found",
        ),
        ("no_devices", r"\bno devices (?:were )?found|no supported gpus were found"),
        ("nvml_mismatch", r"driver/library version mismatch|nvml/rm version mismatch"),
        ("nvml_driver_not_loaded", r"\bdriver not loaded|nvmlerror_drivernotloaded"),
        ("nvml_access_blocked_os", r"gpu access blocked by the operating system"),
        ("nvml_insufficient_permissions", _NVML_SAYS + r"insufficient permissions|nvmlerror_nopermission"),
        ("nvml_unknown_error", _NVML_SAYS + r"unknown error|nvmlerror_unknown"),
        ("nvml_na", _NVML_SAYS + r"n/a"),
        ("nvml_shutdown_failed", r"failed to properly shut down nvml"),
        ("libnvidia_ml_missing", _LIBRARY_MISSING),
        ("executable_not_found_in_container", _NOT_IN_CONTAINER),
    )
)
_HANDLE = " the device handle for "
_HANDLE_KINDS = {"gpu_lost", "device_handle_unknown_error", "device_handle_not_found"}
# Domain of exactly 8 or 4 digits: the index can be glued to it ("GPU00000:81:00.0").
_BUS_ID = lazy_pattern(r"(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{4}):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_NVML_VERSION = lazy_pattern(rf"NVML library version:? ({VERSION})", re.IGNORECASE)
_EXIT_STATUS = lazy_pattern(
    r"\b(?:exit(?:ed)?(?: with)?(?: status| code| value)?|return ?code|exit-?(?:status|code))[ :=]{1,3}"
    r"([0-9]{1,3})\b",
    re.IGNORECASE,
)
_REPORTERS = (
    "nvidia-container-cli", "nvidia-container-runtime", "nvidia-device-plugin", "gpustat", "nvtop", "nvitop",
    "dcgm", "pynvml",
)  # fmt: skip
_NVCC_LINES = lazy_pattern(r"cuda compilation tools|\bnvcc: nvidia")


@dataclass(frozen=True, slots=True)
class SmiFailureText(Parsed):
    """``kind`` is the failure that leads (None: none recognised), ``also`` the others said in the same text.

    ``reported_by`` names another tool that said it; ``exit_status`` is what the text says or the caller saw;
    ``nvcc_also_present`` tells that a compiler's answer stands beside, so the text is not of nvidia-smi
    alone.
    """

    kind: str | None
    bus_id: str | None = None
    reported_by: str | None = None
    nvml_version: str | None = None
    exit_status: int | None = None
    also: tuple[str, ...] = ()
    nvcc_also_present: bool = False
    notes: tuple[str, ...] = ()


def parse_smi_failure(text: str, exit_status: int | None = None) -> SmiFailureText:
    """Classify what nvidia-smi, its shell, or a tool beside it said.

    ``exit_status`` is the process's, where the caller ran it: it decides only where no sentence is
    recognised.
    """
    text = clean(text).replace("’", "'").replace("‘", "'").replace("´", "'")
    flat = " ".join(text.split())
    lowered = flat.lower()
    kinds = _kinds(text, lowered)
    notes: tuple[str, ...] = ()
    status = exit_status if exit_status is not None else _parse_exit_status(flat)
    if not kinds and exit_status in EXIT_STATUS_KINDS:
        kinds = [EXIT_STATUS_KINDS[exit_status]]
        notes = (f"no known sentence; classified by exit status {exit_status}",)
    if not kinds:
        notes = ("no known failure sentence",)
    version = _NVML_VERSION.search(flat)
    return SmiFailureText(
        kind=kinds[0] if kinds else None,
        bus_id=_bus_id(flat, lowered),
        reported_by=next((tool for tool in _REPORTERS if tool in lowered), None),
        nvml_version=version[1] if version else None,
        exit_status=status,
        also=tuple(kinds[1:]),
        nvcc_also_present=_NVCC_LINES.search(lowered) is not None,
        notes=notes,
    )


def says_not_found(text: str, program: str) -> bool:
    """Return whether some line of ``text`` says, in one of a dozen languages, that ``program`` does not exist."""
    return any(_line_says_not_found(line, program) for line in text.lower().split("\n"))


def _line_says_not_found(line: str, program: str) -> bool:
    if program not in line:
        return False
    return f"no {program} in (" in line or any(phrase in line for phrase in _ABSENT)


def _kinds(text: str, lowered: str) -> list[str]:
    """Return all kinds said, by position, each once; a shutdown failure never leads."""
    seen = {kind: match.start() for kind, pattern in _SENTENCES if (match := pattern.search(lowered))}
    handle = lowered.find(_HANDLE)
    if handle >= 0 and not seen.keys() & _HANDLE_KINDS:
        seen["device_handle_error"] = handle
    if not seen and says_not_found(text, "nvidia-smi"):
        return ["command_not_found"]
    kinds = sorted(seen, key=seen.__getitem__)
    if kinds[:1] == ["nvml_shutdown_failed"] and len(kinds) > 1:
        kinds = [*kinds[1:], kinds[0]]
    return kinds


def _bus_id(flat: str, lowered: str) -> str | None:
    """Return the card named by "Unable to determine the device handle for GPU …"."""
    start = lowered.find(_HANDLE)
    # Lower-casing can change the length of exotic letters: then the position is not to be trusted.
    if start < 0 or len(flat) != len(lowered):
        return None
    match = _BUS_ID.search(flat, start, start + len(_HANDLE) + 40)
    return match[0] if match else None


def _parse_exit_status(flat: str) -> int | None:
    match = _EXIT_STATUS.search(flat)
    return int(match[1]) if match else None
