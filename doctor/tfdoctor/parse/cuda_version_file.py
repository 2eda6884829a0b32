"""Parse ``version.txt`` (up to CUDA 10.2) and ``version.json`` (since 11.1) of ``/usr/local/cuda``."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.parse._text import VERSION, Parsed, clean
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

# The file has no colon, but the header of nvidia-smi and labels in bug reports do. They are also accepted.
_TXT = lazy_pattern(rf"\bCUDA Version:? +({VERSION})", re.IGNORECASE)
_COMPONENT = lazy_pattern(r'"([A-Za-z0-9_.-]{1,80})"\s{0,40}:\s{0,40}\{')
_COMPONENT_VERSION = lazy_pattern(r'"version"\s{0,40}:\s{0,40}"([^"\n]{1,80})"')
# A version that is farther away belongs to another component.
_MAX_COMPONENT_CHARS = 600


@dataclass(frozen=True, slots=True)
class CudaVersionFile(Parsed):
    """The parsed file.

    ``kind`` is the name of the file, or None if the text is neither file. ``components`` are the versions by key of
    version.json, such as ``cuda_nvcc``.
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
        return CudaVersionFile("version.json", components.get("cuda"), components, notes)
    match = _TXT.search(text)
    if match:
        return CudaVersionFile("version.txt", match[1])
    return CudaVersionFile(None, None, notes=("neither version.txt nor version.json",))


def _parse_components(text: str) -> dict[str, str]:
    """Return the version of each component, from entries of the form ``"key": {… "version": "…"}``.

    The first entry of a key counts. The text need not be complete JSON.
    """
    versions: dict[str, str] = {}
    for match in _COMPONENT.finditer(text):
        body = text[match.end() : match.end() + _MAX_COMPONENT_CHARS].partition("}")[0]
        version = _COMPONENT_VERSION.search(body)
        if version:
            versions.setdefault(match[1], version[1])
    return versions
