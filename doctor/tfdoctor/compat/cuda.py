"""CUDA toolkits and the drivers that they need: compat/cuda.toml, a hand-written table."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from dataclasses import field
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import Capability, Evidence, Sources, read_table
from tfdoctor.compat.releases import Platform
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = [
    "CudaFamily",
    "CudaRelease",
    "CudaSeries",
    "CudaTable",
    "DriverMinimum",
    "load_cuda",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaFamily:
    """The toolkits of a major version, with the driver for minor-version compatibility (`[[family]]`)."""

    NAMED: ClassVar = ("major",)
    major: int
    linux: str | None = None
    """Minimum driver on Linux; None if there is none."""
    windows: str | None = None
    """Minimum driver on Windows; None if there is none."""
    minor_version_compatibility: bool
    wheel_toolkit: str | None = field(default=None, metadata={"key": "wheels"})
    """Toolkit whose sonames NVIDIA's wheels of this major have; None if there are no wheels."""
    note: str
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaRelease:
    """One toolkit release and the driver that came with it (`[[release]]`)."""

    NAMED: ClassVar = ("version",)
    version: str
    name: str
    """NVIDIA's name for it, such as `"12.5 Update 1"`."""
    linux: str | None = None
    """The Linux driver that came with it; None if there is none."""
    windows: str | None = None
    """The Windows driver that came with it; None if there is none."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSeries:
    """Compile targets of one toolkit minor (`[[series]]`)."""

    NAMED: ClassVar = ("version",)
    version: str
    capabilities: tuple[Capability, ...]
    """Lowest first."""
    driver_branch: str | None = None
    ptx_isa: str | None = None
    """PTX ISA version that was new in its driver; None if there was none or it is not known."""
    evidence: Evidence
    sources: Sources


@dataclass(frozen=True, slots=True)
class DriverMinimum:
    """The driver that a CUDA version needs on one operating system, with an explanation."""

    cuda: str
    os: Platform
    minimum: str | None
    """Oldest driver that works; None if not known.

    It is the driver that came with the toolkit, or with minor-version compatibility the family's minimum if that is older.
    """
    family_minimum: str | None
    """The family's minimum for minor-version compatibility; None if there is none."""
    toolkit_driver: str | None
    """Driver that came with this toolkit; None if not known. That of a minor version ("12.5") compiles its PTX."""
    minor_version_compatibility: bool
    explanation: str
    evidence: Evidence
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CudaTable:
    """The toolkits and drivers in the file."""

    as_of: str
    families: tuple[CudaFamily, ...] = field(metadata={"key": "family"})
    releases: tuple[CudaRelease, ...] = field(metadata={"key": "release"})
    """Oldest first."""
    all_series: tuple[CudaSeries, ...] = field(metadata={"key": "series"})

    def map_wheel_toolkits(self) -> dict[int, str]:
        """Return the toolkit whose sonames NVIDIA's wheels have, by CUDA major version."""
        return {
            family.major: family.wheel_toolkit for family in self.families if family.wheel_toolkit is not None
        }

    def find_series(self, cuda: str) -> CudaSeries | None:
        """Return the compile targets of a toolkit's minor version; None if they are not known."""
        minor = versions.major_minor(cuda)
        return next((series for series in self.all_series if series.version == minor), None)

    def find_by_ptx(self, isa: str) -> str | None:
        """Return the first CUDA minor whose driver compiles PTX of this ISA version: `"12.5"` for `"8.5"`.

        The result is None if the driver of no known CUDA version does.
        """
        capable = [
            series.version
            for series in self.all_series
            if series.ptx_isa and versions.is_at_least(series.ptx_isa, isa)
        ]
        return min(capable, key=versions.parse, default=None)

    def find_release(self, cuda: str) -> CudaRelease | None:
        """Return the toolkit release of a version; None if its minor version is not known.

        For `"12.5"`, return the first release of that minor version. For an unknown patch, return the newest older release.
        """
        candidates = [
            release for release in self.releases if versions.has_prefix(release.version, _cut_to_minor(cuda))
        ]
        if not candidates:
            return None
        not_newer = [release for release in candidates if versions.compare(release.version, cuda) <= 0]
        return not_newer[-1] if not_newer else candidates[0]

    def find_driver_minimum(self, cuda: str, os: Platform = "linux") -> DriverMinimum:
        """Return the driver that programs built with this CUDA version (`"12.5.1"`, `"11.2"`) need.

        `minimum` is None if the table does not have it. Raise versions.VersionSyntaxError if `cuda` is not a version.
        """
        major = versions.major(cuda)
        family = next((entry for entry in self.families if entry.major == major), None)
        release = self.find_release(cuda)
        own_driver = None if release is None else getattr(release, os)
        if family is None:
            explanation = f"CUDA {major} is newer than this table ({self.as_of})"
            return DriverMinimum(
                cuda=cuda,
                os=os,
                minimum=None,
                family_minimum=None,
                toolkit_driver=own_driver,
                minor_version_compatibility=False,
                explanation=explanation,
                evidence="documented",
                sources=(),
            )
        family_minimum = getattr(family, os)
        sources = tuple(dict.fromkeys((*family.sources, *(() if release is None else release.sources))))
        if not family.minor_version_compatibility:
            explanation = (
                f"CUDA {cuda} needs the driver it came with, {own_driver or 'which is not known'}, or newer"
            )
            return DriverMinimum(
                cuda=cuda,
                os=os,
                minimum=own_driver,
                family_minimum=None,
                toolkit_driver=own_driver,
                minor_version_compatibility=False,
                explanation=explanation,
                evidence="documented",
                sources=sources,
            )
        minimum = family_minimum
        if (
            own_driver is not None
            and family_minimum is not None
            and not versions.is_at_least(own_driver, family_minimum)
        ):
            minimum = own_driver
        if minimum is None:
            explanation = f"NVIDIA's table has no {os} driver for CUDA {major}"
        else:
            explanation = (
                f"any CUDA {major}.x runs on driver {minimum} and newer (minor-version compatibility)"
            )
            if release is None:
                explanation += f"; CUDA {cuda} itself is not in the table ({self.as_of})"
            ptx_cuda = versions.major_minor(cuda)
            # All updates of a minor release have the PTX version of the first.
            first_release = self.find_release(ptx_cuda)
            ptx_driver = None if first_release is None else getattr(first_release, os)
            if ptx_driver is not None and ptx_driver != minimum:
                explanation += (
                    f"; what has to be compiled from PTX needs {ptx_driver}, the driver of CUDA {ptx_cuda}"
                )
        return DriverMinimum(
            cuda=cuda,
            os=os,
            minimum=minimum,
            family_minimum=family_minimum,
            toolkit_driver=own_driver,
            minor_version_compatibility=True,
            explanation=explanation,
            evidence="documented",
            sources=sources,
        )

    def find_newest_for_driver(self, driver: str, os: Platform = "linux") -> str | None:
        """Return the newest CUDA minor that came with this driver or with an older one.

        The result is None if there is none. It is also None if the driver's branch is newer than the table: such a driver
        supports a CUDA version that is not in the table.
        """
        drivers: list[tuple[str, str]] = []
        for release in self.releases:
            own_driver = getattr(release, os)
            if own_driver is not None:
                drivers.append((versions.major_minor(release.version), own_driver))
        cudas = {cuda for cuda, _ in drivers}
        drivers += [  # for the newest toolkits, only the driver branch has been published
            (series.version, series.driver_branch.lstrip("R"))
            for series in self.all_series
            if series.driver_branch is not None and series.version not in cudas
        ]
        if versions.major(driver) > max(versions.major(own_driver) for _, own_driver in drivers):
            return None
        supported = [cuda for cuda, own_driver in drivers if versions.is_at_least(driver, own_driver)]
        return max(supported, key=versions.parse_numbers, default=None)


def load_cuda(folder: Path) -> CudaTable:
    """Load compat/cuda.toml. Raise DataError if it is invalid."""
    return read_table(CudaTable, folder / "cuda.toml")


def _cut_to_minor(cuda: str) -> str:
    return ".".join(cuda.split(".")[:2])
