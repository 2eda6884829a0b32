"""The libraries that TensorFlow opens, the packages that contain them, and TensorFlow distributions.

The table is compat/libraries.toml.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tfdoctor.compat.decode import Converted, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern

__all__ = [
    "LibraryFamily",
    "LibraryTable",
    "PypiWheel",
    "Registration",
    "TfDistribution",
    "load_libraries",
    "normalize_defines",
    "split_soname",
]

_SONAME = make_lazy_pattern(r"lib(?P<stem>[A-Za-z0-9_+-]+?)\.so(?:\.(?P<version>[0-9.]+))?")
_DEFINE_BY_STEM = {"cublasLt": "CUBLAS"}


@dataclass(frozen=True, slots=True)
class PypiWheel:
    """The location of a library in NVIDIA's wheel for a CUDA major version."""

    project: str
    """Name of the project, such as `"nvidia-cusolver-cu12"`."""
    folder: str
    """Folder below site-packages, such as `"nvidia/cusolver/lib"`."""
    cuda_major: int


def _parse_wheels(pairs: Mapping[str, str]) -> dict[int, PypiWheel]:
    """Parse values such as `"nvidia-cusolver-cu12 nvidia/cusolver/lib"`, by CUDA major version.

    Raise ValueError if one is invalid.
    """
    wheels = {}
    for key, value in pairs.items():
        project, _, folder = value.partition(" ")
        if not key.isdigit() or not folder:
            msg = f"`{key} = {value}` is not `CUDA major = project folder`"
            raise ValueError(msg)
        wheels[int(key)] = PypiWheel(project=project, folder=folder, cuda_major=int(key))
    return wheels


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFamily:
    """A library in all CUDA versions (`[[library]]`)."""

    NAMED: ClassVar = ("stem",)
    stem: str
    """The name between `lib` and `.so`: `"cusolver"` in `libcusolver.so.11`."""
    title: str
    role: Literal["registration", "lazy", "dependency", "driver", "optional"]
    """How TensorFlow uses the library.

    registration: opened when GPUs are registered; lazy: opened later; dependency: needed by another library;
    driver: part of the driver; optional: not required.
    """
    version_define: str | None = field(default=None, metadata={"key": "define"})
    """Name of its version in cuda_config.h: `"CUSOLVER"` for `TF_CUSOLVER_VERSION`."""
    first_tf: str | None = None
    """First TensorFlow minor that opens it at registration."""
    last_tf: str | None = None
    """Last TensorFlow minor that opens it at registration; None if current releases still do."""
    soname_version_by_cuda: Mapping[str, str] = field(default_factory=dict, metadata={"key": "sonames"})
    """The version in the soname, by CUDA minor or major version; `"11"` is for each 11.x that is not listed."""
    wheels: Annotated[Mapping[int, PypiWheel], Converted(Mapping[str, str], _parse_wheels)] = field(
        default_factory=dict
    )
    nvidia_package_by_version: Mapping[str, str] = field(default_factory=dict, metadata={"key": "debian"})
    """The package in NVIDIA's repository, by CUDA minor or major version; `{dash}` is the CUDA version as `12-5`."""
    conda_package: str | None = field(default=None, metadata={"key": "conda"})
    """The package on conda-forge for CUDA 12 and newer. For older CUDA, `cudatoolkit` (or `cudnn`) contains it."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOnlyReleases:
    """CPU-only releases of a distribution whose other releases have GPU code (in a `[[distribution]]`)."""

    NAMED: ClassVar = ("until",)
    since: str | None = None
    """First minor; None if it is the first release."""
    until: str
    """Last minor."""
    text: str
    source: str

    def includes(self, minor: tuple[int, ...]) -> bool:
        """Return whether a minor release, such as `(2, 0)`, is CPU-only."""
        return versions.is_minor_in_range(minor, self.since, self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class TfDistribution:
    """A distribution that contains TensorFlow, or that has a similar name (`[[distribution]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    gpu: bool | None = None
    """Whether it has GPU code; None if that depends on the version."""
    equivalent_distribution: str | None = field(default=None, metadata={"key": "same_as"})
    """The distribution whose releases have the same contents; None if there is none."""
    retired_version: str | None = field(default=None, metadata={"key": "retired"})
    """The version that contains no TensorFlow and only announces the end of the distribution."""
    note: str
    cpu_only_releases: tuple[CpuOnlyReleases, ...] = field(default=(), metadata={"key": "for_cpu"})
    """Releases without GPU code."""
    sources: Sources

    def explain_missing_gpu_code(self, minor: tuple[int, ...]) -> str | None:
        """Return the reason why a minor release has no GPU code; None if it is not in `for_cpu`."""
        return next((entry.text for entry in self.cpu_only_releases if entry.includes(minor)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How TensorFlow loads libraries when it registers GPUs, up to the minor release of the next entry."""

    NAMED: ClassVar = ("since",)
    since: str
    """First minor."""
    is_linked: bool = field(metadata={"key": "linked"})
    """Whether the libraries are linked, so that the import fails without them. Otherwise TensorFlow opens them."""
    opened_stems: tuple[str, ...] = field(metadata={"key": "opens"})
    """CUDA libraries without `lib` and `.so`, in the order in which TensorFlow tries them."""
    driver_sonames: tuple[str, ...] = field(metadata={"key": "driver"})
    """Sonames of the driver's libraries."""
    sources: Sources


@dataclass(frozen=True, slots=True)
class LibraryTable:
    """The libraries and distributions in the file."""

    as_of: str
    libraries: tuple[LibraryFamily, ...] = field(metadata={"key": "library"})
    distributions: tuple[TfDistribution, ...] = field(metadata={"key": "distribution"})
    registrations: tuple[Registration, ...] = field(metadata={"key": "registration"})
    """Oldest first."""

    def find_registration(self, version: str) -> Registration:
        """Return how a TensorFlow version loads its libraries. The first entry is also for older versions."""
        minor = versions.parse_numbers(version)[:2]
        entries = [entry for entry in self.registrations if versions.parse_numbers(entry.since) <= minor]
        return entries[-1] if entries else self.registrations[0]

    def find_required(self, cuda_config: Mapping[str, str], version: str) -> tuple[str, ...] | None:
        """Return the sonames that a build of this version needs to register GPUs.

        `cuda_config` contains the defines of the build's cuda_config.h. The result is empty if there are no defines, and
        None if a required version is not among them.
        """
        defines = normalize_defines(cuda_config)
        if "CUDA" not in defines:
            return () if not defines else None
        registration = self.find_registration(version)
        result = []
        for stem in registration.opened_stems:
            name = _DEFINE_BY_STEM.get(stem, stem.upper())
            if registration.is_linked and name != "CUDNN":
                number = defines["CUDA"]
            elif name == "CUDART":
                # Until 2.3 the soname of the CUDA runtime had the toolkit's version, and there was no TF_CUDART_VERSION.
                number = defines.get("CUDART", defines["CUDA"])
            else:
                number = defines.get(name) or (defines.get("CUDA_LIB", "") if name != "CUDNN" else "")
            if not number:
                return None
            result.append(f"lib{stem}.so.{number}")
        return tuple(result)

    def find_distribution(self, name: str) -> TfDistribution | None:
        """Return the distribution with a name such as `tensorflow-intel`; None if it is not known."""
        normalized = re.sub(r"[-_.]+", "-", name).lower()
        return next((candidate for candidate in self.distributions if candidate.name == normalized), None)

    def find_library(self, name: str) -> LibraryFamily | None:
        """Return the entry for a soname (`libcusolver.so.11`) or stem (`cusolver`); None if it is not known."""
        parts = split_soname(name)
        stem = name if parts is None else parts[0]
        return next((family for family in self.libraries if family.stem == stem), None)

    def find_soname(self, stem: str, cuda: str) -> str | None:
        """Return the soname of a library in a CUDA toolkit: `libcusolver.so.10` for `("cusolver", "11.0")`.

        The result is None if it is not known. It is also None for cuDNN and NCCL, whose versions do not follow CUDA's.
        """
        family = self.find_library(stem)
        version = None if family is None else _find_by_cuda(family.soname_version_by_cuda, cuda)
        if version is None:
            return None
        return f"lib{stem}.so.{version.replace('x', versions.major_minor(cuda).split('.')[1])}"

    def list_cuda_with_soname(self, soname: str) -> tuple[str, ...]:
        """Return the CUDA versions whose toolkit has a soname: 10 and 11.0 for `libcusolver.so.10`."""
        parts = split_soname(soname)
        family = self.find_library(soname)
        if parts is None or family is None:
            return ()
        return tuple(cuda for cuda, version in family.soname_version_by_cuda.items() if version == parts[1])

    def find_wheel(self, soname: str, cuda_major: int) -> PypiWheel | None:
        """Return NVIDIA's wheel that contains a library for a CUDA major version; None if there is none."""
        family = self.find_library(soname)
        return None if family is None else family.wheels.get(cuda_major)

    def find_nvidia_package(self, soname: str, cuda: str | None = None) -> str | None:
        """Return the package in NVIDIA's apt repository: `libcublas-12-5` for `("libcublas.so.12", "12.5")`.

        The result is None if there is none, or if `cuda` is None and the name depends on it. `libcudnn8` does not.
        """
        family, parts = self.find_library(soname), split_soname(soname)
        if family is None:
            return None
        name = None
        if parts is not None and parts[1] is not None:
            name = family.nvidia_package_by_version.get(f"so.{parts[1].split('.')[0]}")
        if name is None and cuda is not None:
            name = _find_by_cuda(family.nvidia_package_by_version, cuda)
        if name is None or "{" not in name:
            return name
        if cuda is None:
            return None
        return name.format(
            dash=versions.major_minor(cuda).replace(".", "-"), major=versions.parse_numbers(cuda)[0]
        )


def load_libraries(folder: Path) -> LibraryTable:
    """Load compat/libraries.toml. Raise DataError if it is invalid."""
    return read_table(LibraryTable, folder / "libraries.toml")


def split_soname(name: str) -> tuple[str, str | None] | None:
    """Split a soname: `"libcudart.so.11.0"` becomes `("cudart", "11.0")`.

    The version is None if the soname has none. The result is None if the name is not a soname.
    """
    match = _SONAME.fullmatch(name)
    return None if match is None else (match["stem"], match["version"])


def normalize_defines(defines: Mapping[str, str]) -> dict[str, str]:
    """Return the versions in cuda_config.h by short name: `TF_CUDART_VERSION` becomes `CUDART`.

    Quotes are removed. Other defines (paths, capabilities) and empty versions are omitted. Short names are accepted, too.
    """
    result = {}
    for name, value in defines.items():
        short = name.removeprefix("TF_").removesuffix("_VERSION")
        text = value.strip().strip('"')
        if text and re.fullmatch(r"[0-9][0-9.]*", text) and short.isupper():
            result[short] = text
    return result


def _find_by_cuda(table: Mapping[str, str], cuda: str) -> str | None:
    """Return the entry for the minor version, else for the major version of CUDA; None if there is none."""
    minor = versions.major_minor(cuda)
    return table.get(minor, table.get(str(versions.major(cuda))))
