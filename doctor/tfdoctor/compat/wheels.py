"""NVIDIA's wheels for TensorFlow: which exact versions go together, and what is in them.

compat/cuda_wheels.toml is authored (which wheels for which releases, and why), compat/locks/cuda/wheels.json
is measured by scripts/update_locks.py (hashes, sizes, libraries). Both are read strictly, and asked together.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

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


def _id(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", text):
        msg = "is a file's name: small letters, digits, `.` and `-`"
        raise ValueError(msg)
    return text


def _pins(pins: tuple[str, ...]) -> tuple[str, ...]:
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
    """Below site-packages: `"nvidia/cublas/lib/libcublas.so.12"`."""
    soname: Annotated[str, Converted(str | None, lambda text: text or "")] = ""
    """What it calls itself; empty where it has none."""
    needed: tuple[str, ...]
    """Sonames that it needs (DT_NEEDED), without glibc's and the compiler's own."""

    @property
    def folder(self) -> str:
        """`"nvidia/cublas/lib"`."""
        return self.path.rpartition("/")[0]

    @property
    def file(self) -> str:
        """`"libcublas.so.12"`: what the loader looks for."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaWheel:
    """One wheel of NVIDIA's for Linux x86-64."""

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
    """By path."""

    @property
    def pin(self) -> str:
        """`"nvidia-cublas-cu12==12.9.1.4"`."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSet:
    """Wheels that together are all the CUDA that some releases of TensorFlow need (`[[set]]`)."""

    NAMED: ClassVar = ("id",)
    id: Annotated[str, Converted(str, _id)]
    """Also the name of its lock: compat/locks/cuda/<id>.txt."""
    tensorflow: ReleaseSet
    """A PEP 440 set of TensorFlow versions."""
    cuda: str
    """Major and minor: `"12.9"`."""
    cudnn: str
    pins: Annotated[tuple[str, ...], Converted(tuple[str, ...], _pins)] = field(metadata={"key": "wheels"})
    """`name==version`, by name."""
    wheels: tuple[CudaWheel, ...] = field(default=(), metadata={"key": None})
    """The same, with what was measured; empty where nobody has yet."""
    why: str
    evidence: Evidence
    sources: Sources

    def __post_init__(self) -> None:
        if not any(pin.startswith("nvidia-cudnn-") and pin.endswith(f"=={self.cudnn}") for pin in self.pins):
            msg = "`cudnn` is not the version of the wheel of cuDNN"
            raise ValueError(msg)

    @property
    def files(self) -> Mapping[str, CudaLibrary]:
        """File name of a library → the library: what a folder on LD_LIBRARY_PATH or a RUNPATH serves."""
        return {library.file: library for wheel in self.wheels for library in wheel.libraries}

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders with libraries that the loader has to find, below site-packages, sorted."""
        found = {library.folder for wheel in self.wheels for library in wheel.libraries}
        return tuple(sorted(folder for folder in found if folder.endswith("/lib")))

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
    """Oldest first; no release is in two."""

    def find_for_release(self, tensorflow: str) -> CudaSet | None:
        """Return the set of a TensorFlow release, or None: no wheels carry what it needs, or nobody looked."""
        return next((row for row in self.sets if versions.satisfies(tensorflow, row.tensorflow)), None)


def load_cuda_wheels(folder: Path) -> CudaSets:
    """compat/cuda_wheels.toml with compat/locks/cuda/wheels.json. Raises DataError."""
    table = read_sets(folder)
    measured = {wheel.pin: wheel for wheel in _load_measured(folder / "locks" / "cuda" / "wheels.json")}
    for row in table.sets:
        for pin in row.pins:
            if pin not in measured:
                place = f"compat/cuda_wheels.toml: set {row.id}"
                msg = f"{place}: `{pin}` was not measured: run scripts/update_locks.py cuda"
                raise DataError(msg)
    unused = set(measured) - {pin for row in table.sets for pin in row.pins}
    if unused:
        msg = f"compat/locks/cuda/wheels.json: no set has {min(unused)}"
        raise DataError(msg)
    sets = (replace(row, wheels=tuple(measured[pin] for pin in row.pins)) for row in table.sets)
    return replace(table, sets=tuple(sets))


def read_sets(folder: Path) -> CudaSets:
    """Return the authored table alone, without what was measured. Raises DataError."""
    return read(CudaSets, folder / "cuda_wheels.toml")


@dataclass(frozen=True, slots=True)
class _Measured:
    as_of: str
    wheels: tuple[CudaWheel, ...] = field(metadata={"noun": "wheel"})


def _load_measured(path: Path) -> tuple[CudaWheel, ...]:
    return read(_Measured, path, _as_rows, within="locks/cuda/").wheels


def _as_rows(raw: dict[str, Any], where: str) -> None:
    """The file names wheels and libraries by the keys of its tables."""
    wheels = raw.get("wheels")
    if type(wheels) is not dict or not all(type(wheel) is dict for wheel in wheels.values()):
        msg = f"{where}: `wheels` must be a table of tables"
        raise DataError(msg)
    rows = []
    for pin, wheel in wheels.items():
        libraries = wheel.get("libraries")
        if type(libraries) is not dict or not all(type(one) is dict for one in libraries.values()):
            msg = f"{where}: {pin}: `libraries` must be a table of tables"
            raise DataError(msg)
        name, _, version = pin.partition("==")
        inside = [{"path": path, **library} for path, library in libraries.items()]
        rows.append({**wheel, "name": name, "version": version, "libraries": inside})
    raw["wheels"] = rows
