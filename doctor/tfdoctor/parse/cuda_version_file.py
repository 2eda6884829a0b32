"""``/usr/local/cuda/version.txt`` (to 10.2) and ``version.json`` (since 11.1)."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.parse._text import VERSION, Parsed, clean
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

# In the file there is no colon; with one it is nvidia-smi's header or a bug report's label, still an honest
# answer.
_TXT = lazy_pattern(rf"\bCUDA Version:? +({VERSION})", re.IGNORECASE)
_COMPONENT = lazy_pattern(r'"([A-Za-z0-9_.-]{1,80})"\s{0,40}:\s{0,40}\{')
_COMPONENT_VERSION = lazy_pattern(r'"version"\s{0,40}:\s{0,40}"([^"\n]{1,80})"')
# A component is a name and a version: what lies further away belongs to something else.
_COMPONENT_SPAN = 600


@dataclass(frozen=True, slots=True)
class CudaVersionFile(Parsed):
    """``kind`` is the file's name; ``components`` maps version.json's keys (``cuda_nvcc``) to versions."""

    kind: str | None
    cuda_version: str | None
    components: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def parse_cuda_version_file(text: str) -> CudaVersionFile:
    """Read either file, whole or in part."""
    text = clean(text)
    components = _components(text)
    if components:
        notes = () if "cuda" in components else ("the 'cuda' entry is not in this excerpt",)
        return CudaVersionFile("version.json", components.get("cuda"), components, notes)
    match = _TXT.search(text)
    if match:
        return CudaVersionFile("version.txt", match[1])
    return CudaVersionFile(None, None, notes=("neither version.txt nor version.json",))


def _components(text: str) -> dict[str, str]:
    """Return each ``"key": {… "version": "…"}``; the first of a repeated key.

    The text need not be whole JSON.
    """
    found: dict[str, str] = {}
    for match in _COMPONENT.finditer(text):
        body = text[match.end() : match.end() + _COMPONENT_SPAN].partition("}")[0]
        version = _COMPONENT_VERSION.search(body)
        if version:
            found.setdefault(match[1], version[1])
    return found
