"""Parse the PCI devices in the output of ``lspci``."""

from __future__ import annotations

import re
from dataclasses import replace

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean_lines

NVIDIA_VENDOR_ID = "10de"

# "01:00.0 …" or "0000:01:00.0 …", perhaps after quote marks or grep's line number ("12:01:00.0 …").
_DEVICE_LINE = re.compile(
    r"[ \t>*#|`-]*(?:[0-9]{1,6}[:-])??"
    r"(?P<slot>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])[ \t]+(?P<rest>\S[^\n]*)"
)
_CLASS_ID = re.compile(r"[ \t]*\[([0-9A-Fa-f]{4})\]$")
_VENDOR_AND_DEVICE_ID = re.compile(r"\[([0-9A-Fa-f]{4}:[0-9A-Fa-f]{4})\]")
_NUMERIC_DEVICE = re.compile(r"(?:Class )?(?P<cls>[0-9A-Fa-f]{4}): (?P<ids>[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4})\b")
_QUOTED_FIELD = re.compile(r'"([^"]*)"')
_KERNEL_DRIVER = re.compile(r"Kernel driver in use: *([A-Za-z0-9_.-]+)")
_KERNEL_MODULES = re.compile(r"Kernel modules: *([A-Za-z0-9_.,\t -]+)")
_DISPLAY_CLASSES = (
    "vga compatible controller",
    "3d controller",
    "display controller",
    "xga compatible controller",
)


@dataclass(frozen=True, slots=True)
class PciDevice(Parsed):
    """A PCI function. ``cls`` is its class, and ``device`` its vendor and device, as printed.

    ``display`` is true for display controllers (PCI class 03). ``vendor_device_id`` has the form ``10de:1b80``, and
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
        if match := _DEVICE_LINE.match(line):
            devices.append(_parse_device(match["slot"], match["rest"].rstrip(" `")))
        elif driver_match := _KERNEL_DRIVER.search(line):
            drivers.append(driver_match[1])
            if devices:
                devices[-1] = replace(devices[-1], driver=driver_match[1])
        elif devices and (modules_match := _KERNEL_MODULES.search(line)):
            names = tuple(name for name in modules_match[1].replace(",", " ").split() if name)
            devices[-1] = replace(devices[-1], kernel_modules=names)
    listed_devices = tuple(device for device in devices if device.nvidia or device.display)
    return PciDevices(
        devices=listed_devices,
        n_nvidia_gpus=sum(device.nvidia and device.display for device in listed_devices),
        n_nvidia_functions=sum(device.nvidia for device in listed_devices),
        drivers_in_use=tuple(drivers),
        notes=() if devices else ("no PCI device lines",),
    )


def _parse_device(slot: str, rest: str) -> PciDevice:
    """Parse a device from its slot and the rest of its line."""
    if numeric := _NUMERIC_DEVICE.match(rest):
        return _make_device(
            slot,
            numeric["cls"],
            rest[numeric.start("ids") :],
            ids=numeric["ids"],
            class_id=numeric["cls"],
        )
    if rest.startswith('"'):
        return _parse_machine_readable(slot, rest)
    cls, _, name = rest.partition(": ")
    # only the end, because a search in a long text takes quadratic time
    class_match = _CLASS_ID.search(cls[-12:])
    if class_match:
        cls = cls[: -len(class_match[0])]
    ids = _VENDOR_AND_DEVICE_ID.findall(name)
    return _make_device(
        slot,
        cls.strip(),
        name.strip(),
        ids=ids[-1] if ids else None,
        class_id=class_match[1] if class_match else None,
    )


def _parse_machine_readable(slot: str, rest: str) -> PciDevice:
    """Parse a device in the format of ``lspci -mm``: quoted class, vendor and device, with IDs if ``-nn``."""
    fields = [*_QUOTED_FIELD.findall(rest), "", "", ""][:3]
    id_matches = [_CLASS_ID.search(field[-12:]) for field in fields]
    cls, vendor, device = (
        field[: -len(match[0])] if match else field for field, match in zip(fields, id_matches, strict=True)
    )
    class_match, vendor_match, device_match = id_matches
    return _make_device(
        slot,
        cls,
        f"{vendor} {device}".strip(),
        ids=f"{vendor_match[1]}:{device_match[1]}" if vendor_match and device_match else None,
        class_id=class_match[1] if class_match else None,
    )


def _make_device(slot: str, cls: str, name: str, ids: str | None, class_id: str | None) -> PciDevice:
    nvidia = "nvidia" in name.lower() or (ids or "").lower().startswith(NVIDIA_VENDOR_ID + ":")
    display = cls.lower().startswith(_DISPLAY_CLASSES) or (class_id or "").startswith("03")
    return PciDevice(
        slot=slot,
        cls=cls,
        device=name,
        nvidia=nvidia,
        display=display,
        vendor_device_id=ids.lower() if ids else None,
    )
