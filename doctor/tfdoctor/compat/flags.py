"""Flags and variables that end TensorFlow: compat/flags.toml."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from collections.abc import Mapping
from pathlib import Path

from tfdoctor.compat.decode import ReleaseSet, Sources, read
from tfdoctor.records import dataclass

__all__ = ["Flags", "load_flags"]


@dataclass(frozen=True, slots=True)
class Flags:
    """The whole table."""

    as_of: str
    sources: Sources
    since: str
    """The first release that was seen to end the process for a flag that it does not know."""
    docstrings: ReleaseSet
    """The releases that cannot be imported without docstrings."""
    keras_backends: Mapping[str, str]
    """What Keras 3 takes for its backend → the module that it needs, "" for none."""
    warnings: ReleaseSet
    """The releases that cannot be imported where warnings are errors."""
    tf_xla: frozenset[str]
    """Whatever may be a flag of TF_XLA_FLAGS in some release; what is not here is none."""


def load_flags(folder: Path) -> Flags:
    """Load compat/flags.toml. Raises DataError."""
    return read(Flags, folder / "flags.toml")
