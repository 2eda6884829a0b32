"""``nvidia-container-cli info``: what the container toolkit sees of the driver."""

from __future__ import annotations

import re

from tfdoctor.parse._text import Parsed, clean_lines, unquote, value_or_none
from tfdoctor.records import dataclass

_LINE = re.compile(
    r"(NVRM version|CUDA version|Device Index|Device Minor|Model|Brand|GPU UUID|Bus Location|Architecture):"
    r"[ \t]*(\S.*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ContainerDevice(Parsed):
    """A GPU as listed; ``architecture`` is the compute capability. None for ``(null)`` (Jetson)."""

    model: str | None
    uuid: str | None
    architecture: str | None


@dataclass(frozen=True, slots=True)
class ContainerCli(Parsed):
    """One element for each line printed: several where the text has several answers."""

    nvrm_version: tuple[str | None, ...]
    cuda_version: tuple[str | None, ...]
    devices: tuple[ContainerDevice, ...]
    bus_location: tuple[str | None, ...]
    notes: tuple[str, ...] = ()


def parse_container_cli(text: str) -> ContainerCli:
    """Read ``nvidia-container-cli info``, also between its own debug lines."""
    nvrm: list[str | None] = []
    cuda: list[str | None] = []
    bus: list[str | None] = []
    devices: list[dict[str, str | None]] = []
    for line in clean_lines(text):
        match = _LINE.match(unquote(line))
        if not match:
            continue
        key, value = match[1].lower(), value_or_none(match[2])
        if key == "nvrm version":
            nvrm.append(value)
        elif key == "cuda version":
            cuda.append(value)
        elif key == "bus location":
            bus.append(value)
        else:
            # "Device Index" opens a device; an excerpt may start with any other of its lines.
            if not devices or key == "device index" or key in devices[-1]:
                devices.append({})
            devices[-1][key] = value
    return ContainerCli(
        nvrm_version=tuple(nvrm),
        cuda_version=tuple(cuda),
        devices=tuple(
            ContainerDevice(one.get("model"), one.get("gpu uuid"), one.get("architecture")) for one in devices
        ),
        bus_location=tuple(bus),
        notes=() if nvrm or devices else ("no lines of nvidia-container-cli info",),
    )
