"""What each TensorFlow takes of other packages while it is imported: compat/imports/<minor>.json, measured.

Written by scripts/update_imports.py from real imports: of the newest patch of each minor, on one Python.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path

from tfdoctor import versions
from tfdoctor.compat.decode import DataError, read
from tfdoctor.records import dataclass

__all__ = ["Imported", "find_imported", "list_measured_minors", "load_imported"]


@dataclass(frozen=True, slots=True)
class Imported:
    """The import of one TensorFlow, as it was seen."""

    as_of: str
    tensorflow: str
    python: str
    needs: Mapping[str, tuple[str, ...]]
    """Module → the attributes that are taken of it. An error with one of them stops the import."""
    must: tuple[str, ...]
    """Packages that import TensorFlow themselves and must be there."""
    tried: tuple[str, ...]
    """Modules that are taken where they are there: an ImportError does not stop the import, another error does."""
    family: Mapping[str, tuple[str, ...]]
    """Keras and the like, which the import loads → the modules that these take of others."""
    standard: Mapping[str, tuple[str, ...]]
    """Modules of Python's own library → the attributes that are taken of them."""
    shadowable: frozenset[str]
    """Every module of Python's own library that is loaded on the way: a file of that name can take its place."""
    idle: frozenset[str]
    """Sources and shared objects of TensorFlow that the import does not load, below site-packages."""
    sets: tuple[Mapping[str, str], ...]
    """Distributions (normalised name → version) with which the import was seen to work."""
    exact: bool = field(default=True, metadata={"key": None})
    """False: this is the nearest minor that was measured, and attributes say nothing."""


def list_measured_minors(folder: Path) -> tuple[str, ...]:
    """Return the minors that were measured, oldest first: `"2.20"`."""
    found = (path.stem for path in (folder / "imports").glob("*.json"))
    return tuple(sorted(found, key=versions.numbers))


@lru_cache(maxsize=4)
def find_imported(folder: Path, version: str | None) -> Imported | None:
    """Return what a TensorFlow takes at its import: its minor's table, else that of the newest one below it.

    None if the version is not known, or is older than all that were measured. Raises DataError.
    """
    if version is None or not versions.is_version(version):
        return None
    minor = versions.major_minor(version)
    below = [one for one in list_measured_minors(folder) if versions.numbers(one) <= versions.numbers(minor)]
    if not below:
        return None
    found = load_imported(folder, below[-1])
    return found if below[-1] == minor else replace(found, exact=False)


def load_imported(folder: Path, minor: str) -> Imported:
    """Return one table. Raises DataError."""
    path = folder / "imports" / f"{minor}.json"
    result = read(Imported, path, within="imports/")
    if versions.major_minor(result.tensorflow) != minor:
        msg = f"compat/imports/{path.name}: `tensorflow` {result.tensorflow} does not belong to a file of this name"
        raise DataError(msg)
    return result
