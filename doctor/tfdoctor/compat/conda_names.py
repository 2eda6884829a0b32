"""Names of conda's packages beside those of the package index: compat/conda_names.toml."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from collections.abc import Mapping
from pathlib import Path

from tfdoctor.compat.decode import Sources, read
from tfdoctor.records import dataclass

__all__ = ["CondaNames", "load_conda_names"]


@dataclass(frozen=True, slots=True)
class CondaNames:
    """The whole table. What is in none of the three is not known."""

    as_of: str
    sources: Sources
    foreign: frozenset[str]
    """No packages of Python, or ones that the index has another thing under the name of."""
    same: frozenset[str]
    other: Mapping[str, str]
    """conda's name → the index's."""


def load_conda_names(folder: Path) -> CondaNames:
    """Load compat/conda_names.toml. Raises DataError."""
    return read(CondaNames, folder / "conda_names.toml")
