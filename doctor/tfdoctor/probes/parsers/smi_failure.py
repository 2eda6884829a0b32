"""Classify the messages and exit statuses of nvidia-smi failures."""

from __future__ import annotations

import re

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.probes.parsers._text import VERSION_PATTERN, Parsed, clean

# The kind of failure by exit status: nvidia-smi exits with NVML's error number. 127 comes from the shell.
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

# Phrases with which shells and launchers report that a program does not exist, in the languages of bug reports.
_NOT_FOUND_PHRASES = (
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

# The patterns match lower-case text with single spaces. The first match in the text is the main failure.
_NVML_PREFIX = (
    r"(?:failed to initialize nvml|could not initialize nvml|nvml error|(?<!shut down )nvml: )[: ]{0,3}"
)
_MISSING_LIBRARY = (
    r"couldn't find libnvidia-ml\.so|libnvidia-ml\.so[.0-9]{0,16}: cannot open shared object"
    r"|couldn't find nvml\.dll|could not load nvml|nvml shared library not found|nvmlerror_librarynotfound"
    rf"|{_NVML_PREFIX}(?:nvml )?(?:shared )?(?:library )?not found"
)
_NOT_IN_CONTAINER = (
    r"\"?nvidia-smi(?:\.exe)?\\?\"?: (?:executable file not found|stat [^\n]{0,80}no such file)"
    r"|executable file [`'\"]?nvidia-smi[`'\"]? not found"
)
_FAILURE_PATTERNS = tuple(
    (kind, make_lazy_pattern(pattern))
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
        ("nvml_insufficient_permissions", _NVML_PREFIX + r"insufficient permissions|nvmlerror_nopermission"),
        ("nvml_unknown_error", _NVML_PREFIX + r"unknown error|nvmlerror_unknown"),
        ("nvml_na", _NVML_PREFIX + r"n/a"),
        ("nvml_shutdown_failed", r"failed to properly shut down nvml"),
        ("libnvidia_ml_missing", _MISSING_LIBRARY),
        ("executable_not_found_in_container", _NOT_IN_CONTAINER),
    )
)
_HANDLE_PHRASE = " the device handle for "
_HANDLE_KINDS = {"gpu_lost", "device_handle_unknown_error", "device_handle_not_found"}
# The domain has exactly 8 or 4 digits, because text can precede it directly ("GPU00000:81:00.0").
_BUS_ID = make_lazy_pattern(r"(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{4}):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_NVML_VERSION = make_lazy_pattern(rf"NVML library version:? ({VERSION_PATTERN})", re.IGNORECASE)
_EXIT_STATUS = make_lazy_pattern(
    r"\b(?:exit(?:ed)?(?: with)?(?: status| code| value)?|return ?code|exit-?(?:status|code))[ :=]{1,3}"
    r"([0-9]{1,3})\b",
    re.IGNORECASE,
)
_REPORTING_TOOLS = (
    "nvidia-container-cli", "nvidia-container-runtime", "nvidia-device-plugin", "gpustat", "nvtop", "nvitop",
    "dcgm", "pynvml",
)  # fmt: skip
_NVCC_OUTPUT = make_lazy_pattern(r"cuda compilation tools|\bnvcc: nvidia")


@dataclass(frozen=True, slots=True)
class SmiFailureText(Parsed):
    """The classified text.

    ``kind`` is the main failure, or None if no failure is recognised. ``also`` are the other failures.
    ``reported_by`` is another tool that printed the message, or None if no tool is named. ``exit_status`` comes from
    the caller, or else from the text. ``nvcc_also_present`` is true if the text also contains the output of nvcc.
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
    """Classify a failure message of nvidia-smi, the shell or a related tool.

    ``exit_status`` is the exit status of nvidia-smi if the caller ran it, else None. It decides the kind only if
    no message is recognised.
    """
    text = clean(text).replace("’", "'").replace("‘", "'").replace("´", "'")
    joined_text = " ".join(text.split())
    lower_text = joined_text.lower()
    kinds = _find_kinds(text, lower_text)
    notes: tuple[str, ...] = ()
    found_exit_status = exit_status if exit_status is not None else _parse_exit_status(joined_text)
    if not kinds and exit_status in EXIT_STATUS_KINDS:
        kinds = [EXIT_STATUS_KINDS[exit_status]]
        notes = (f"no known sentence; classified by exit status {exit_status}",)
    if not kinds:
        notes = ("no known failure sentence",)
    version_match = _NVML_VERSION.search(joined_text)
    return SmiFailureText(
        kind=kinds[0] if kinds else None,
        bus_id=_find_bus_id(joined_text, lower_text),
        reported_by=next((tool for tool in _REPORTING_TOOLS if tool in lower_text), None),
        nvml_version=version_match[1] if version_match else None,
        exit_status=found_exit_status,
        also=tuple(kinds[1:]),
        nvcc_also_present=_NVCC_OUTPUT.search(lower_text) is not None,
        notes=notes,
    )


def reports_missing_program(text: str, program: str) -> bool:
    """Return whether a line of ``text`` says that ``program`` does not exist, in one of many languages."""
    return any(_reports_missing_program_in_line(line, program) for line in text.lower().split("\n"))


def _reports_missing_program_in_line(line: str, program: str) -> bool:
    if program not in line:
        return False
    return f"no {program} in (" in line or any(phrase in line for phrase in _NOT_FOUND_PHRASES)


def _find_kinds(text: str, lower_text: str) -> list[str]:
    """Return the kinds of failure in the text by position, without duplicates.

    A shutdown failure is not the main failure if there is another one.
    """
    positions = {
        kind: match.start() for kind, pattern in _FAILURE_PATTERNS if (match := pattern.search(lower_text))
    }
    # the handle of a GPU could not be determined for a reason that has no kind of its own
    handle_position = lower_text.find(_HANDLE_PHRASE)
    if handle_position >= 0 and not positions.keys() & _HANDLE_KINDS:
        positions["device_handle_error"] = handle_position
    if not positions and reports_missing_program(text, "nvidia-smi"):
        return ["command_not_found"]
    kinds = sorted(positions, key=positions.__getitem__)  # by position
    if kinds[:1] == ["nvml_shutdown_failed"] and len(kinds) > 1:
        kinds = [*kinds[1:], kinds[0]]
    return kinds


def _find_bus_id(joined_text: str, lower_text: str) -> str | None:
    """Return the PCI bus ID after "Unable to determine the device handle for GPU", or None."""
    start = lower_text.find(_HANDLE_PHRASE)
    # The position is unreliable if the conversion to lower case changed the length of a letter.
    if start < 0 or len(joined_text) != len(lower_text):
        return None
    match = _BUS_ID.search(joined_text, start, start + len(_HANDLE_PHRASE) + 40)
    return match[0] if match else None


def _parse_exit_status(joined_text: str) -> int | None:
    match = _EXIT_STATUS.search(joined_text)
    return int(match[1]) if match else None
