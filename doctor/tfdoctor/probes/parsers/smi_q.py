"""Parse the report of ``nvidia-smi -q``, which has ``key : value`` lines in indented sections."""

from __future__ import annotations

import re

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import (
    Parsed,
    clean_lines,
    is_placeholder,
    parse_listed_version,
    to_int,
    to_mib,
)

_GPU_HEADING = re.compile(r"\s*GPU ((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_NUMBERED_GPU_HEADING = re.compile(r"\s*GPU [0-9]{1,3}\s*")


@dataclass(frozen=True, slots=True)
class QueriedGpu(Parsed):
    """The section of a GPU. ``driver_model`` is as printed ("N/A" on Linux)."""

    bus_id: str | None
    name: str | None
    uuid: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    mig: bool
    driver_model: str | None
    n_processes: int | None


@dataclass(frozen=True, slots=True)
class SmiQuery(Parsed):
    """The report. ``kmd_version`` and ``cuda_umd_version`` are printed since driver 610."""

    timestamp: str | None
    driver_version: str | None
    cuda_version: str | None
    kmd_version: str | None
    cuda_umd_version: str | None
    attached_gpus: int | None
    gpus: tuple[QueriedGpu, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _ReportLine:
    """A line of the report. ``section`` is the last heading before it. A heading has the value None."""

    indent: int
    key: str
    value: str | None
    section: str


def parse_smi_q(text: str) -> SmiQuery:
    """Parse the output of ``nvidia-smi -q``, even if it is truncated."""
    top_entries: list[_ReportLine] = []
    gpu_sections: list[tuple[str | None, list[_ReportLine]]] = []
    """(bus ID, lines) of each GPU."""
    section = ""
    for line in clean_lines(text):
        line = line.lstrip(">│|") if line[:1] in ">│|" else line  # noqa: PLW2901 - a quoted paste
        heading = _GPU_HEADING.fullmatch(line)
        if heading or _NUMBERED_GPU_HEADING.fullmatch(line):
            gpu_sections.append((heading[1] if heading else None, []))
            section = ""
            continue
        entry = _parse_line(line, section)
        if entry is None:
            continue
        if entry.value is None:
            section = entry.key
        if gpu_sections:
            _, gpu_entries = gpu_sections[-1]
            gpu_entries.append(entry)
        else:
            top_entries.append(entry)
    top_values = {entry.key: entry.value for entry in reversed(top_entries) if entry.value is not None}
    kmd_version = parse_listed_version(top_values.get("KMD Version"))
    umd_version = parse_listed_version(top_values.get("CUDA UMD Version"))
    return SmiQuery(
        timestamp=top_values.get("Timestamp"),
        driver_version=parse_listed_version(top_values.get("Driver Version")) or kmd_version,
        cuda_version=parse_listed_version(top_values.get("CUDA Version")) or umd_version,
        kmd_version=kmd_version,
        cuda_umd_version=umd_version,
        attached_gpus=to_int(top_values.get("Attached GPUs") or ""),
        gpus=tuple(_make_gpu(bus_id, entries) for bus_id, entries in gpu_sections),
        notes=() if top_values else ("no 'key : value' lines before the first GPU",),
    )


def _parse_line(line: str, section: str) -> _ReportLine | None:
    stripped = line.strip()
    if not stripped or stripped.startswith("==="):
        return None
    indent = len(line) - len(line.lstrip())
    key, colon, value = stripped.partition(" : ")
    if not colon and stripped.endswith(":"):
        key, colon = stripped[:-1], ":"
    if not colon:
        return _ReportLine(indent, stripped, None, section)
    return _ReportLine(indent, key.strip(), value.strip(), section)


def _make_gpu(bus_id: str | None, entries: list[_ReportLine]) -> QueriedGpu:
    return QueriedGpu(
        bus_id=bus_id or _find_value(entries, "Bus Id"),
        name=_find_value(entries, "Product Name"),
        uuid=_find_value(entries, "GPU UUID"),
        memory_total_mib=_find_memory(entries, "Total"),
        memory_used_mib=_find_memory(entries, "Used"),
        mig=_find_value(entries, "Current", "MIG Mode") == "Enabled",
        driver_model=_find_value(entries, "Current", "Driver Model"),
        n_processes=_count_processes(entries),
    )


def _find_value(entries: list[_ReportLine], key: str, section: str | None = None) -> str | None:
    """Return the first value of ``key``, or None. A ``section`` of None means any section."""
    values = (
        entry.value
        for entry in entries
        if entry.key == key and section in (None, entry.section) and entry.value is not None
    )
    return next(values, None)


def _find_memory(entries: list[_ReportLine], key: str) -> int | None:
    """Return the framebuffer memory of the GPU in MiB, or None if it is missing.

    MIG devices repeat the section with more indentation.
    """
    matches = [
        entry
        for entry in entries
        if entry.key == key and entry.section == "FB Memory Usage" and entry.value is not None
    ]
    if not matches:
        return None
    min_indent = min(entry.indent for entry in matches)
    gpu_entry = [entry for entry in matches if entry.indent == min_indent][-1]
    return to_mib(gpu_entry.value or "")


def _count_processes(entries: list[_ReportLine]) -> int | None:
    """Return the number of listed processes, or None if the list is missing or unavailable."""
    process_count = sum(entry.key == "Process ID" for entry in entries)
    heading = next((entry for entry in entries if entry.key in ("Processes", "Compute Processes")), None)
    if heading is None:
        return None
    remark = heading.value or ""
    # a placeholder such as N/A means that the list is unavailable, but "None" means that it is empty
    return (
        None
        if not process_count and remark and is_placeholder(remark) and remark.lower() != "none"
        else process_count
    )
