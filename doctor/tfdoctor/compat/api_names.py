"""Names of the public API that only TensorFlow 1 or only TensorFlow 2 has: compat/api_names.json."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from dataclasses import field
from pathlib import Path

from tfdoctor.compat.decode import Sources, read_table
from tfdoctor.core.records import dataclass

__all__ = ["ApiNames", "load_api_names"]


@dataclass(frozen=True, slots=True)
class ApiNames:
    """The API names in the file, without the prefix "tensorflow.". A module stands for all its members."""

    as_of: str
    sources: Sources
    removed_names: frozenset[str] = field(metadata={"key": "removed"})
    """Names in TensorFlow 1.15 but not in TensorFlow 2; most are still in tensorflow.compat.v1."""
    names_without_compat_v1: frozenset[str] = field(metadata={"key": "gone"})
    """Names of TensorFlow 1.15 that tensorflow.compat.v1 does not contain either."""
    added_names: frozenset[str] = field(metadata={"key": "added"})
    """Names in TensorFlow 2 but not in 1.15."""


def load_api_names(folder: Path) -> ApiNames:
    """Load compat/api_names.json. Raise DataError if it is invalid."""
    return read_table(ApiNames, folder / "api_names.json")
