"""The GPUs that a release has kernels for: compat/fat_binaries.json, measured in the wheels.

A wheel has hundreds of fat binaries, and not all have cubins for the same GPUs. The elementwise kernels that MLIR
generates have only PTX for the newest GPU (1149 of them in 2.20 for compute capability 9.0). The driver can compile it
if it supports the PTX ISA version of the file.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = [
    "Coverage",
    "FatBinaries",
    "KernelCoverage",
    "compute_coverage",
    "find_newest_ptx",
    "load_fat_binaries",
]

LACKING_RATIO_DIVISOR = 100
"""If more than one in this number of fat binaries has no code for a GPU, the GPU is too new for the release.

A few fat binaries without code are normal: they are kernels from the compiler's libraries, which have only cubins.
"""
_ARCHITECTURE = re.compile(r"(\d{1,2})(\d)([af]?)(?::(\d{1,2}\.\d{1,2}))?")
"""An architecture such as "86", "90a" or "90a:8.5": major, minor, suffix and PTX ISA version."""


class KernelCoverage(enum.Enum):
    """The kind of code that a release has for a GPU."""

    NATIVE = "machine code"
    PTX = "PTX alone"
    """The driver has to compile at least some of the kernels."""
    TOO_NEW = "none: the card is too new"
    TOO_OLD = "none: the card is too old"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The numbers of fat binaries in a TensorFlow wheel, by how a GPU can run them."""

    capability: str
    native_count: int
    """Fat binaries with a cubin for the GPU."""
    compiled_count: int
    """Fat binaries with only PTX, which the driver must compile."""
    newer_count: int
    """Fat binaries for newer GPUs only, which this GPU never loads."""
    lacking_count: int
    """Fat binaries for older GPUs only, without code that this GPU can run."""
    newest_isa: str | None = None
    """Newest PTX ISA version that must be compiled; None if it is not known."""

    @property
    def relevant_count(self) -> int:
        """Number of fat binaries that the GPU may load."""
        return self.native_count + self.compiled_count + self.lacking_count

    @property
    def kernel_coverage(self) -> KernelCoverage:
        """The kind of code that the wheel has for the GPU."""
        if self.lacking_count * LACKING_RATIO_DIVISOR > self.relevant_count:
            return KernelCoverage.TOO_NEW
        if not self.native_count and not self.compiled_count:
            return KernelCoverage.TOO_OLD
        return KernelCoverage.PTX if self.compiled_count else KernelCoverage.NATIVE

    @property
    def compiled_share(self) -> str:
        """The share of the fat binaries that must be compiled: `"all"`, `"most"` or `"some"`."""
        if not self.native_count:
            return "all"
        return "most" if 2 * self.compiled_count > self.relevant_count else "some"

    @property
    def description(self) -> str:
        """A description of the coverage for the user."""
        card, relevant_count = f"compute capability {self.capability}", self.relevant_count
        exception_note = (
            f"; {self.lacking_count} without any for it, and what needs that fails"
            if self.lacking_count
            else ""
        )
        if self.kernel_coverage is KernelCoverage.NATIVE:
            count = "all" if self.native_count == relevant_count else f"{self.native_count} of"
            return f"machine code for {card} in {count} {relevant_count} fat binaries that concern it{exception_note}"
        if self.kernel_coverage is KernelCoverage.PTX:
            count = "all" if self.compiled_count == relevant_count else f"{self.compiled_count} of"
            explanation = "the driver compiles it at the first start"
            return f"PTX alone for {card} in {count} {relevant_count} fat binaries: {explanation}{exception_note}"
        if self.kernel_coverage is KernelCoverage.TOO_NEW:
            return f"no code for {card} in {self.lacking_count} of {relevant_count} fat binaries: the card is newer than they are"
        return f"no code for {card}: all {self.newer_count} fat binaries are for newer cards"


