"""``nvcc --version``: the toolkit's compiler, which says nothing about the driver or TensorFlow's CUDA."""

from __future__ import annotations

from tfdoctor.parse._text import VERSION, Parsed, clean
from tfdoctor.parse.smi_failure import says_not_found
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

_RELEASE = lazy_pattern(r"\brelease ([0-9]{1,3}\.[0-9]{1,3})\b")
_VERSION = lazy_pattern(rf"\bV({VERSION})\b")
# Missing up to 10.2; "cuda_11.0_bu.TC445_37.…" in 11.0, "cuda_X.Y.rX.Y/compiler.N" since 11.2.
_BUILD = lazy_pattern(r"\bBuild (cuda_[^\s`\"'”]+)")
_BUILT_ON = lazy_pattern(r"\bBuilt on +([^\n]+)")


@dataclass(frozen=True, slots=True)
class Nvcc(Parsed):
    """The parsed output; ``found`` is whether nvcc answered, ``release`` is X.Y, ``version`` X.Y.Z."""

    found: bool
    release: str | None
    version: str | None
    build: str | None
    built_on: str | None
    notes: tuple[str, ...] = ()


def parse_nvcc(text: str) -> Nvcc:
    """Parse ``nvcc --version`` (or ``-V``), or the shell's message that there is no nvcc."""
    text = clean(text)
    release = _RELEASE.search(text)
    if not release:
        reason = (
            "the shell found no nvcc"
            if says_not_found(text, "nvcc")
            else "nvcc's 'release' line is not there"
        )
        return Nvcc(found=False, release=None, version=None, build=None, built_on=None, notes=(reason,))
    version = _VERSION.search(text, release.end()) or _VERSION.search(text)
    build = _BUILD.search(text)
    return Nvcc(
        found=True,
        release=release[1],
        version=version[1] if version else None,
        build=build[1] if build else None,
        built_on=_parse_build_date(text),
    )


def _parse_build_date(text: str) -> str | None:
    """Return the build date: one word joined by underscores, unless the paste lost them; None if missing."""
    match = _BUILT_ON.search(text)
    if not match:
        return None
    rest = match[1].split("Cuda compilation")[0].strip(" \t`")
    first = rest.split(" ")[0]
    return (first if "_" in first else rest) or None
