"""NVIDIA's wheels for TensorFlow: the exact versions that belong together, and their contents.

compat/cuda_wheels.toml is hand-written and says which wheels belong to which releases, and why. scripts/update_locks.py
measures the hashes, sizes and libraries of the wheels in compat/locks/cuda/wheels.json. The two are merged on loading.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tfdoctor import versions
from tfdoctor.compat.decode import Converted, DataError, Evidence, ReleaseSet, Sources, read
from tfdoctor.records import dataclass

__all__ = ["CudaLibrary", "CudaSet", "CudaSets", "CudaWheel", "load_cuda_wheels", "read_sets"]

_PIN = re.compile(r"nvidia(?:-[a-z0-9]+)+==[0-9]+(?:\.[0-9]+)+")


def _check_id(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", text):
        msg = "is a file's name: small letters, digits, `.` and `-`"
        raise ValueError(msg)
    return text


def _check_pins(pins: tuple[str, ...]) -> tuple[str, ...]:
    for pin in pins:
        if _PIN.fullmatch(pin) is None:
            msg = f"`{pin}` is not `nvidia-…==version`"
            raise ValueError(msg)
    names = [pin.partition("==")[0] for pin in pins]
    if not pins or names != sorted({*names}):
        msg = "must be sorted, each project once"
        raise ValueError(msg)
    return pins


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaLibrary:
    """One shared object in a wheel."""

    NAMED: ClassVar = ("path",)
    path: str
    """Path below site-packages, such as `"nvidia/cublas/lib/libcublas.so.12"`."""
    soname: Annotated[str, Converted(str | None, lambda text: text or "")] = ""
    """Its DT_SONAME; "" if it has none."""
    needed: tuple[str, ...]
    """Sonames of the libraries that it needs (DT_NEEDED), except glibc and the compiler's."""

    @property
    def folder(self) -> str:
        """Its folder, such as `"nvidia/cublas/lib"`."""
        return self.path.rpartition("/")[0]

    @property
    def file(self) -> str:
        """Its file name, such as `"libcublas.so.12"`, which the loader searches for."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaWheel:
    """One of NVIDIA's wheels for Linux x86-64."""

    NAMED: ClassVar = ("name", "version")
    name: str
    version: str
    filename: str = field(metadata={"key": "file"})
    sha256: str
    size: int
    """Bytes to download."""
    unpacked: int
    """Bytes on disk."""
    libraries: tuple[CudaLibrary, ...] = ()
    """Sorted by path."""

    @property
    def pin(self) -> str:
        """Requirement with the exact version, such as `"nvidia-cublas-cu12==12.9.1.4"`."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSet:
    """Wheels that together contain all CUDA libraries that some TensorFlow releases need (`[[set]]`)."""

    NAMED: ClassVar = ("id",)
    id: Annotated[str, Converted(str, _check_id)]
    """Identifier, and name of its lock: compat/locks/cuda/<id>.txt."""
    tensorflow: ReleaseSet
    """TensorFlow versions as a PEP 440 specifier set."""
    cuda: str
    """Major and minor, such as `"12.9"`."""
    cudnn: str
    """cuDNN version, which is the version of its wheel."""
    pins: Annotated[tuple[str, ...], Converted(tuple[str, ...], _check_pins)] = field(
        metadata={"key": "wheels"}
    )
    """Requirements `name==version`, sorted by name."""
    wheels: tuple[CudaWheel, ...] = field(default=(), metadata={"key": None})
    """Measured data of these wheels; empty if they were not measured."""
    why: str
    evidence: Evidence
    sources: Sources

    def __post_init__(self) -> None:
        if not any(pin.startswith("nvidia-cudnn-") and pin.endswith(f"=={self.cudnn}") for pin in self.pins):
            msg = "`cudnn` is not the version of the wheel of cuDNN"
            raise ValueError(msg)

    @property
    def files(self) -> Mapping[str, CudaLibrary]:
        """Libraries by file name, as found in a folder on LD_LIBRARY_PATH or a RUNPATH."""
        return {library.file: library for wheel in self.wheels for library in wheel.libraries}

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders with libraries that the loader must search, below site-packages, sorted."""
        folders = {library.folder for wheel in self.wheels for library in wheel.libraries}
        return tuple(sorted(folder for folder in folders if folder.endswith("/lib")))

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def unpacked(self) -> int:
        """Bytes on disk."""
        return sum(wheel.unpacked for wheel in self.wheels)


@dataclass(frozen=True, slots=True)
class CudaSets:
    """The whole table."""

    as_of: str
    sets: tuple[CudaSet, ...] = field(metadata={"key": "set"})
    """Oldest first; no release is in two sets."""

    def find_for_release(self, tensorflow: str) -> CudaSet | None:
        """Return the set for a TensorFlow release; None if there is none, or if it is not known."""
        return next((s for s in self.sets if versions.satisfies(tensorflow, s.tensorflow)), None)


def load_cuda_wheels(folder: Path) -> CudaSets:
    """Load compat/cuda_wheels.toml with compat/locks/cuda/wheels.json. Raise DataError if either is invalid."""
    table = read_sets(folder)
    measured = {wheel.pin: wheel for wheel in _load_measured(folder / "locks" / "cuda" / "wheels.json")}
    for cuda_set in table.sets:
        for pin in cuda_set.pins:
            if pin not in measured:
                location = f"compat/cuda_wheels.toml: set {cuda_set.id}"
                msg = f"{location}: `{pin}` was not measured: run scripts/update_locks.py cuda"
                raise DataError(msg)
    unused = set(measured) - {pin for cuda_set in table.sets for pin in cuda_set.pins}
    if unused:
        msg = f"compat/locks/cuda/wheels.json: no set has {min(unused)}"
        raise DataError(msg)
    sets = (
        replace(cuda_set, wheels=tuple(measured[pin] for pin in cuda_set.pins)) for cuda_set in table.sets
    )
    return replace(table, sets=tuple(sets))


def read_sets(folder: Path) -> CudaSets:
    """Load the hand-written table without the measured data. Raise DataError if it is invalid."""
    return read(CudaSets, folder / "cuda_wheels.toml")


@dataclass(frozen=True, slots=True)
class _MeasuredTable:
    as_of: str
    wheels: tuple[CudaWheel, ...] = field(metadata={"noun": "wheel"})


def _load_measured(path: Path) -> tuple[CudaWheel, ...]:
    return read(_MeasuredTable, path, _convert_to_rows, within="locks/cuda/").wheels


def _convert_to_rows(raw: dict[str, Any], where: str) -> None:
    """Convert the tables of wheels and libraries, which the file has by name, to lists of rows."""
    wheels = raw.get("wheels")
    if type(wheels) is not dict or not all(type(wheel) is dict for wheel in wheels.values()):
        msg = f"{where}: `wheels` must be a table of tables"
        raise DataError(msg)
    rows = []
    for pin, wheel in wheels.items():
        libraries = wheel.get("libraries")
        if type(libraries) is not dict or not all(type(item) is dict for item in libraries.values()):
            msg = f"{where}: {pin}: `libraries` must be a table of tables"
            raise DataError(msg)
        name, _, version = pin.partition("==")
        library_rows = [{"path": path, **library} for path, library in libraries.items()]
        rows.append({**wheel, "name": name, "version": version, "libraries": library_rows})
    raw["wheels"] = rows
