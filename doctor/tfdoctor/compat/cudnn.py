"""For which CUDA majors and which GPUs each cuDNN has code: compat/cudnn.toml, authored, and asked."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import itertools
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import Capability, Evidence, Sources, read
from tfdoctor.records import dataclass

__all__ = ["CondaCudnn", "CudnnRange", "CudnnSupport", "CudnnTable", "load_cudnn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudnnRange:
    """A run of cuDNN versions with the same reach (compat/cudnn.toml, `[[range]]`)."""

    NAMED: ClassVar = ("first",)
    first: str
    """The first version that is known to belong to it."""
    below: str
    """The first version known to be different, or the end of what is known."""
    cuda: tuple[int, ...]
    """CUDA majors it is made for."""
    lowest: Capability
    """The lowest compute capability that its core libraries have code for."""
    highest: Capability
    """The highest one with machine code."""
    ptx: str | None = None
    """The highest PTX inside: newer GPUs can compile it."""
    glibc: str | None = None
    evidence: Evidence
    measured: tuple[str, ...]
    """Versions whose files were read."""
    note: str = ""
    sources: Sources


@dataclass(frozen=True, slots=True)
class CudnnSupport:
    """Whether a cuDNN has code for a compute capability."""

    version: str
    capability: str
    verdict: Literal["native", "jit", "dropped", "too-new", "unknown"]
    """Machine code; only PTX; support was removed; newer than this cuDNN; the table does not say."""
    range: CudnnRange | None
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CondaCudnn:
    """The cuDNN that conda has for one of its `cudatoolkit` (`[[conda]]`)."""

    NAMED: ClassVar = ("cuda", "cudnn")
    cuda: str
    built: int | None = None
    """Only for a TensorFlow built with this major of cuDNN; None: for every other."""
    cudnn: str
    sources: Sources


@dataclass(frozen=True, slots=True)
class CudnnTable:
    """The whole table."""

    as_of: str
    ranges: tuple[CudnnRange, ...] = field(metadata={"key": "range"})
    """Oldest first."""
    conda: tuple[CondaCudnn, ...]

    @property
    def newest_major(self) -> int:
        """The major of the newest cuDNN that is known."""
        return versions.major(self.ranges[-1].first)

    def find_conda_version(self, cuda: str, built: str | None) -> str | None:
        """Return the cuDNN that goes with conda's toolkit (`"10.1"`) and a TensorFlow built with cuDNN `built`, or
        None.
        """
        major = versions.major(built) if built is not None else None
        return next(
            (row.cudnn for row in self.conda if row.cuda == cuda and row.built in (None, major)), None
        )

    def end_of(self, capability: str, major: int) -> str | None:
        """Return the first minor of this major without code for a capability that older ones of it have, or None."""
        wanted = versions.parse_capability(capability)
        of_major = [row for row in self.ranges if versions.major(row.first) == major]
        for older, newer in itertools.pairwise(of_major):
            if versions.parse_capability(older.lowest) <= wanted < versions.parse_capability(newer.lowest):
                return versions.major_minor(older.below)
        return None

    def range(self, version: str, cuda_major: int | None = None) -> CudnnRange | None:
        """Return the run that a cuDNN version (`"9.10.2.21"`, `"9.10"`) belongs to, or None if unknown."""
        for row in self.ranges:
            if (
                versions.is_at_least(version, _short(row.first, version))
                and not versions.is_at_least(version, row.below)
                and (cuda_major is None or cuda_major in row.cuda)
            ):
                return row
        return None

    def support(self, version: str, capability: str) -> CudnnSupport:
        """Return whether this cuDNN has code for a compute capability. Raises versions.VersionSyntaxError."""
        row = self.range(version)
        wanted = versions.parse_capability(capability)
        if row is None:
            why = f"cuDNN {version} was not looked into"
            return CudnnSupport(version, capability, "unknown", None, why)
        lowest = versions.parse_capability(row.lowest)
        highest = versions.parse_capability(row.highest)
        if wanted < lowest:
            why = f"cuDNN {version} has code for compute capability {row.lowest} and newer only"
            older = [other for other in self.ranges if versions.compare(other.below, row.first) <= 0]
            had = any(versions.parse_capability(other.lowest) <= wanted for other in older)
            return CudnnSupport(version, capability, "dropped" if had else "unknown", row, why)
        if wanted <= highest or wanted[0] == highest[0]:
            why = f"cuDNN {version} has machine code from {row.lowest} to {row.highest}"
            return CudnnSupport(version, capability, "native", row, why)
        if row.ptx is not None and versions.parse_capability(row.ptx) <= wanted:
            why = f"cuDNN {version} ends at {row.highest}; {capability} compiles its PTX {row.ptx}"
            return CudnnSupport(version, capability, "jit", row, why)
        why = f"cuDNN {version} ends at compute capability {row.highest}"
        return CudnnSupport(version, capability, "too-new", row, why)


def load_cudnn(folder: Path) -> CudnnTable:
    """Load compat/cudnn.toml. Raises DataError."""
    return read(CudnnTable, folder / "cudnn.toml")


def _short(first: str, version: str) -> str:
    """Return `first` cut to as many numbers as `version` has: 9.10 lies in a range that starts at 9.10.1."""
    count = len(version.split("+", maxsplit=1)[0].split("-", maxsplit=1)[0].split("."))
    return ".".join(first.split(".")[:count])
