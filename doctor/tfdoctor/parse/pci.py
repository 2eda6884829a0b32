"""Parse the PCI devices in the output of ``lspci``."""

from __future__ import annotations

import re
from dataclasses import replace

from tfdoctor.parse._text import Parsed, clean_lines
from tfdoctor.records import dataclass

NVIDIA_VENDOR_ID = "10de"

# "01:00.0 …" or "0000:01:00.0 …", perhaps after quote marks or grep's line number ("12:01:00.0 …").
_DEVICE = re.compile(
    r"[ \t>*#|`-]*(?:[0-9]{1,6}[:-])??"
    r"(?P<slot>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])[ \t]+(?P<rest>\S[^\n]*)"
)
_CLASS_ID = re.compile(r"[ \t]*\[([0-9A-Fa-f]{4})\]$")
_IDS = re.compile(r"\[([0-9A-Fa-f]{4}:[0-9A-Fa-f]{4})\]")
_NUMERIC = re.compile(r"(?:Class )?(?P<cls>[0-9A-Fa-f]{4}): (?P<ids>[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4})\b")
_QUOTED = re.compile(r'"([^"]*)"')
_DRIVER = re.compile(r"Kernel driver in use: *([A-Za-z0-9_.-]+)")
_MODULES = re.compile(r"Kernel modules: *([A-Za-z0-9_.,\t -]+)")
_DISPLAY_CLASSES = (
    "vga compatible controller",
    "3d controller",
    "display controller",
    "xga compatible controller",
)


@dataclass(frozen=True, slots=True)
class PciDevice(Parsed):
    """A PCI function. ``cls`` and ``device`` are as printed.

    ``display`` is true for display controllers (PCI class 03). ``vendor_device_id`` has the form ``10de:1b80``.
    ``driver`` is the kernel driver that is bound to the device. Both are None if they are not printed.
    """

    slot: str
    cls: str
    device: str
    nvidia: bool
    display: bool
    vendor_device_id: str | None
    driver: str | None = None
    kernel_modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PciDevices(Parsed):
    """The NVIDIA functions and all display controllers, in order. Other devices are omitted.

    ``n_nvidia_functions`` also counts audio, USB and NVSwitch functions. ``drivers_in_use`` has the driver of each
    "Kernel driver in use" line, in order.
    """

    devices: tuple[PciDevice, ...]
    n_nvidia_gpus: int
    n_nvidia_functions: int
    drivers_in_use: tuple[str, ...]
    notes: tuple[str, ...] = ()


def parse_lspci(text: str) -> PciDevices:
    """Parse the output of ``lspci`` with any of the options ``-n -nn -k -v -D -mm``."""
    devices: list[PciDevice] = []
    drivers: list[str] = []
    for line in clean_lines(text):
        if match := _DEVICE.match(line):
            devices.append(_parse_device(match["slot"], match["rest"].rstrip(" `")))
        elif driver := _DRIVER.search(line):
            drivers.append(driver[1])
            if devices:
                devices[-1] = replace(devices[-1], driver=driver[1])
        elif devices and (modules := _MODULES.search(line)):
            names = tuple(name for name in modules[1].replace(",", " ").split() if name)
            devices[-1] = replace(devices[-1], kernel_modules=names)
    relevant = tuple(device for device in devices if device.nvidia or device.display)
    return PciDevices(
        devices=relevant,
        n_nvidia_gpus=sum(device.nvidia and device.display for device in relevant),
        n_nvidia_functions=sum(device.nvidia for device in relevant),
        drivers_in_use=tuple(drivers),
        notes=() if devices else ("no PCI device lines",),
    )


def _parse_device(slot: str, rest: str) -> PciDevice:
    """Parse a device from its slot and the rest of its line."""
    if numeric := _NUMERIC.match(rest):
        return _make_device(
            slot, numeric["cls"], rest[numeric.start("ids") :], numeric["ids"], numeric["cls"]
        )
    if rest.startswith('"'):
        return _parse_machine_readable(slot, rest)
    cls, _, name = rest.partition(": ")
    class_id = _CLASS_ID.search(
        cls[-12:]
    )  # only the end, because a search in a long text takes quadratic time
    if class_id:
        cls = cls[: -len(class_id[0])]
    ids = _IDS.findall(name)
    return _make_device(
        slot, cls.strip(), name.strip(), ids[-1] if ids else None, class_id[1] if class_id else None
    )


def _parse_machine_readable(slot: str, rest: str) -> PciDevice:
    """Parse a device in the format of ``lspci -mm``: quoted class, vendor and device, with ``-nn`` IDs."""
    fields = [*_QUOTED.findall(rest), "", "", ""][:3]
    id_matches = [_CLASS_ID.search(field[-12:]) for field in fields]
    names = [
        field[: -len(match[0])] if match else field for field, match in zip(fields, id_matches, strict=True)
    ]
    ids = f"{id_matches[1][1]}:{id_matches[2][1]}" if id_matches[1] and id_matches[2] else None
    return _make_device(
        slot, names[0], f"{names[1]} {names[2]}".strip(), ids, id_matches[0][1] if id_matches[0] else None
    )


def _make_device(slot: str, cls: str, name: str, ids: str | None, class_id: str | None) -> PciDevice:
    nvidia = "nvidia" in name.lower() or (ids or "").lower().startswith(NVIDIA_VENDOR_ID + ":")
    display = cls.lower().startswith(_DISPLAY_CLASSES) or (class_id or "").startswith("03")
    return PciDevice(
        slot, cls, name, nvidia=nvidia, display=display, vendor_device_id=ids.lower() if ids else None
    )
