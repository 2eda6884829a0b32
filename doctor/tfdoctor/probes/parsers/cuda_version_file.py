"""Parse ``version.txt`` (up to CUDA 10.2) and ``version.json`` (since 11.1) of ``/usr/local/cuda``."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.probes.parsers._text import VERSION_PATTERN, Parsed, clean

if TYPE_CHECKING:
    from collections.abc import Mapping

# version.txt has no colon. It is accepted because the header of nvidia-smi and labels in bug reports have it.
_TXT_VERSION = make_lazy_pattern(rf"\bCUDA Version:? +({VERSION_PATTERN})", re.IGNORECASE)
_COMPONENT_START = make_lazy_pattern(r'"([A-Za-z0-9_.-]{1,80})"\s{0,40}:\s{0,40}\{')
_COMPONENT_VERSION = make_lazy_pattern(r'"version"\s{0,40}:\s{0,40}"([^"\n]{1,80})"')
# A version that is farther from the key belongs to another component.
_MAX_COMPONENT_CHARS = 600


@dataclass(frozen=True, slots=True)
class CudaVersionFile(Parsed):
    """The parsed file.

    ``kind`` is the name of the file, or None if the text is neither file. ``components`` maps the keys of version.json,
    such as ``cuda_nvcc``, to versions.
    """

    kind: str | None
    cuda_version: str | None
    components: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def parse_cuda_version_file(text: str) -> CudaVersionFile:
    """Parse either file, or an excerpt of it."""
    text = clean(text)
    components = _parse_components(text)
    if components:
        notes = () if "cuda" in components else ("the 'cuda' entry is not in this excerpt",)
        return CudaVersionFile("version.json", components.get("cuda"), components=components, notes=notes)
    match = _TXT_VERSION.search(text)
    if match:
        return CudaVersionFile("version.txt", cuda_version=match[1])
    return CudaVersionFile(kind=None, cuda_version=None, notes=("neither version.txt nor version.json",))


def _parse_components(text: str) -> dict[str, str]:
    """Return the version of each component, from entries of the form ``"key": {… "version": "…"}``.

    The first entry of a key counts. The text need not be complete JSON.
    """
    versions: dict[str, str] = {}
    for match in _COMPONENT_START.finditer(text):
        component_text = text[match.end() : match.end() + _MAX_COMPONENT_CHARS].partition("}")[0]
        version_match = _COMPONENT_VERSION.search(component_text)
        if version_match:
            versions.setdefault(match[1], version_match[1])
    return versions
