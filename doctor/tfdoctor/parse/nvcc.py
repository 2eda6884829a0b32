"""Parse ``nvcc --version``, which says nothing about the driver or the CUDA that TensorFlow uses."""

from __future__ import annotations

from tfdoctor.parse._text import VERSION, Parsed, clean
from tfdoctor.parse.smi_failure import reports_missing_program
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

_RELEASE = lazy_pattern(r"\brelease ([0-9]{1,3}\.[0-9]{1,3})\b")
_VERSION = lazy_pattern(rf"\bV({VERSION})\b")
# "cuda_11.0_bu.TC445_37.…" in 11.0, "cuda_X.Y.rX.Y/compiler.N" since 11.2. Up to 10.2 there is no such line.
_BUILD = lazy_pattern(r"\bBuild (cuda_[^\s`\"'”]+)")
_BUILT_ON = lazy_pattern(r"\bBuilt on +([^\n]+)")


@dataclass(frozen=True, slots=True)
class Nvcc(Parsed):
    """The parsed output. ``found`` says whether nvcc ran, ``release`` is X.Y, and ``version`` is X.Y.Z.

    A value is None if the text lacks it.
    """

    found: bool
    release: str | None
    version: str | None
    build: str | None
    built_on: str | None
    notes: tuple[str, ...] = ()


def parse_nvcc(text: str) -> Nvcc:
    """Parse the output of ``nvcc --version`` or ``-V``, or the shell's message that nvcc does not exist."""
    text = clean(text)
    release = _RELEASE.search(text)
    if not release:
        reason = (
            "the shell found no nvcc"
            if reports_missing_program(text, "nvcc")
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
    """Return the build date, or None if it is missing.

    nvcc joins the words of the date with underscores. If a paste lost them, the rest of the line is returned.
    """
    match = _BUILT_ON.search(text)
    if not match:
        return None
    date = match[1].split("Cuda compilation")[0].strip(" \t`")
    first_word = date.split(" ")[0]
    return (first_word if "_" in first_word else date) or None
