"""NVIDIA's wheels for TensorFlow: which exact versions go together, and what is in them.

compat/cuda_wheels.toml is authored (which wheels for which releases, and why), compat/locks/cuda/wheels.json
is measured by scripts/update_locks.py (hashes, sizes, libraries). Both are read strictly, and asked together.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

from tfdoctor import versions
from tfdoctor.compat.decode import DataError, Table, read_json, read_toml
from tfdoctor.data import data_dir
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["CudaLibrary", "CudaSet", "CudaSets", "CudaWheel", "cuda_set", "load_cuda_wheels", "read_sets"]

_EVIDENCE = ("measured", "documented", "inferred")
_PIN = re.compile(r"nvidia(?:-[a-z0-9]+)+==[0-9]+(?:\.[0-9]+)+")


@dataclass(frozen=True, slots=True)
class CudaLibrary:
    """One shared object in a wheel."""

    path: str
    """Below site-packages: `"nvidia/cublas/lib/libcublas.so.12"`."""
    soname: str
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


@dataclass(frozen=True, slots=True)
class CudaWheel:
    """One wheel of NVIDIA's for Linux x86-64."""

    name: str
    version: str
    filename: str
    sha256: str
    size: int
    """Bytes to download."""
    unpacked: int
    """Bytes on disk."""
    libraries: tuple[CudaLibrary, ...]
    """By path."""

    @property
    def pin(self) -> str:
        """`"nvidia-cublas-cu12==12.9.1.4"`."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True)
class CudaSet:
    """Wheels that together are all the CUDA that some releases of TensorFlow need (`[[set]]`)."""

    id: str
    """Also the name of its lock: compat/locks/cuda/<id>.txt."""
    tensorflow: str
    """A PEP 440 set of TensorFlow versions."""
    cuda: str
    """Major and minor: `"12.9"`."""
    cudnn: str
    pins: tuple[str, ...]
    """`name==version`, by name."""
    wheels: tuple[CudaWheel, ...]
    """The same, with what was measured; empty where nobody has yet."""
    why: str
    evidence: Literal["measured", "documented", "inferred"]
    sources: tuple[str, ...]

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
    sets: tuple[CudaSet, ...]
    """Oldest first; no release is in two."""

    def of_release(self, tensorflow: str) -> CudaSet | None:
        """The set of a TensorFlow release, or None: no wheels carry what it needs, or nobody looked."""
        return next((row for row in self.sets if versions.satisfies(tensorflow, row.tensorflow)), None)


def cuda_set(tensorflow: str) -> CudaSet | None:
    """The set of a TensorFlow release, or None. Raises DataError."""
    return load_cuda_wheels().of_release(tensorflow)


@lru_cache(maxsize=4)
def load_cuda_wheels(folder: Path | None = None) -> CudaSets:
    """compat/cuda_wheels.toml with compat/locks/cuda/wheels.json, read once. Raises DataError."""
    where = folder or data_dir("compat")
    wheels = _measured(where / "locks" / "cuda" / "wheels.json")
    result = read_sets(where, wheels)
    unused = set(wheels) - {pin for row in result.sets for pin in row.pins}
    if unused:
        msg = f"compat/locks/cuda/wheels.json: no set has {min(unused)}"
        raise DataError(msg)
    return result


def read_sets(folder: Path, wheels: Mapping[str, CudaWheel] | None = None) -> CudaSets:
    """The authored table alone; `wheels`: pin → what was measured (None: nothing was, and nothing is
    missed)."""
    top = read_toml(folder / "cuda_wheels.toml")
    if top.whole("schema_version") != 1:
        raise top.fail("schema_version must be 1")
    as_of = top.text("as_of")
    sets: list[CudaSet] = []
    for index, raw in enumerate(top.tables("set")):
        label = raw.get("id", index + 1) if isinstance(raw, dict) else index + 1
        row = Table(raw, f"{top.where}: set {label}")
        sets.append(_set(row, wheels))
        row.done()
        if sets[-1].id in {known.id for known in sets[:-1]}:
            raise row.fail("this `id` is there twice")
    top.done()
    if not sets:
        raise top.fail("`set` has no rows")
    return CudaSets(as_of, tuple(sets))


def _set(row: Table, wheels: Mapping[str, CudaWheel] | None) -> CudaSet:
    pins = row.texts("wheels")
    name = row.text("id")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise row.fail("`id` is a file's name: small letters, digits, `.` and `-`")
    for pin in pins:
        if _PIN.fullmatch(pin) is None:
            msg = f"`wheels`: `{pin}` is not `nvidia-…==version`"
            raise row.fail(msg)
        if wheels is not None and pin not in wheels:
            msg = f"`{pin}` was not measured: run scripts/update_locks.py cuda"
            raise row.fail(msg)
    names = [pin.partition("==")[0] for pin in pins]
    if not pins or names != sorted({*names}):
        raise row.fail("`wheels` must be sorted, each project once")
    result = CudaSet(
        id=name,
        tensorflow=row.text("tensorflow"),
        cuda=row.text("cuda"),
        cudnn=row.text("cudnn"),
        pins=pins,
        wheels=tuple(wheels[pin] for pin in pins) if wheels is not None else (),
        why=row.text("why"),
        evidence=cast("Literal['measured', 'documented', 'inferred']", row.choice("evidence", _EVIDENCE)),
        sources=row.texts("sources"),
    )
    try:
        versions.satisfies("1.0", result.tensorflow)
    except versions.VersionSyntaxError as error:
        raise row.fail(str(error)) from error
    if not result.sources:
        raise row.fail("`sources` is empty: every row says where it is from")
    if not any(pin.startswith("nvidia-cudnn-") and pin.endswith(f"=={result.cudnn}") for pin in pins):
        raise row.fail("`cudnn` is not the version of the wheel of cuDNN")
    return result


def _measured(path: Path) -> dict[str, CudaWheel]:
    top = read_json(path)
    if top.whole("schema_version") != 1:
        raise top.fail("schema_version must be 1")
    top.text("as_of")
    found = {}
    for pin, raw in top.table("wheels").raw.items():
        row = Table(raw, f"{top.where}: {pin}")
        name, _, version = pin.partition("==")
        libraries = row.table("libraries")
        found[pin] = CudaWheel(
            name=name,
            version=version,
            filename=row.text("file"),
            sha256=row.text("sha256"),
            size=row.whole("size"),
            unpacked=row.whole("unpacked"),
            libraries=tuple(_library(libraries, place, facts) for place, facts in libraries.raw.items()),
        )
        row.done()
    top.done()
    return found


def _library(table: Table, place: str, facts: object) -> CudaLibrary:
    row = Table(facts, f"{table.where}: {place}")
    result = CudaLibrary(path=place, soname=row.opt_text("soname") or "", needed=row.texts("needed"))
    row.done()
    return result
