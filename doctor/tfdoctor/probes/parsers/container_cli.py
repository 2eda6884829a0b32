"""Parse ``nvidia-container-cli info``: the driver and the GPUs that the container toolkit finds."""

from __future__ import annotations

import re

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean_lines, unquote, value_or_none

_LINE = re.compile(
    r"(NVRM version|CUDA version|Device Index|Device Minor|Model|Brand|GPU UUID|Bus Location|Architecture):"
    r"[ \t]*(\S.*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ContainerDevice(Parsed):
    """A listed GPU. ``architecture`` is its compute capability.

    A value is None if its line is missing or has a placeholder such as ``(null)``, which Jetson devices print.
    """

    model: str | None
    uuid: str | None
    architecture: str | None


@dataclass(frozen=True, slots=True)
class ContainerCli(Parsed):
    """The parsed output. The versions have several elements if the text contains several outputs."""

    nvrm_version: tuple[str | None, ...]
    cuda_version: tuple[str | None, ...]
    devices: tuple[ContainerDevice, ...]
    bus_location: tuple[str | None, ...]
    notes: tuple[str, ...] = ()


def parse_container_cli(text: str) -> ContainerCli:
    """Parse the output of ``nvidia-container-cli info``. Debug lines in between are ignored."""
    nvrm_versions: list[str | None] = []
    cuda_versions: list[str | None] = []
    bus_locations: list[str | None] = []
    device_values: list[dict[str, str | None]] = []
    for line in clean_lines(text):
        match = _LINE.match(unquote(line))
        if not match:
            continue
        key, value = match[1].lower(), value_or_none(match[2])
        if key == "nvrm version":
            nvrm_versions.append(value)
        elif key == "cuda version":
            cuda_versions.append(value)
        elif key == "bus location":
            bus_locations.append(value)
        else:
            # "Device Index" starts a device, but an excerpt may start with any other line of the device.
            if not device_values or key == "device index" or key in device_values[-1]:
                device_values.append({})
            device_values[-1][key] = value
    return ContainerCli(
        nvrm_version=tuple(nvrm_versions),
        cuda_version=tuple(cuda_versions),
        devices=tuple(
            ContainerDevice(
                model=values.get("model"),
                uuid=values.get("gpu uuid"),
                architecture=values.get("architecture"),
            )
            for values in device_values
        ),
        bus_location=tuple(bus_locations),
        notes=() if nvrm_versions or device_values else ("no lines of nvidia-container-cli info",),
    )
