"""Flags and environment settings that stop TensorFlow: compat/flags.toml."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tfdoctor.compat.decode import ReleaseSet, Sources, read_table
from tfdoctor.core.records import dataclass

__all__ = ["Flags", "load_flags"]


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The private memory that a process with TensorFlow takes, as measured."""

    releases: ReleaseSet
    """The releases to which the numbers apply."""
    import_mib: int
    """With less, the import is killed."""
    enough_mib: int
    """With this, the GPUs were registered. Between the two, it depends on the release."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags and settings in the file."""

    as_of: str
    sources: Sources
    unknown_flag_fatal_since: str = field(metadata={"key": "since"})
    """The first release that is known to end the process if a flag is unknown."""
    releases_needing_docstrings: ReleaseSet = field(metadata={"key": "docstrings"})
    """Releases that cannot be imported without docstrings (python -OO)."""
    module_by_keras_backend: Mapping[str, str] = field(metadata={"key": "keras_backends"})
    """The module that each backend of Keras 3 needs, by backend; empty if it needs none."""
    releases_failing_on_warnings: ReleaseSet = field(metadata={"key": "warnings"})
    """Releases that cannot be imported if warnings are errors."""
    import_memory: MemoryNeed
    """The memory that the import of TensorFlow takes."""
    xla_flags: frozenset[str] = field(metadata={"key": "tf_xla"})
    """All flags that TF_XLA_FLAGS accepts in any release."""


def load_flags(folder: Path) -> Flags:
    """Load compat/flags.toml. Raise DataError if it is invalid."""
    return read_table(Flags, folder / "flags.toml")
