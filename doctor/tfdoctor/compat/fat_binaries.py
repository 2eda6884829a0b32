"""Which of a release's kernels have machine code for a card: compat/fat_binaries.json, read from the wheels by scripts.

A wheel has hundreds of fat binaries, and not each has machine code for the same cards: the elementwise kernels that
MLIR generates have none for the newest one, only PTX (1149 of them in 2.20 for compute capability 9.0). The driver
compiles that, where it knows the version of PTX's instruction set that is written in it.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import enum
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from tfdoctor import versions
from tfdoctor.compat.decode import Sources, read
from tfdoctor.records import dataclass

__all__ = ["Coverage", "FatBinaries", "KernelCoverage", "coverage", "load_fat_binaries", "newest_text"]

MIN_RATIO_WITH_CODE = 100
"""One in so many fat binaries without code is said, and makes no card useless: each wheel has a kernel or two of its
compiler's own libraries that have machine code alone."""
_ARCHITECTURE = re.compile(r"(\d{1,2})(\d)([af]?)(?::(\d{1,2}\.\d{1,2}))?")


class KernelCoverage(enum.Enum):
    """What there is for a card."""

    NATIVE = "machine code"
    PTX = "PTX alone"
    """At least a part of the kernels has to be compiled by the driver."""
    TOO_NEW = "none: the card is too new"
    TOO_OLD = "none: the card is too old"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of the fat binaries of a TensorFlow a card can run."""

    capability: str
    native: int
    compiled: int
    """PTX alone."""
    newer: int
    """Only for newer cards: each of them has its own kernels, which this one never asks for."""
    lacking: int
    """Made for older cards, and with nothing that this one can run."""
    isa: str | None = None
    """The newest version of PTX's instruction set among those that have to be compiled; None: not read."""

    @property
    def every(self) -> int:
        """The fat binaries that concern the card."""
        return self.native + self.compiled + self.lacking

    @property
    def kernels(self) -> KernelCoverage:
        """The answer for the card."""
        if self.lacking * MIN_RATIO_WITH_CODE > self.every:
            return KernelCoverage.TOO_NEW
        if not self.native and not self.compiled:
            return KernelCoverage.TOO_OLD
        return KernelCoverage.PTX if self.compiled else KernelCoverage.NATIVE

    @property
    def share(self) -> str:
        """How many of them have to be compiled: `"all"`, `"most"`, `"some"`."""
        if not self.native:
            return "all"
        return "most" if 2 * self.compiled > self.every else "some"

    @property
    def sentence(self) -> str:
        """What was found, for the reader."""
        card, every = f"compute capability {self.capability}", self.every
        but = f"; {self.lacking} without any for it, and what needs that fails" if self.lacking else ""
        if self.kernels is KernelCoverage.NATIVE:
            some = "all" if self.native == every else f"{self.native} of"
            return f"machine code for {card} in {some} {every} fat binaries that concern it{but}"
        if self.kernels is KernelCoverage.PTX:
            some = "all" if self.compiled == every else f"{self.compiled} of"
            when = "the driver compiles it at the first start"
            return f"PTX alone for {card} in {some} {every} fat binaries: {when}{but}"
        if self.kernels is KernelCoverage.TOO_NEW:
            return f"no code for {card} in {self.lacking} of {every} fat binaries: the card is newer than they are"
        return f"no code for {card}: all {self.newer} fat binaries are for newer cards"


@dataclass(frozen=True, slots=True)
class Counted:
    """The fat binaries of one release."""

    NAMED: ClassVar = ("version",)
    version: str
    counts: Mapping[str, int]
    """`"60,70,80,89|90a:8.5"` → how many have machine code for these architectures, and PTX for those with the version
    of its instruction set."""


@dataclass(frozen=True, slots=True)
class FatBinaries:
    """The whole table."""

    as_of: str
    sources: Sources
    releases: tuple[Counted, ...]

    def get_counts(self, version: str) -> Mapping[str, int] | None:
        """Return those of a release (`"2.20.0"`), or None if it was not read."""
        return next((row.counts for row in self.releases if row.version == version), None)

    @property
    def versions(self) -> tuple[str, ...]:
        """The releases that were read."""
        return tuple(row.version for row in self.releases)


def load_fat_binaries(folder: Path) -> FatBinaries:
    """Load compat/fat_binaries.json. Raises DataError."""
    return read(FatBinaries, folder / "fat_binaries.json")


def coverage(counts: Mapping[str, int], capability: str) -> Coverage:
    """Return what of them a card of this compute capability can run.

    Where others have machine code, those with PTX alone do not count: they are NCCL's relocatable functions, whose
    machine code was linked into one that does (measured on 2.15 and 2.20).
    """
    wanted = versions.parse_capability(capability)
    linked = any(not kinds.startswith("|") for kinds in counts)
    found = {"native": 0, "compiled": 0, "newer": 0, "lacking": 0}
    needed: list[str] = []
    for kinds, count in counts.items():
        if linked and kinds.startswith("|"):
            continue
        what, isa = _classify_binary(kinds, wanted)
        found[what] += count
        if isa is not None:
            needed.append(isa)
    return Coverage(capability, **found, isa=max(needed, key=versions.parse, default=None))


def newest_text(counts: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the newest compute capability that they have PTX for; None if all is machine code."""
    return max(
        (have for kinds in counts for have, _, _ in _architectures(kinds.partition("|")[2])), default=None
    )


def _classify_binary(kinds: str, wanted: tuple[int, int]) -> tuple[str, str | None]:
    code, _, texts = kinds.partition("|")
    cubins = [have for have, _, _ in _architectures(code)]
    ptx = list(_architectures(texts))
    if any(versions.runs_machine_code(wanted, have) for have in cubins):
        return "native", None
    fitting = [(have, isa) for have, letter, isa in ptx if _compiles(have, letter, wanted)]
    if fitting:
        return "compiled", max(fitting, key=lambda one: (one[0], versions.parse(one[1] or "0")))[1]
    every = [*cubins, *(have for have, _, _ in ptx)]
    return ("newer" if all(have > wanted for have in every) else "lacking"), None


def _architectures(text: str) -> Iterator[tuple[tuple[int, int], str, str | None]]:
    """Yield (capability, letter, version of PTX's instruction set) of each."""
    for part in text.split(","):
        one = _ARCHITECTURE.fullmatch(part)
        if one is not None:
            yield (int(one[1]), int(one[2])), one[3], one[4]


def _compiles(have: tuple[int, int], letter: str, wanted: tuple[int, int]) -> bool:
    """Return whether the driver compiles PTX of this architecture for the card."""
    if letter == "a":
        return have == wanted
    return have <= wanted and (letter != "f" or have[0] == wanted[0])
