"""Parse ``nvcc --version``, which says nothing about the driver or the CUDA that TensorFlow uses."""

from __future__ import annotations

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.probes.parsers._text import VERSION_PATTERN, Parsed, clean
from tfdoctor.probes.parsers.smi_failure import reports_missing_program

_RELEASE = make_lazy_pattern(r"\brelease ([0-9]{1,3}\.[0-9]{1,3})\b")
_VERSION = make_lazy_pattern(rf"\bV({VERSION_PATTERN})\b")
# "cuda_11.0_bu.TC445_37.…" in 11.0, "cuda_X.Y.rX.Y/compiler.N" since 11.2. CUDA 10.2 and older have no such line.
_BUILD = make_lazy_pattern(r"\bBuild (cuda_[^\s`\"'”]+)")
_BUILT_ON = make_lazy_pattern(r"\bBuilt on +([^\n]+)")


@dataclass(frozen=True, slots=True)
class NvccVersion(Parsed):
    """The parsed output. ``found`` says whether nvcc ran, ``release`` is X.Y, and ``version`` is X.Y.Z.

    A value is None if the text lacks it.
    """

    found: bool
    release: str | None
    version: str | None
    build: str | None
    built_on: str | None
    notes: tuple[str, ...] = ()


def parse_nvcc(text: str) -> NvccVersion:
    """Parse the output of ``nvcc --version`` or ``-V``, or the shell's message that nvcc does not exist."""
    text = clean(text)
    release_match = _RELEASE.search(text)
    if not release_match:
        reason = (
            "the shell found no nvcc"
            if reports_missing_program(text, "nvcc")
            else "nvcc's 'release' line is not there"
        )
        return NvccVersion(
            found=False, release=None, version=None, build=None, built_on=None, notes=(reason,)
        )
    version_match = _VERSION.search(text, release_match.end()) or _VERSION.search(text)
    build_match = _BUILD.search(text)
    return NvccVersion(
        found=True,
        release=release_match[1],
        version=version_match[1] if version_match else None,
        build=build_match[1] if build_match else None,
        built_on=_parse_build_date(text),
    )


def _parse_build_date(text: str) -> str | None:
    """Return the build date, or None if it is missing.

    nvcc joins the words of the date with underscores. If a copy of the text lost them, return the rest of the line.
    """
    match = _BUILT_ON.search(text)
    if not match:
        return None
    date = match[1].split("Cuda compilation")[0].strip(" \t`")
    first_word = date.split(" ")[0]
    return (first_word if "_" in first_word else date) or None
