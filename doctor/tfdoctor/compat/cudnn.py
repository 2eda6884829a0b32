"""The CUDA majors and GPUs that each cuDNN version supports: compat/cudnn.toml, a hand-written table."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import itertools
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal

from tfdoctor.compat.decode import Capability, Evidence, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["CondaCudnn", "CudnnRange", "CudnnSupport", "CudnnTable", "load_cudnn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudnnRange:
    """A range of cuDNN versions that support the same GPUs (`[[range]]`)."""

    NAMED: ClassVar = ("first",)
    first_version: str = field(metadata={"key": "first"})
    """First version that is known to be in the range."""
    end_version: str = field(metadata={"key": "below"})
    """First version that is known to be outside the range, or the end of the known versions."""
    cuda: tuple[int, ...]
    """CUDA major versions with builds of these cuDNN versions."""
    min_capability: Capability = field(metadata={"key": "lowest"})
    """Lowest compute capability for which the core libraries have code."""
    max_capability: Capability = field(metadata={"key": "highest"})
    """Highest compute capability with cubins."""
    ptx: str | None = None
    """Highest compute capability with PTX, which the driver compiles for newer GPUs; None if there is no PTX."""
    glibc: str | None = None
    evidence: Evidence
    measured_versions: tuple[str, ...] = field(metadata={"key": "measured"})
    """Versions whose files were read."""
    note: str = ""
    sources: Sources


@dataclass(frozen=True, slots=True)
class CudnnSupport:
    """Support of a cuDNN version for a compute capability."""

    version: str
    capability: str
    verdict: Literal["native", "jit", "dropped", "too-new", "unknown"]
    """The kind of code that the version has for the GPU.

    native: cubins; jit: only PTX; dropped: only older versions have code; too-new: the GPU is newer than this cuDNN;
    unknown: the version is not in the table, or no known version has code for a GPU this old.
    """
    version_range: CudnnRange | None
    """Range that contains the version; None if the version is not in the table."""
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CondaCudnn:
    """The cuDNN package in conda for a `cudatoolkit` version (`[[conda]]`)."""

    NAMED: ClassVar = ("cuda", "cudnn")
    cuda: str
    build_cudnn_major: int | None = field(default=None, metadata={"key": "built"})
    """cuDNN major version that TensorFlow was built with; None means any."""
    cudnn: str
    sources: Sources


@dataclass(frozen=True, slots=True)
class CudnnTable:
    """The cuDNN versions in the file."""

    as_of: str
    ranges: tuple[CudnnRange, ...] = field(metadata={"key": "range"})
    """Oldest first."""
    conda: tuple[CondaCudnn, ...]

    @property
    def newest_major(self) -> int:
        """Major version of the newest known cuDNN."""
        return versions.major(self.ranges[-1].first_version)

    def find_conda_version(self, cuda: str, built: str | None) -> str | None:
        """Return conda's cuDNN for a toolkit (`"10.1"`) and a TensorFlow built with cuDNN `built`, or None."""
        major = versions.major(built) if built is not None else None
        return next(
            (
                entry.cudnn
                for entry in self.conda
                if entry.cuda == cuda and entry.build_cudnn_major in (None, major)
            ),
            None,
        )

    def find_dropping_version(self, capability: str, major: int) -> str | None:
        """Return the cuDNN minor of a major version that dropped a compute capability; None if no minor did."""
        target = versions.parse_capability(capability)
        ranges = [entry for entry in self.ranges if versions.major(entry.first_version) == major]
        for older, newer in itertools.pairwise(ranges):
            if (
                versions.parse_capability(older.min_capability)
                <= target
                < versions.parse_capability(newer.min_capability)
            ):
                return versions.major_minor(older.end_version)
        return None

    def find_range(self, version: str, cuda_major: int | None = None) -> CudnnRange | None:
        """Return the range that contains a cuDNN version (`"9.10.2.21"`, `"9.10"`); None if there is none."""
        for candidate in self.ranges:
            if (
                versions.is_at_least(version, _cut_version(candidate.first_version, version))
                and not versions.is_at_least(version, candidate.end_version)
                and (cuda_major is None or cuda_major in candidate.cuda)
            ):
                return candidate
        return None

    def find_support(self, version: str, capability: str) -> CudnnSupport:
        """Return which code a cuDNN version has for a compute capability.

        Raise versions.VersionSyntaxError if an argument is invalid.
        """
        entry = self.find_range(version)
        target = versions.parse_capability(capability)
        if entry is None:
            explanation = f"cuDNN {version} was not examined"
            return CudnnSupport(
                version, capability, verdict="unknown", version_range=None, explanation=explanation
            )
        lowest = versions.parse_capability(entry.min_capability)
        highest = versions.parse_capability(entry.max_capability)
        if target < lowest:
            explanation = (
                f"cuDNN {version} has code for compute capability {entry.min_capability} and newer only"
            )
            older = [
                candidate
                for candidate in self.ranges
                if versions.compare(candidate.end_version, entry.first_version) <= 0
            ]
            had_support = any(
                versions.parse_capability(candidate.min_capability) <= target for candidate in older
            )
            verdict: Literal["dropped", "unknown"] = "dropped" if had_support else "unknown"
            return CudnnSupport(
                version, capability, verdict=verdict, version_range=entry, explanation=explanation
            )
        # Cubins also run on newer GPUs of the same major.
        if target <= highest or target[0] == highest[0]:
            explanation = (
                f"cuDNN {version} has machine code from {entry.min_capability} to {entry.max_capability}"
            )
            return CudnnSupport(
                version, capability, verdict="native", version_range=entry, explanation=explanation
            )
        if entry.ptx is not None and versions.parse_capability(entry.ptx) <= target:
            explanation = (
                f"cuDNN {version} ends at {entry.max_capability}; {capability} compiles its PTX {entry.ptx}"
            )
            return CudnnSupport(
                version, capability, verdict="jit", version_range=entry, explanation=explanation
            )
        explanation = f"cuDNN {version} ends at compute capability {entry.max_capability}"
        return CudnnSupport(
            version, capability, verdict="too-new", version_range=entry, explanation=explanation
        )


def load_cudnn(folder: Path) -> CudnnTable:
    """Load compat/cudnn.toml. Raise DataError if it is invalid."""
    return read_table(CudnnTable, folder / "cudnn.toml")


def _cut_version(first: str, version: str) -> str:
    """Return `first` with as many numbers as `version`, so that 9.10 is in a range that starts at 9.10.1."""
    count = len(version.split("+", maxsplit=1)[0].split("-", maxsplit=1)[0].split("."))
    return ".".join(first.split(".")[:count])
