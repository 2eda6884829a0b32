"""``cudnn.h`` (up to 7) and ``cudnn_version.h`` (since 8): the version macros, usually filtered by grep."""

from __future__ import annotations

from tfdoctor.parse._text import Parsed, clean
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

_MACRO = lazy_pattern(r"\bCUDNN_(MAJOR|MINOR|PATCHLEVEL)[ \t]{1,80}([0-9]{1,6})\b")
_FIELDS = {"MAJOR": "major", "MINOR": "minor", "PATCHLEVEL": "patch"}


@dataclass(frozen=True, slots=True)
class CudnnVersion(Parsed):
    """One set of version macros; a value is None if the excerpt lacks the macro."""

    major: int | None
    minor: int | None
    patch: int | None


@dataclass(frozen=True, slots=True)
class CudnnHeader(Parsed):
    """The first set of version macros; ``all`` contains every set, for texts with several headers."""

    major: int | None
    minor: int | None
    patch: int | None
    all: tuple[CudnnVersion, ...]
    notes: tuple[str, ...] = ()


def parse_cudnn_header(text: str) -> CudnnHeader:
    """Parse the ``#define CUDNN_MAJOR`` lines, in any order and number."""
    sets: list[dict[str, int]] = []
    for macro, value in _MACRO.findall(clean(text)):
        # A repeated macro starts another header.
        if not sets or _FIELDS[macro] in sets[-1]:
            sets.append({})
        sets[-1][_FIELDS[macro]] = int(value)
    versions = tuple(
        CudnnVersion(macros.get("major"), macros.get("minor"), macros.get("patch")) for macros in sets
    )
    if not versions:
        return CudnnHeader(
            None, None, None, (), notes=("no CUDNN_MAJOR, _MINOR or _PATCHLEVEL with a number",)
        )
    first = versions[0]
    return CudnnHeader(first.major, first.minor, first.patch, versions)
