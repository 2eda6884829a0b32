"""CUDA's toolkits and the drivers they need: compat/cuda.toml, authored, and asked."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from dataclasses import field
from pathlib import Path
from typing import ClassVar

from tfdoctor import versions
from tfdoctor.compat.decode import Capability, Evidence, Sources, read
from tfdoctor.compat.releases import Platform
from tfdoctor.records import dataclass

__all__ = [
    "CudaFamily",
    "CudaRelease",
    "CudaSeries",
    "CudaTable",
    "DriverMinimum",
    "ForwardCompatibility",
    "load_cuda",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaFamily:
    """All toolkits of one major: the floor of minor-version compatibility (compat/cuda.toml,
    `[[family]]`)."""

    NAMED: ClassVar = ("major",)
    major: int
    linux: str | None = None
    windows: str | None = None
    minor_version_compatibility: bool
    wheels: str | None = None
    """The toolkit whose sonames NVIDIA's wheels of this major have; None: there are none."""
    note: str
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaRelease:
    """One toolkit release and the driver that came with it (`[[release]]`)."""

    NAMED: ClassVar = ("version",)
    version: str
    name: str
    """As NVIDIA calls it: `"12.5 Update 1"`."""
    linux: str | None = None
    windows: str | None = None
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSeries:
    """What one toolkit minor can compile for (`[[series]]`)."""

    NAMED: ClassVar = ("version",)
    version: str
    capabilities: tuple[Capability, ...]
    """Lowest first."""
    driver_branch: str | None = None
    ptx_isa: str | None = None
    """The version of PTX's instruction set that its driver is the first to know; None: none, or not known."""
    evidence: Evidence
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCompatibility:
    """When a `cuda-compat` package can stand in for a newer driver (`[forward_compatibility]`)."""

    package: str
    since: str
    only_for: tuple[str, ...]
    errors: tuple[int, ...]
    """CUDA's error numbers where it cannot."""
    note: str
    sources: Sources


@dataclass(frozen=True, slots=True)
class DriverMinimum:
    """The driver that a CUDA version needs on one system, and why."""

    cuda: str
    os: Platform
    minimum: str | None
    """The one that counts: the family's floor where minor-version compatibility holds, else the toolkit's
    own."""
    family_floor: str | None
    own: str | None
    """The driver that came with this very toolkit: needed for everything it can do, PTX compilation
    included."""
    minor_version_compatibility: bool
    explanation: str
    evidence: Evidence
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CudaTable:
    """The whole table."""

    as_of: str
    families: tuple[CudaFamily, ...] = field(metadata={"key": "family"})
    releases: tuple[CudaRelease, ...] = field(metadata={"key": "release"})
    """Oldest first."""
    all_series: tuple[CudaSeries, ...] = field(metadata={"key": "series"})
    forward_compatibility: ForwardCompatibility

    def wheels(self) -> dict[int, str]:
        """CUDA major → the toolkit whose sonames NVIDIA's wheels of it have."""
        return {row.major: row.wheels for row in self.families if row.wheels is not None}

    def series(self, cuda: str) -> CudaSeries | None:
        """Return what the toolkit of this minor compiles for, or None if nobody looked."""
        wanted = versions.major_minor(cuda)
        return next((row for row in self.all_series if row.version == wanted), None)

    def find_by_ptx(self, isa: str) -> str | None:
        """Return the first minor whose driver compiles PTX of this version (`"8.5"`: `"12.5"`), or None."""
        able = [
            row.version for row in self.all_series if row.ptx_isa and versions.is_at_least(row.ptx_isa, isa)
        ]
        return min(able, key=versions.parse, default=None)

    def release(self, cuda: str) -> CudaRelease | None:
        """Return the toolkit release of this version.

        Of `"12.5"` the first one, of a newer patch the newest known.
        """
        rows = [row for row in self.releases if versions.has_prefix(row.version, _two(cuda))]
        if not rows:
            return None
        fitting = [row for row in rows if versions.compare(row.version, cuda) <= 0]
        return fitting[-1] if fitting else rows[0]

    def driver_minimum(self, cuda: str, os: Platform = "linux") -> DriverMinimum:
        """Return the driver that programs built with this CUDA need (`"12.5.1"`, `"11.2"`, `"10.1"`).

        `minimum` is None if the table has no answer. Raises versions.VersionSyntaxError.
        """
        major = versions.major(cuda)
        family = next((row for row in self.families if row.major == major), None)
        row = self.release(cuda)
        own = None if row is None else getattr(row, os)
        if family is None:
            why = f"CUDA {major} is newer than this table ({self.as_of})"
            return DriverMinimum(cuda, os, None, None, own, False, why, "documented", ())
        floor = getattr(family, os)
        sources = tuple(dict.fromkeys((*family.sources, *(() if row is None else row.sources))))
        if not family.minor_version_compatibility:
            why = f"CUDA {cuda} needs the driver it came with, {own or 'which is not known'}, or newer"
            return DriverMinimum(cuda, os, own, None, own, False, why, "documented", sources)
        minimum = floor
        if own is not None and floor is not None and not versions.is_at_least(own, floor):
            minimum = own
        if minimum is None:
            why = f"NVIDIA's table has no {os} driver for CUDA {major}"
        else:
            why = f"any CUDA {major}.x runs on driver {minimum} and newer (minor-version compatibility)"
            if row is None:
                why += f"; CUDA {cuda} itself is not in the table ({self.as_of})"
            if own is not None and own != minimum:
                why += f"; what has to be compiled from PTX needs {own}, the driver of CUDA {cuda}"
        return DriverMinimum(cuda, os, minimum, floor, own, True, why, "documented", sources)

    def newest_for_driver(self, driver: str, os: Platform = "linux") -> str | None:
        """Return the newest CUDA minor whose own driver is not newer than `driver`.

        None below all, and for a driver of a newer branch than the table has: that one brings a CUDA which nobody
        here has seen.
        """
        known: list[tuple[str, str]] = []
        for row in self.releases:
            own = getattr(row, os)
            if own is not None:
                known.append((versions.major_minor(row.version), own))
        have = {cuda for cuda, _ in known}
        known += [  # of the newest ones only the branch is printed yet
            (series.version, series.driver_branch.lstrip("R"))
            for series in self.all_series
            if series.driver_branch is not None and series.version not in have
        ]
        if versions.major(driver) > max(versions.major(own) for _, own in known):
            return None
        fitting = [cuda for cuda, own in known if versions.is_at_least(driver, own)]
        return max(fitting, key=versions.numbers, default=None)


def load_cuda(folder: Path) -> CudaTable:
    """Load compat/cuda.toml. Raises DataError."""
    return read(CudaTable, folder / "cuda.toml")


def _two(cuda: str) -> str:
    return ".".join(cuda.split(".")[:2])
