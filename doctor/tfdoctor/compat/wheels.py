"""NVIDIA's wheels for TensorFlow: the exact versions that belong together, and their contents.

compat/cuda_wheels.toml is hand-written and lists the wheels for each release, with the reason. scripts/update_locks.py
measures the hashes, sizes and libraries of the wheels, and writes them to compat/locks/cuda/wheels.json.
`load_cuda_wheels` merges the two.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tfdoctor.compat.decode import Converted, DataError, Evidence, ReleaseSet, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["CudaLibrary", "CudaSet", "CudaSets", "CudaWheel", "load_cuda_wheels", "read_sets"]

_PIN = re.compile(r"nvidia(?:-[a-z0-9]+)+==[0-9]+(?:\.[0-9]+)+")


def _validate_id(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", text):
        msg = "is a file's name: small letters, digits, `.` and `-`"
        raise ValueError(msg)
    return text


def _validate_pins(pins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the pins. Raise ValueError if one is invalid, or if they are not sorted and unique."""
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
    """A shared object in a wheel."""

    NAMED: ClassVar = ("path",)
    path: str
    """Path below site-packages, such as `"nvidia/cublas/lib/libcublas.so.12"`."""
    soname: Annotated[str, Converted(str | None, lambda text: text or "")] = ""
    """Its DT_SONAME; empty if it has none."""
    needed_sonames: tuple[str, ...] = field(metadata={"key": "needed"})
    """Sonames of the libraries that it needs (DT_NEEDED), except glibc and the compiler's."""

    @property
    def folder(self) -> str:
        """Its folder, such as `"nvidia/cublas/lib"`."""
        return self.path.rpartition("/")[0]

    @property
    def file_name(self) -> str:
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
    size_bytes: int = field(metadata={"key": "size"})
    """Bytes to download."""
    unpacked_bytes: int = field(metadata={"key": "unpacked"})
    """Bytes on disk."""
    libraries: tuple[CudaLibrary, ...] = ()
    """Sorted by path."""

    @property
    def pin(self) -> str:
        """Requirement with the exact version, such as `"nvidia-cublas-cu12==12.9.1.4"`."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSet:
    """The wheels that together contain all CUDA libraries that some TensorFlow releases need (`[[set]]`)."""

    NAMED: ClassVar = ("id",)
    id: Annotated[str, Converted(str, _validate_id)]
    """The ID, which is also in the name of the lock: compat/locks/cuda/<id>.txt."""
    tensorflow: ReleaseSet
    """TensorFlow versions as a PEP 440 specifier set."""
    cuda: str
    """Major and minor, such as `"12.9"`."""
    cudnn: str
    """cuDNN version, which is the version of its wheel."""
    pins: Annotated[tuple[str, ...], Converted(tuple[str, ...], _validate_pins)] = field(
        metadata={"key": "wheels"}
    )
    """Requirements `name==version`, sorted by name."""
    wheels: tuple[CudaWheel, ...] = field(default=(), metadata={"key": None})
    """The measured data of these wheels; empty if they are not loaded (see `read_sets`)."""
    reason: str = field(metadata={"key": "why"})
    evidence: Evidence
    sources: Sources

    def __post_init__(self) -> None:
        if not any(pin.startswith("nvidia-cudnn-") and pin.endswith(f"=={self.cudnn}") for pin in self.pins):
            msg = "`cudnn` is not the version of the wheel of cuDNN"
            raise ValueError(msg)

    @property
    def library_by_file_name(self) -> Mapping[str, CudaLibrary]:
        """The libraries by file name, which is the name that the loader searches for."""
        return {library.file_name: library for wheel in self.wheels for library in wheel.libraries}

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders below site-packages that the loader must search, sorted."""
        folders = {library.folder for wheel in self.wheels for library in wheel.libraries}
        return tuple(sorted(folder for folder in folders if folder.endswith("/lib")))

    @property
    def size_bytes(self) -> int:
        """Bytes to download."""
        return sum(wheel.size_bytes for wheel in self.wheels)

    @property
    def unpacked_bytes(self) -> int:
        """Bytes on disk."""
        return sum(wheel.unpacked_bytes for wheel in self.wheels)


@dataclass(frozen=True, slots=True)
class CudaSets:
    """The sets of wheels, from both files."""

    as_of: str
    sets: tuple[CudaSet, ...] = field(metadata={"key": "set"})
    """Oldest first; no release is in two sets."""

    def find_for_release(self, tensorflow: str) -> CudaSet | None:
        """Return the set for a TensorFlow release; None if no set is known."""
        return next(
            (cuda_set for cuda_set in self.sets if versions.satisfies(tensorflow, cuda_set.tensorflow)), None
        )


def load_cuda_wheels(folder: Path) -> CudaSets:
    """Load the hand-written and the measured table, and merge them. Raise DataError if one is invalid."""
    table = read_sets(folder)
    measured_wheels = {
        wheel.pin: wheel for wheel in _load_measured(folder / "locks" / "cuda" / "wheels.json")
    }
    for cuda_set in table.sets:
        for pin in cuda_set.pins:
            if pin not in measured_wheels:
                location = f"compat/cuda_wheels.toml: set {cuda_set.id}"
                msg = f"{location}: `{pin}` was not measured: run scripts/update_locks.py cuda"
                raise DataError(msg)
    unused_pins = set(measured_wheels) - {pin for cuda_set in table.sets for pin in cuda_set.pins}
    if unused_pins:
        msg = f"compat/locks/cuda/wheels.json: no set has {min(unused_pins)}"
        raise DataError(msg)
    sets = (
        replace(cuda_set, wheels=tuple(measured_wheels[pin] for pin in cuda_set.pins))
        for cuda_set in table.sets
    )
    return replace(table, sets=tuple(sets))


def read_sets(folder: Path) -> CudaSets:
    """Load the hand-written table without the measured data. Raise DataError if it is invalid."""
    return read_table(CudaSets, folder / "cuda_wheels.toml")


@dataclass(frozen=True, slots=True)
class _MeasuredTable:
    as_of: str
    wheels: tuple[CudaWheel, ...] = field(metadata={"noun": "wheel"})


def _load_measured(path: Path) -> tuple[CudaWheel, ...]:
    return read_table(_MeasuredTable, path, _convert_to_rows, within="locks/cuda/").wheels


def _convert_to_rows(raw: dict[str, Any], location: str) -> None:
    """Convert the tables of wheels and libraries, whose keys are their names, to lists of rows."""
    wheels = raw.get("wheels")
    if type(wheels) is not dict or not all(type(wheel) is dict for wheel in wheels.values()):
        msg = f"{location}: `wheels` must be a table of tables"
        raise DataError(msg)
    rows = []
    for pin, wheel in wheels.items():
        libraries = wheel.get("libraries")
        if type(libraries) is not dict or not all(type(item) is dict for item in libraries.values()):
            msg = f"{location}: {pin}: `libraries` must be a table of tables"
            raise DataError(msg)
        name, _, version = pin.partition("==")
        library_rows = [{"path": path, **library} for path, library in libraries.items()]
        rows.append({**wheel, "name": name, "version": version, "libraries": library_rows})
    raw["wheels"] = rows
