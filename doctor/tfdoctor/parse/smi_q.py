"""``nvidia-smi -q``: the long report, ``key : value`` lines in indented sections."""

from __future__ import annotations

import re

from tfdoctor.parse._text import Parsed, clean_lines, is_nothing, to_int, to_mib, value_or_none
from tfdoctor.records import dataclass

_GPU = re.compile(r"\s*GPU ((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_GPU_NUMBER = re.compile(r"\s*GPU [0-9]{1,3}\s*")


@dataclass(frozen=True, slots=True)
class QueriedGpu(Parsed):
    """One GPU's section; memory in MiB. ``driver_model`` as printed ("N/A" on Linux)."""

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
    """The report. ``kmd_version`` and ``cuda_umd_version`` are printed since 610, beside the older two."""

    timestamp: str | None
    driver_version: str | None
    cuda_version: str | None
    kmd_version: str | None
    cuda_umd_version: str | None
    attached_gpus: int | None
    gpus: tuple[QueriedGpu, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line: a section's heading has no value."""

    indent: int
    key: str
    value: str | None
    section: str


def parse_smi_q(text: str) -> SmiQuery:
    """Read ``nvidia-smi -q``, whole or cut."""
    head: list[_Entry] = []
    blocks: list[tuple[str | None, list[_Entry]]] = []
    section = ""
    for line in clean_lines(text):
        line = line.lstrip(">│|") if line[:1] in ">│|" else line  # noqa: PLW2901 - a quoted paste
        gpu = _GPU.fullmatch(line)
        if gpu or _GPU_NUMBER.fullmatch(line):
            blocks.append((gpu[1] if gpu else None, []))
            section = ""
            continue
        entry = _entry(line, section)
        if entry is None:
            continue
        if entry.value is None:
            section = entry.key
        (blocks[-1][1] if blocks else head).append(entry)
    top = {entry.key: entry.value for entry in reversed(head) if entry.value is not None}
    kmd, umd = _version(top.get("KMD Version")), _version(top.get("CUDA UMD Version"))
    return SmiQuery(
        timestamp=top.get("Timestamp"),
        driver_version=_version(top.get("Driver Version")) or kmd,
        cuda_version=_version(top.get("CUDA Version")) or umd,
        kmd_version=kmd,
        cuda_umd_version=umd,
        attached_gpus=to_int(top.get("Attached GPUs") or ""),
        gpus=tuple(_gpu(bus_id, entries) for bus_id, entries in blocks),
        notes=() if top else ("no 'key : value' lines before the first GPU",),
    )


def _entry(line: str, section: str) -> _Entry | None:
    stripped = line.strip()
    if not stripped or stripped.startswith("==="):
        return None
    indent = len(line) - len(line.lstrip())
    key, colon, value = stripped.partition(" : ")
    if not colon and stripped.endswith(":"):
        key, colon = stripped[:-1], ":"
    if not colon:
        return _Entry(indent, stripped, None, section)
    return _Entry(indent, key.strip(), value.strip(), section)


def _version(raw: str | None) -> str | None:
    """Return the version, without the remark ``[Deprecated; …]``; None for N/A and for a mere remark."""
    if raw is None or raw.lower().startswith("deprecated"):
        return None
    return value_or_none(raw.split("[")[0])


def _gpu(bus_id: str | None, entries: list[_Entry]) -> QueriedGpu:
    return QueriedGpu(
        bus_id=bus_id or _value(entries, "Bus Id"),
        name=_value(entries, "Product Name"),
        uuid=_value(entries, "GPU UUID"),
        memory_total_mib=_memory(entries, "Total"),
        memory_used_mib=_memory(entries, "Used"),
        mig=_value(entries, "Current", "MIG Mode") == "Enabled",
        driver_model=_value(entries, "Current", "Driver Model"),
        n_processes=_process_count(entries),
    )


def _value(entries: list[_Entry], key: str, section: str | None = None) -> str | None:
    """Return the first value of ``key`` (in ``section``)."""
    wanted = (
        e.value for e in entries if e.key == key and section in (None, e.section) and e.value is not None
    )
    return next(wanted, None)


def _memory(entries: list[_Entry], key: str) -> int | None:
    """Return the GPU's own framebuffer: MIG devices repeat the section, deeper and before it."""
    found = [e for e in entries if e.key == key and e.section == "FB Memory Usage" and e.value is not None]
    if not found:
        return None
    shallowest = min(entry.indent for entry in found)
    own = [entry for entry in found if entry.indent == shallowest][-1]
    return to_mib(own.value or "")


def _process_count(entries: list[_Entry]) -> int | None:
    """Return how many process ids are listed; None if the list is absent or not to be had."""
    listed = sum(entry.key == "Process ID" for entry in entries)
    heading = next((entry for entry in entries if entry.key in ("Processes", "Compute Processes")), None)
    if heading is None:
        return None
    remark = heading.value or ""
    return None if not listed and remark and is_nothing(remark) and remark.lower() != "none" else listed
