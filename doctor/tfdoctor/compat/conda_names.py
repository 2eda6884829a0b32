"""Conda packages and their names on the package index: compat/conda_names.toml."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tfdoctor.compat.decode import Sources, read_table
from tfdoctor.core.records import dataclass

__all__ = ["CondaNames", "load_conda_names"]


@dataclass(frozen=True, slots=True)
class CondaNames:
    """The known conda names. A name that is in none of the three collections is unknown."""

    as_of: str
    sources: Sources
    unrelated_names: frozenset[str] = field(metadata={"key": "foreign"})
    """Names that are not Python packages, or that mean a different package on the index."""
    identical_names: frozenset[str] = field(metadata={"key": "same"})
    """Names that mean the same package on the index."""
    index_name_by_conda_name: Mapping[str, str] = field(metadata={"key": "other"})
    """Name on the index by conda name, for packages with different names."""


def load_conda_names(folder: Path) -> CondaNames:
    """Load compat/conda_names.toml. Raise DataError if it is invalid."""
    return read_table(CondaNames, folder / "conda_names.toml")
