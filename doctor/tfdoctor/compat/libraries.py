"""The libraries TensorFlow looks for, who brings them, and what passes for a TensorFlow: compat/libraries.toml."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import Converted, Sources, read
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

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

_SONAME = lazy_pattern(r"lib(?P<stem>[A-Za-z0-9_+-]+?)\.so(?:\.(?P<version>[0-9.]+))?")
_DEFINE_OF_STEM = {"cublasLt": "CUBLAS"}


@dataclass(frozen=True, slots=True)
class PypiWheel:
    """Where NVIDIA's wheel of one CUDA major puts a library."""

    project: str
    """`"nvidia-cusolver-cu12"`."""
    folder: str
    """Below site-packages: `"nvidia/cusolver/lib"`."""
    cuda_major: int


def _wheels(pairs: Mapping[str, str]) -> dict[int, PypiWheel]:
    wheels = {}
    for key, value in pairs.items():
        project, _, place = value.partition(" ")
        if not key.isdigit() or not place:
            msg = f"`{key} = {value}` is not `CUDA major = project folder`"
            raise ValueError(msg)
        wheels[int(key)] = PypiWheel(project=project, folder=place, cuda_major=int(key))
    return wheels


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFamily:
    """One library through all CUDA versions (compat/libraries.toml)."""

    NAMED: ClassVar = ("stem",)
    stem: str
    """`"cusolver"` of `libcusolver.so.11`."""
    title: str
    role: Literal["registration", "lazy", "dependency", "driver", "optional"]
    """What TF wants it for: at registration, later, through another library, as the driver, if it is
    there."""
    define: str | None = None
    """cuda_config.h's name for its version: `"CUSOLVER"` for `TF_CUSOLVER_VERSION`."""
    first_tf: str | None = None
    """The first TF minor that opens it at registration."""
    last_tf: str | None = None
    """The last one; None: still does."""
    sonames: Mapping[str, str] = field(default_factory=dict)
    """CUDA minor or major → version in the soname; `"11"` stands for every 11.x not named itself."""
    wheels: Annotated[Mapping[int, PypiWheel], Converted(Mapping[str, str], _wheels)] = field(
        default_factory=dict
    )
    debian: Mapping[str, str] = field(default_factory=dict)
    """CUDA minor or major → package in NVIDIA's repository; `{dash}` is the CUDA version as `12-5`."""
    distro: Mapping[str, str] = field(default_factory=dict)
    """Version in the soname → Debian's or Ubuntu's own package."""
    conda: str | None = None
    """Package on conda-forge, for CUDA 12 and newer; before, `cudatoolkit` has it (cuDNN: `cudnn`)."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class ForCpu:
    """Releases of a distribution that have no GPU code, where others of it have (in a `[[distribution]]`)."""

    NAMED: ClassVar = ("until",)
    since: str | None = None
    until: str
    """The first and the last minor."""
    text: str
    source: str

    def holds(self, minor: tuple[int, ...]) -> bool:
        """Return whether it tells of this minor, `(2, 0)`."""
        return versions.is_minor_in_range(minor, self.since, self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class TfDistribution:
    """A distribution that is a TensorFlow, or passes for one (`[[distribution]]` of libraries.toml)."""

    NAMED: ClassVar = ("name",)
    name: str
    gpu: bool | None = None
    """None: depends on the version; ask the release table or the installation's own files."""
    same_as: str | None = None
    """The distribution whose rows speak for it."""
    retired: str | None = None
    """The version that has no TensorFlow and only says that there are no more."""
    note: str
    for_cpu: tuple[ForCpu, ...] = ()
    """Minors of a distribution with and without GPU code."""
    sources: Sources

    def explain_missing_gpu_code(self, minor: tuple[int, ...]) -> str | None:
        """Return why its builds of this minor have no GPU code; None if that is not known."""
        return next((row.text for row in self.for_cpu if row.holds(minor)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How TensorFlow reaches its libraries when it lists GPUs, from its minor to the next row's."""

    NAMED: ClassVar = ("since",)
    since: str
    """The first minor."""
    linked: bool
    """The libraries are linked, so that the import fails without them; else they are opened."""
    opens: tuple[str, ...]
    """Stems of CUDA's libraries, in the order in which they are tried."""
    driver: tuple[str, ...]
    """Sonames of the driver's."""
    sources: Sources


@dataclass(frozen=True, slots=True)
class LibraryTable:
    """The whole table."""

    as_of: str
    libraries: tuple[LibraryFamily, ...] = field(metadata={"key": "library"})
    distributions: tuple[TfDistribution, ...] = field(metadata={"key": "distribution"})
    registrations: tuple[Registration, ...] = field(metadata={"key": "registration"})
    """Oldest first."""

    def registration(self, version: str) -> Registration:
        """Return how TensorFlow of this version does it; newer than the table: as the newest that was seen."""
        minor = versions.numbers(version)[:2]
        rows = [row for row in self.registrations if versions.numbers(row.since) <= minor]
        return rows[-1] if rows else self.registrations[0]

    def find_required(self, cuda_config: Mapping[str, str], version: str) -> tuple[str, ...] | None:
        """Return the sonames that a build of this version needs for GPU registration (see tables.Compat)."""
        defines = normalize_defines(cuda_config)
        if "CUDA" not in defines:
            return () if not defines else None
        era = self.registration(version)
        result = []
        for stem in era.opens:
            name = _DEFINE_OF_STEM.get(stem, stem.upper())
            if era.linked and name != "CUDNN":
                number = defines["CUDA"]
            elif name == "CUDART":
                # Until 2.3 the runtime's soname followed the toolkit and had no define of its own.
                number = defines.get("CUDART", defines["CUDA"])
            else:
                number = defines.get(name) or (defines.get("CUDA_LIB", "") if name != "CUDNN" else "")
            if not number:
                return None
            result.append(f"lib{stem}.so.{number}")
        return tuple(result)

    def distribution(self, name: str) -> TfDistribution | None:
        """Return what is known of a distribution called so (`tensorflow-intel`), or None."""
        wanted = re.sub(r"[-_.]+", "-", name).lower()
        return next((row for row in self.distributions if row.name == wanted), None)

    def library(self, name: str) -> LibraryFamily | None:
        """Return the family of a soname (`libcusolver.so.11`) or stem (`cusolver`), or None."""
        parts = split_soname(name)
        stem = name if parts is None else parts[0]
        return next((row for row in self.libraries if row.stem == stem), None)

    def soname_for(self, stem: str, cuda: str) -> str | None:
        """Return the soname that a library has in a CUDA toolkit: `("cusolver", "11.0")` → `libcusolver.so.10`.

        None for cuDNN and NCCL, whose version does not follow CUDA's, and where unknown.
        """
        family = self.library(stem)
        version = None if family is None else _find_by_cuda(family.sonames, cuda)
        if version is None:
            return None
        return f"lib{stem}.so.{version.replace('x', versions.major_minor(cuda).split('.')[1])}"

    def cuda_of_soname(self, soname: str) -> tuple[str, ...]:
        """Return the CUDA versions, as in libraries.toml, whose toolkit has this soname: `libcusolver.so.10` → 10,
        11.0.
        """
        parts = split_soname(soname)
        family = self.library(soname)
        if parts is None or family is None:
            return ()
        return tuple(cuda for cuda, version in family.sonames.items() if version == parts[1])

    def wheel_for(self, soname: str, cuda_major: int) -> PypiWheel | None:
        """Return NVIDIA's wheel that brings a library for this CUDA major, and the folder it is put in, or None."""
        family = self.library(soname)
        return None if family is None else family.wheels.get(cuda_major)

    def debian_package_for(self, soname: str, cuda: str | None = None) -> str | None:
        """Return the package of NVIDIA's own apt repository: `("libcublas.so.12", "12.5")` → `libcublas-12-5`.

        Without `cuda` only packages whose name does not depend on it (`libcudnn8`, `libnccl2`).
        """
        family, parts = self.library(soname), split_soname(soname)
        if family is None:
            return None
        name = None
        if parts is not None and parts[1] is not None:
            name = family.debian.get(f"so.{parts[1].split('.')[0]}")
        if name is None and cuda is not None:
            name = _find_by_cuda(family.debian, cuda)
        if name is None or "{" not in name:
            return name
        if cuda is None:
            return None
        return name.format(dash=versions.major_minor(cuda).replace(".", "-"), major=versions.numbers(cuda)[0])

    def distro_package_for(self, soname: str) -> str | None:
        """Return debian's or Ubuntu's own package of this very soname (non-free, multiverse), or None."""
        family, parts = self.library(soname), split_soname(soname)
        if family is None or parts is None or parts[1] is None:
            return None
        return family.distro.get(parts[1])


def load_libraries(folder: Path) -> LibraryTable:
    """Load compat/libraries.toml. Raises DataError."""
    return read(LibraryTable, folder / "libraries.toml")


def split_soname(name: str) -> tuple[str, str | None] | None:
    """Return `"libcudart.so.11.0"` → `("cudart", "11.0")`; no version → None in its place.

    Not a library → None.
    """
    match = _SONAME.fullmatch(name)
    return None if match is None else (match["stem"], match["version"])


def normalize_defines(defines: Mapping[str, str]) -> dict[str, str]:
    """cuda_config.h's defines under this package's names: `TF_CUDART_VERSION` → `CUDART`; quotes are dropped.

    Other defines (paths, capabilities) and empty versions are left out; short names pass through.
    """
    result = {}
    for name, value in defines.items():
        short = name.removeprefix("TF_").removesuffix("_VERSION")
        text = value.strip().strip('"')
        if text and re.fullmatch(r"[0-9][0-9.]*", text) and short.isupper():
            result[short] = text
    return result


def _find_by_cuda(table: Mapping[str, str], cuda: str) -> str | None:
    """Return the entry of a CUDA version in a table by minor or major."""
    minor = versions.major_minor(cuda)
    return table.get(minor, table.get(str(versions.major(cuda))))