@dataclass(frozen=True, slots=True)
class ReleaseCounts:
    """The fat binaries of one release."""

    NAMED: ClassVar = ("version",)
    version: str
    count_by_architectures: Mapping[str, int] = field(metadata={"key": "counts"})
    """The number of fat binaries for each set of architectures, such as `"60,70,80,89|90a:8.5"`.

    Cubins are before the bar; PTX with its ISA version is after it.
    """


@dataclass(frozen=True, slots=True)
class FatBinaries:
    """The fat binaries of the measured releases."""

    as_of: str
    sources: Sources
    releases: tuple[ReleaseCounts, ...]

    def get_counts(self, version: str) -> Mapping[str, int] | None:
        """Return the counts of a release (`"2.20.0"`); None if it was not measured."""
        return next(
            (release.count_by_architectures for release in self.releases if release.version == version), None
        )

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the measured releases."""
        return tuple(release.version for release in self.releases)


def load_fat_binaries(folder: Path) -> FatBinaries:
    """Load compat/fat_binaries.json. Raise DataError if it is invalid."""
    return read_table(FatBinaries, folder / "fat_binaries.json")


def compute_coverage(counts: Mapping[str, int], capability: str) -> Coverage:
    """Count the fat binaries that a GPU of this compute capability can run.

    If some fat binaries have cubins, those with only PTX do not count: they are NCCL's relocatable functions, whose machine
    code was linked into another fat binary (measured with 2.15 and 2.20).
    """
    target = versions.parse_capability(capability)
    has_cubins = any(not architectures.startswith("|") for architectures in counts)
    totals = {"native": 0, "compiled": 0, "newer": 0, "lacking": 0}
    ptx_versions: list[str] = []
    for architectures, count in counts.items():
        if has_cubins and architectures.startswith("|"):
            continue
        total_key, isa = _classify_binary(architectures, target)
        totals[total_key] += count
        if isa is not None:
            ptx_versions.append(isa)
    return Coverage(
        capability=capability,
        native_count=totals["native"],
        compiled_count=totals["compiled"],
        newer_count=totals["newer"],
        lacking_count=totals["lacking"],
        newest_isa=max(ptx_versions, key=versions.parse, default=None),
    )


def find_newest_ptx(counts: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the newest compute capability with PTX; None if there are only cubins."""
    return max(
        (
            arch
            for architectures in counts
            for arch, _, _ in _parse_architectures(architectures.partition("|")[2])
        ),
        default=None,
    )


def _classify_binary(architectures: str, target: tuple[int, int]) -> tuple[str, str | None]:
    """Return how a GPU can run a fat binary, as a key of `totals`, and the ISA version of PTX to compile."""
    cubin_text, _, ptx_text = architectures.partition("|")
    cubins = [arch for arch, _, _ in _parse_architectures(cubin_text)]
    ptx = list(_parse_architectures(ptx_text))
    if any(versions.can_run_cubin(target, arch) for arch in cubins):
        return "native", None
    compilable = [(arch, isa) for arch, letter, isa in ptx if _can_compile(arch, letter, target)]
    if compilable:
        return "compiled", max(compilable, key=lambda item: (item[0], versions.parse(item[1] or "0")))[1]
    all_archs = [*cubins, *(arch for arch, _, _ in ptx)]
    return ("newer" if all(arch > target for arch in all_archs) else "lacking"), None


def _parse_architectures(text: str) -> Iterator[tuple[tuple[int, int], str, str | None]]:
    """Yield (capability, suffix letter, PTX ISA version) of each architecture."""
    for part in text.split(","):
        match = _ARCHITECTURE.fullmatch(part)
        if match is not None:
            yield (int(match[1]), int(match[2])), match[3], match[4]


def _can_compile(arch: tuple[int, int], letter: str, target: tuple[int, int]) -> bool:
    """Return whether the driver can compile PTX of this architecture for the GPU."""
    if letter == "a":
        return arch == target  # code for exactly this architecture
    # "f" is code for the same major version only.
    return arch <= target and (letter != "f" or arch[0] == target[0])
