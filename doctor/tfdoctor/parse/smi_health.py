"""``nvidia-smi -q -x``: what it says of each card's condition, and who is on it.

Beside smi_xml, whose fields are what ``tfdoctor parse`` prints. Element names changed over the years
(``clocks_throttle_reasons`` became ``clocks_event_reasons``, ``pending_blacklist`` beside
``pending_retirement``); all are known here, and what is not there, or says N/A, is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import CardHealth, SmiProcess
from tfdoctor.parse._text import is_nothing, to_int, to_mib
from tfdoctor.parse.smi_xml import read_report
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_PROCESSES = 64
UNCORRECTED = (
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_uncorrectable",
    "double_bit/total",
)
"""Counters of errors that could not be corrected, by generation; a report has some of them."""
REASONS = ("clocks_event_reason_", "clocks_throttle_reason_")
SLOWDOWNS = frozenset(
    {
        "hw_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "sw_thermal_slowdown",
        "sw_power_cap",
    }
)


def parse_smi_health(text: str) -> tuple[tuple[CardHealth, tuple[SmiProcess, ...]], ...]:
    """For each ``<gpu>``, in the report's order."""
    root = read_report(text)
    return tuple((_health(gpu), _processes(gpu)) for gpu in root.findall("gpu")) if root is not None else ()


def _text(element: Element, path: str) -> str | None:
    """Return the text at `path`; None if there is none, or a word for none."""
    found = element.findtext(path)
    return None if found is None or is_nothing(found) else clean_line(found, limit=120)


def _flag(element: Element, *paths: str) -> bool | None:
    """Return yes, Enabled and On; No, Disabled and Off; None for anything else."""
    for path in paths:
        word = (_text(element, path) or "").lower()
        if word in ("yes", "enabled", "on", "active"):
            return True
        if word in ("no", "disabled", "off", "not active"):
            return False
    return None


def _health(gpu: Element) -> CardHealth:
    display = [_flag(gpu, f"display_{word}") for word in ("active", "mode", "attached")]
    asked = _flag(gpu, "gpu_reset_status/reset_required")
    recovery = _text(gpu, "gpu_recovery_action")
    return CardHealth(
        persistence=_flag(gpu, "persistence_mode"),
        ecc=_flag(gpu, "ecc_mode/current_ecc"),
        uncorrected=_count_uncorrected(gpu, "volatile"),
        uncorrected_ever=_count_uncorrected(gpu, "aggregate"),
        retirement_pending=_flag(gpu, "retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
        remap_pending=_flag(gpu, "remapped_rows/remapped_row_pending"),
        remap_failure=_flag(gpu, "remapped_rows/remapped_row_failure"),
        recovery=recovery or ("Reset" if asked else None),
        slowdowns=_slowdowns(gpu),
        temperature=_number(gpu, "temperature/gpu_temp"),
        power_limit=_watts(gpu, "current_power_limit", "enforced_power_limit", "power_limit"),
        power_default=_watts(gpu, "default_power_limit"),
        virtualization=_text(gpu, "gpu_virtualization_mode/virtualization_mode"),
        licence=_text(gpu, "vgpu_software_licensed_product/license_status")
        or _text(gpu, "grid_licensed_product/license_status"),
        display=True if True in display else (False if False in display else None),
        link_width=_lanes(gpu, "current"),
        link_width_most=_lanes(gpu, "max"),
        link_generation=_number(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
        link_generation_most=_number(gpu, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
        clock_most=_number(gpu, "max_clocks/sm_clock"),
    )


def _count_uncorrected(gpu: Element, which: str) -> int | None:
    section = gpu.find(f"ecc_errors/{which}")
    if section is None:
        return None
    counts = [to_int(section.findtext(path) or "") for path in UNCORRECTED]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _slowdowns(gpu: Element) -> tuple[str, ...]:
    found = []
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        for element in gpu.findall(f"{section}/*"):
            name = element.tag
            for prefix in REASONS:
                name = name.removeprefix(prefix)
            if name in SLOWDOWNS and (element.text or "").strip() == "Active":
                found.append(name)
    return tuple(dict.fromkeys(found))


def _number(gpu: Element, path: str) -> int | None:
    words = (_text(gpu, path) or "").split()
    return to_int(words[0]) if words else None


def _lanes(gpu: Element, which: str) -> int | None:
    """Return "16x" and, in some reports, "x16"."""
    return to_int((_text(gpu, f"pci/pci_gpu_link_info/link_widths/{which}_link_width") or "").strip("xX"))


def _watts(gpu: Element, *names: str) -> float | None:
    for section in ("gpu_power_readings", "power_readings"):
        for name in names:
            words = (_text(gpu, f"{section}/{name}") or "").split()
            if words and words[0].replace(".", "", 1).isdigit() and len(words[0]) < 12:
                return float(words[0])
    return None


def _processes(gpu: Element) -> tuple[SmiProcess, ...]:
    listed = [*gpu.findall("processes/process_info"), *gpu.findall("compute_processes/process_info")]
    return tuple(
        SmiProcess(
            pid=to_int(element.findtext("pid") or ""),
            name=_text(element, "process_name"),
            used_mib=to_mib(element.findtext("used_memory") or ""),
            kind=_text(element, "type"),
        )
        for element in listed[:MAX_PROCESSES]
    )
