"""What `import tensorflow` needs in each minor release: compat/imports/<minor>.json.

These are modules and attributes. scripts/update_imports.py measures them with real imports of the newest patch release,
on one Python version.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path

from tfdoctor.compat.decode import DataError, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["ImportNeeds", "find_import_needs", "list_measured_minors", "load_import_needs"]


@dataclass(frozen=True, slots=True)
class ImportNeeds:
    """The measured needs of the import of one TensorFlow release."""

    as_of: str
    tensorflow: str
    python: str
    attributes_by_module: Mapping[str, tuple[str, ...]] = field(metadata={"key": "needs"})
    """The attributes that the import uses, by module. A missing attribute stops the import."""
    required_packages: tuple[str, ...] = field(metadata={"key": "must"})
    """Required packages that import TensorFlow themselves."""
    optional_modules: tuple[str, ...] = field(metadata={"key": "tried"})
    """Optional modules. TensorFlow ignores an ImportError from them, but no other error."""
    keras_modules_by_package: Mapping[str, tuple[str, ...]] = field(metadata={"key": "family"})
    """The modules that Keras and similar packages need, by the package that needs them."""
    attributes_by_standard_module: Mapping[str, tuple[str, ...]] = field(metadata={"key": "standard"})
    """The attributes that the import uses, by module of the standard library."""
    shadowable_modules: frozenset[str] = field(metadata={"key": "shadowable"})
    """All loaded modules of the standard library that a file with the same name can shadow."""
    unloaded_files: frozenset[str] = field(metadata={"key": "idle"})
    """Source files and shared objects of TensorFlow that the import does not load, relative to site-packages."""
    working_sets: tuple[Mapping[str, str], ...] = field(metadata={"key": "sets"})
    """Sets of distributions (version by normalized name) with which the import worked."""
    runs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The error of the import with other versions of a package, by package and version; "" if it worked."""
    keras_runs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The error of tf.keras in those of the runs in which only the import worked."""
    is_measured: bool = field(default=True, metadata={"key": None})
    """Whether this minor release was measured.

    If not, the data are from the next lower measured minor, and must not be used to check attributes.
    """


def list_measured_minors(folder: Path) -> tuple[str, ...]:
    """Return the measured minor releases, such as `"2.20"`, oldest first."""
    minors = (path.stem for path in (folder / "imports").glob("*.json"))
    return tuple(sorted(minors, key=versions.parse_numbers))


@lru_cache(maxsize=4)
def find_import_needs(folder: Path, version: str | None) -> ImportNeeds | None:
    """Return what the import of a release needs: data of its minor, or of the next lower measured one.

    The result is None if `version` is None, not a version, or older than all measured releases. Raise DataError if the
    data are invalid.
    """
    if version is None or not versions.is_version(version):
        return None
    minor = versions.major_minor(version)
    candidates = [
        measured_minor
        for measured_minor in list_measured_minors(folder)
        if versions.parse_numbers(measured_minor) <= versions.parse_numbers(minor)
    ]
    if not candidates:
        return None
    imported = load_import_needs(folder, candidates[-1])
    return imported if candidates[-1] == minor else replace(imported, is_measured=False)


def load_import_needs(folder: Path, minor: str) -> ImportNeeds:
    """Load the file of a minor release. Raise DataError if it is invalid."""
    path = folder / "imports" / f"{minor}.json"
    result = read_table(ImportNeeds, path, within="imports/")
    if versions.major_minor(result.tensorflow) != minor:
        msg = f"compat/imports/{path.name}: `tensorflow` {result.tensorflow} does not belong to a file of this name"
        raise DataError(msg)
    return result
