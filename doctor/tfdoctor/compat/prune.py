"""What an image can do without: compat/prune.toml, read strictly.

Each row was left out of an image in which TensorFlow then registered its GPUs, computed and compiled.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tfdoctor.compat.decode import Converted, ReleaseSet, Sources, read
from tfdoctor.records import dataclass

__all__ = ["Leftover", "PruneTable", "load_prune"]

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./*[]")


def _plain(pattern: str) -> str:
    if not {*pattern} <= _SAFE or pattern.startswith(("/", "-", "*")) or ".." in pattern:
        msg = "must be a plain path below site-packages"
        raise ValueError(msg)
    return pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Files below site-packages that nothing needs when TensorFlow runs."""

    NAMED: ClassVar = ("pattern",)
    pattern: Annotated[str, Converted(str, _plain)]
    """A shell pattern, relative to site-packages."""
    part: Literal["cuda", "tensorflow"]
    """With whose installation they come."""
    tensorflow: ReleaseSet
    """A PEP 440 set of releases it was tried with."""
    why: str
    sources: Sources


@dataclass(frozen=True, slots=True)
class PruneTable:
    """The whole table."""

    as_of: str
    leftovers: tuple[Leftover, ...] = field(metadata={"key": "leftover"})


def load_prune(folder: Path) -> PruneTable:
    """Load compat/prune.toml. Raises DataError."""
    return read(PruneTable, folder / "prune.toml")
