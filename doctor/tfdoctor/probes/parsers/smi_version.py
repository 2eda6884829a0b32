"""Parse ``nvidia-smi --version`` (since driver 525), which prints ``name : value`` lines.

Since driver 610, ``DRIVER version`` and ``CUDA Version`` only refer to the lines that replace them.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import VERSION_PATTERN, Parsed, clean_lines, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINE = re.compile(r"((?:NVIDIA-SMI|NVML|DRIVER|KMD|CUDA(?: UMD)?) +version) *: *(\S[^\n]*)", re.IGNORECASE)
_VERSION = re.compile(VERSION_PATTERN)


@dataclass(frozen=True, slots=True)
class SmiVersion(Parsed):
    """The parsed output. ``fields`` has all lines. ``driver_version`` is that of the kernel driver."""

    fields: Mapping[str, str] = field(default_factory=dict)
    driver_version: str | None = None
    cuda_version: str | None = None
    nvml_version: str | None = None
    smi_version: str | None = None
    notes: tuple[str, ...] = ()


def parse_smi_version(text: str) -> SmiVersion:
    """Parse the output. A value that is not a version, such as N/A or a deprecation remark, is None."""
    fields: dict[str, str] = {}
    for line in clean_lines(text):
        if match := _LINE.match(unquote(line)):
            fields.setdefault(" ".join(match[1].split()), match[2].strip())
    values_by_lower_name = {name.lower(): value for name, value in fields.items()}

    def find_version(*names: str) -> str | None:
        matches = (_VERSION.match(values_by_lower_name.get(name, "")) for name in names)
        return next((match[0] for match in matches if match), None)

    return SmiVersion(
        fields=fields,
        driver_version=find_version("kmd version", "driver version"),
        cuda_version=find_version("cuda umd version", "cuda version"),
        nvml_version=find_version("nvml version"),
        smi_version=find_version("nvidia-smi version"),
        notes=() if fields else ("no 'name : value' lines of nvidia-smi --version",),
    )
