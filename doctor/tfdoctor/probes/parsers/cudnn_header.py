"""Parse the version macros in ``cudnn.h`` (up to cuDNN 7) or ``cudnn_version.h`` (since 8)."""

from __future__ import annotations

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.probes.parsers._text import Parsed, clean

_VERSION_MACRO = make_lazy_pattern(r"\bCUDNN_(MAJOR|MINOR|PATCHLEVEL)[ \t]{1,80}([0-9]{1,6})\b")
_FIELD_BY_SUFFIX = {"MAJOR": "major", "MINOR": "minor", "PATCHLEVEL": "patch"}


@dataclass(frozen=True, slots=True)
class CudnnVersion(Parsed):
    """The version macros of a header. A value is None if the excerpt lacks the macro."""

    major: int | None
    minor: int | None
    patch: int | None


@dataclass(frozen=True, slots=True)
class CudnnHeader(Parsed):
    """The version macros of the first header. ``all`` contains the macros of every header in the text."""

    major: int | None
    minor: int | None
    patch: int | None
    all: tuple[CudnnVersion, ...]
    notes: tuple[str, ...] = ()


def parse_cudnn_header(text: str) -> CudnnHeader:
    """Parse ``#define CUDNN_MAJOR`` and similar lines, in any order."""
    headers: list[dict[str, int]] = []
    for suffix, value in _VERSION_MACRO.findall(clean(text)):
        # A repeated macro belongs to another header.
        if not headers or _FIELD_BY_SUFFIX[suffix] in headers[-1]:
            headers.append({})
        headers[-1][_FIELD_BY_SUFFIX[suffix]] = int(value)
    versions = tuple(
        CudnnVersion(macros.get("major"), macros.get("minor"), macros.get("patch")) for macros in headers
    )
    if not versions:
        return CudnnHeader(
            major=None,
            minor=None,
            patch=None,
            all=(),
            notes=("no CUDNN_MAJOR, _MINOR or _PATCHLEVEL with a number",),
        )
    first = versions[0]
    return CudnnHeader(first.major, first.minor, first.patch, all=versions)
