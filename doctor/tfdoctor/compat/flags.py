"""Flags and environment settings that stop TensorFlow: compat/flags.toml."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tfdoctor.compat.decode import ReleaseSet, Sources, read
from tfdoctor.records import dataclass

__all__ = ["Flags", "load_flags"]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags and settings in the file."""

    as_of: str
    sources: Sources
    since: str = field(metadata={"key": "since"})
    """The first release that is known to end the process if a flag is unknown."""
    docstrings: ReleaseSet = field(metadata={"key": "docstrings"})
    """Releases that cannot be imported without docstrings (python -OO)."""
    keras_backends: Mapping[str, str] = field(metadata={"key": "keras_backends"})
    """The module that each backend of Keras 3 needs, by backend; empty if it needs none."""
    warnings: ReleaseSet = field(metadata={"key": "warnings"})
    """Releases that cannot be imported if warnings are errors."""
    tf_xla: frozenset[str] = field(metadata={"key": "tf_xla"})
    """All flags that TF_XLA_FLAGS accepts in any release."""


def load_flags(folder: Path) -> Flags:
    """Load compat/flags.toml. Raise DataError if it is invalid."""
    return read(Flags, folder / "flags.toml")
