"""CUDA majors and GPUs that each cuDNN version supports: compat/cudnn.toml, a hand-written table."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

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
    """Range of cuDNN versions that support the same GPUs (compat/cudnn.toml, `[[range]]`)."""

    NAMED: ClassVar = ("first",)
    first: str
    """First version that is known to be in the range."""
    below: str
    """First version that is known to be outside the range, or the end of the known versions."""
    cuda: tuple[int, ...]
    """CUDA majors that it is built for."""
    lowest: Capability
    """Lowest compute capability for which its core libraries have code."""
    highest: Capability
    """Highest compute capability with machine code."""
    ptx: str | None = None
    """Highest compute capability with PTX, which the driver compiles for newer GPUs; None if there is no PTX."""
    glibc: str | None = None
    evidence: Evidence
    measured: tuple[str, ...]
    """Versions whose files were read."""
    note: str = ""
    sources: Sources


@dataclass(frozen=True, slots=True)
class CudnnSupport:
    """Support of a cuDNN version for a compute capability."""

    version: str
    capability: str
    verdict: Literal["native", "jit", "dropped", "too-new", "unknown"]
    """Kind of code.

    native: machine code; jit: only PTX; dropped: only older versions have code; too-new: the GPU is newer than this
    cuDNN; unknown: the cuDNN is not in the table, or no known version has code for so old a GPU.
    """
    range: CudnnRange | None
    """Range that contains the version; None if the version is not in the table."""
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CondaCudnn:
    """cuDNN package in conda for one `cudatoolkit` version (`[[conda]]`)."""

    NAMED: ClassVar = ("cuda", "cudnn")
    cuda: str
    built: int | None = None
    """cuDNN major with which TensorFlow must have been built. None means any."""
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
        """Major version of the newest known cuDNN."""
        return versions.major(self.ranges[-1].first)

    def find_conda_version(self, cuda: str, built: str | None) -> str | None:
        """Return the cuDNN for conda's toolkit (`"10.1"`) and a TensorFlow built with cuDNN `built`, or None."""
        major = versions.major(built) if built is not None else None
        return next(
            (entry.cudnn for entry in self.conda if entry.cuda == cuda and entry.built in (None, major)), None
        )

    def find_end(self, capability: str, major: int) -> str | None:
        """Return the first cuDNN minor of this major that dropped a compute capability.

        The result is None if no minor dropped it.
        """
        target = versions.parse_capability(capability)
        ranges = [r for r in self.ranges if versions.major(r.first) == major]
        for older, newer in itertools.pairwise(ranges):
            if versions.parse_capability(older.lowest) <= target < versions.parse_capability(newer.lowest):
                return versions.major_minor(older.below)
        return None

    def range(self, version: str, cuda_major: int | None = None) -> CudnnRange | None:
        """Return the range that contains a cuDNN version (`"9.10.2.21"`, `"9.10"`), or None if unknown."""
        for candidate in self.ranges:
            if (
                versions.is_at_least(version, _cut_version(candidate.first, version))
                and not versions.is_at_least(version, candidate.below)
                and (cuda_major is None or cuda_major in candidate.cuda)
            ):
                return candidate
        return None

    def support(self, version: str, capability: str) -> CudnnSupport:
        """Return whether this cuDNN has code for a compute capability.

        Raise versions.VersionSyntaxError if an argument is invalid.
        """
        entry = self.range(version)
        target = versions.parse_capability(capability)
        if entry is None:
            explanation = f"cuDNN {version} was not looked into"
            return CudnnSupport(version, capability, "unknown", None, explanation)
        lowest = versions.parse_capability(entry.lowest)
        highest = versions.parse_capability(entry.highest)
        if target < lowest:
            explanation = f"cuDNN {version} has code for compute capability {entry.lowest} and newer only"
            older = [other for other in self.ranges if versions.compare(other.below, entry.first) <= 0]
            had_support = any(versions.parse_capability(other.lowest) <= target for other in older)
            return CudnnSupport(
                version, capability, "dropped" if had_support else "unknown", entry, explanation
            )
        if target <= highest or target[0] == highest[0]:
            explanation = f"cuDNN {version} has machine code from {entry.lowest} to {entry.highest}"
            return CudnnSupport(version, capability, "native", entry, explanation)
        if entry.ptx is not None and versions.parse_capability(entry.ptx) <= target:
            explanation = (
                f"cuDNN {version} ends at {entry.highest}; {capability} compiles its PTX {entry.ptx}"
            )
            return CudnnSupport(version, capability, "jit", entry, explanation)
        explanation = f"cuDNN {version} ends at compute capability {entry.highest}"
        return CudnnSupport(version, capability, "too-new", entry, explanation)


def load_cudnn(folder: Path) -> CudnnTable:
    """Load compat/cudnn.toml. Raise DataError if it is invalid."""
    return read(CudnnTable, folder / "cudnn.toml")


def _cut_version(first: str, version: str) -> str:
    """Return `first` with as many numbers as `version`, so that 9.10 is in a range that starts at 9.10.1."""
    count = len(version.split("+", maxsplit=1)[0].split("-", maxsplit=1)[0].split("."))
    return ".".join(first.split(".")[:count])
