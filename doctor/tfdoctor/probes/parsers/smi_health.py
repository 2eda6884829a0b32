"""Parse the health and the processes of each GPU in the XML report of ``nvidia-smi -q -x``.

This is separate from smi_xml, because ``tfdoctor parse`` prints all fields of smi_xml. Old and new element names
are supported: for example, ``clocks_throttle_reasons`` became ``clocks_event_reasons``. A missing value or N/A is
None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import GpuCondition, SmiProcess
from tfdoctor.core.text import clean_line
from tfdoctor.probes.parsers._text import is_placeholder, to_int, to_mib
from tfdoctor.probes.parsers.smi_xml import read_report

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_PROCESSES = 64
"""The maximum number of processes of one GPU."""
UNCORRECTED_COUNTERS = (
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_uncorrectable",
    "double_bit/total",
)
"""Elements that count uncorrectable errors. The GPU generation decides which of them a report contains."""
REASON_PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_")
"""Prefixes of the elements that state a reason for reduced clocks."""
SLOWDOWN_REASONS = frozenset(
    {
        "hw_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "sw_thermal_slowdown",
        "sw_power_cap",
    }
)
"""Reasons for reduced clocks that count as slowdowns. Being idle, for example, does not."""


def parse_smi_health(text: str) -> tuple[tuple[GpuCondition, tuple[SmiProcess, ...]], ...]:
    """Return (health, processes) of each GPU in the report, or () if there is no report."""
    root = read_report(text)
    return (
        tuple((_parse_health(gpu), _list_processes(gpu)) for gpu in root.findall("gpu"))
        if root is not None
        else ()
    )


def _get_value(element: Element, path: str) -> str | None:
    """Return the text at `path`, or None if it is missing or a placeholder."""
    content = element.findtext(path)
    return None if content is None or is_placeholder(content) else clean_line(content, limit=120)


def _get_flag(element: Element, *paths: str) -> bool | None:
    """Return the first boolean among the values at `paths`, or None if there is none.

    Yes, enabled, on and active mean true; no, disabled, off and not active mean false.
    """
    for path in paths:
        value = (_get_value(element, path) or "").lower()
        if value in ("yes", "enabled", "on", "active"):
            return True
        if value in ("no", "disabled", "off", "not active"):
            return False
    return None


def _parse_health(gpu: Element) -> GpuCondition:
    display_flags = [_get_flag(gpu, f"display_{suffix}") for suffix in ("active", "mode", "attached")]
    reset_required = _get_flag(gpu, "gpu_reset_status/reset_required")
    recovery_action = _get_value(gpu, "gpu_recovery_action")
    return GpuCondition(
        persistence=_get_flag(gpu, "persistence_mode"),
        ecc=_get_flag(gpu, "ecc_mode/current_ecc"),
        uncorrected=_count_uncorrected_errors(gpu, "volatile"),
        uncorrected_ever=_count_uncorrected_errors(gpu, "aggregate"),
        retirement_pending=_get_flag(
            gpu, "retired_pages/pending_retirement", "retired_pages/pending_blacklist"
        ),
        remap_pending=_get_flag(gpu, "remapped_rows/remapped_row_pending"),
        remap_failure=_get_flag(gpu, "remapped_rows/remapped_row_failure"),
        recovery=recovery_action or ("Reset" if reset_required else None),
        slowdowns=_list_slowdowns(gpu),
        temperature=_get_number(gpu, "temperature/gpu_temp"),
        power_limit=_get_power(gpu, "current_power_limit", "enforced_power_limit", "power_limit"),
        power_default=_get_power(gpu, "default_power_limit"),
        virtualization=_get_value(gpu, "gpu_virtualization_mode/virtualization_mode"),
        licence=_get_value(gpu, "vgpu_software_licensed_product/license_status")
        or _get_value(gpu, "grid_licensed_product/license_status"),
        # any of the three elements may be missing or unavailable
        display=True if True in display_flags else (False if False in display_flags else None),
        link_width=_get_link_width(gpu, "current"),
        link_width_most=_get_link_width(gpu, "max"),
        link_generation=_get_number(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
        link_generation_most=_get_number(gpu, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
        clock_most=_get_number(gpu, "max_clocks/sm_clock"),
    )


def _count_uncorrected_errors(gpu: Element, section_name: str) -> int | None:
    """Return the number of uncorrected errors, or None if it is not reported.

    The section is "volatile" for errors since the last boot, or "aggregate" for errors in the GPU's lifetime.
    """
    section = gpu.find(f"ecc_errors/{section_name}")
    if section is None:
        return None
    counts = [to_int(section.findtext(path) or "") for path in UNCORRECTED_COUNTERS]
    available = [count for count in counts if count is not None]
    return sum(available) if available else None


def _list_slowdowns(gpu: Element) -> tuple[str, ...]:
    reasons = []
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        for element in gpu.findall(f"{section}/*"):
            name = element.tag
            for prefix in REASON_PREFIXES:
                name = name.removeprefix(prefix)
            if name in SLOWDOWN_REASONS and (element.text or "").strip() == "Active":
                reasons.append(name)
    return tuple(dict.fromkeys(reasons))


def _get_number(gpu: Element, path: str) -> int | None:
    words = (_get_value(gpu, path) or "").split()
    return to_int(words[0]) if words else None


def _get_link_width(gpu: Element, kind: str) -> int | None:
    """Return the "current" or "max" link width (such as "16x" or "x16") in lanes, or None if unknown."""
    return to_int((_get_value(gpu, f"pci/pci_gpu_link_info/link_widths/{kind}_link_width") or "").strip("xX"))


def _get_power(gpu: Element, *names: str) -> float | None:
    """Return the first numeric value among `names` in watts, or None if there is none."""
    for section in ("gpu_power_readings", "power_readings"):
        for name in names:
            words = (_get_value(gpu, f"{section}/{name}") or "").split()
            if words and words[0].replace(".", "", 1).isdigit() and len(words[0]) < 12:
                return float(words[0])
    return None


def _list_processes(gpu: Element) -> tuple[SmiProcess, ...]:
    elements = [*gpu.findall("processes/process_info"), *gpu.findall("compute_processes/process_info")]
    return tuple(
        SmiProcess(
            pid=to_int(element.findtext("pid") or ""),
            name=_get_value(element, "process_name"),
            used_mib=to_mib(element.findtext("used_memory") or ""),
            kind=_get_value(element, "type"),
        )
        for element in elements[:MAX_PROCESSES]
    )
