"""compat/api_names.json: names of TensorFlow's public API that only TensorFlow 1 or only TensorFlow 2 has."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from pathlib import Path

from tfdoctor.compat.decode import Sources, read
from tfdoctor.records import dataclass

__all__ = ["ApiNames", "load_api_names"]


@dataclass(frozen=True, slots=True)
class ApiNames:
    """Names without "tensorflow." before them. A module that is gone stands for all that was in it."""

    as_of: str
    sources: Sources
    removed: frozenset[str]
    """In TensorFlow 1.15, and not in TensorFlow 2; most are still in tensorflow.compat.v1."""
    gone: frozenset[str]
    """Those of them that tensorflow.compat.v1 has not, either."""
    added: frozenset[str]
    """In TensorFlow 2, and not in 1.15."""


def load_api_names(folder: Path) -> ApiNames:
    """Load compat/api_names.json. Raises DataError."""
    return read(ApiNames, folder / "api_names.json")
