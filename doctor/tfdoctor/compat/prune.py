"""Files that an image does not need: compat/prune.toml.

Each entry was tested: without the files, TensorFlow still registered its GPUs, computed and compiled.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import fnmatch
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tfdoctor.compat.decode import Converted, ReleaseSet, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["Leftover", "PruneTable", "load_prune"]

_SAFE_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./*[]")


def _validate_pattern(pattern: str) -> str:
    if not {*pattern} <= _SAFE_CHARS or pattern.startswith(("/", "-", "*")) or ".." in pattern:
        msg = "must be a plain path below site-packages"
        raise ValueError(msg)
    return pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Files below site-packages that a running TensorFlow does not need."""

    NAMED: ClassVar = ("pattern",)
    pattern: Annotated[str, Converted(str, _validate_pattern)]
    """Shell pattern relative to site-packages."""
    part: Literal["cuda", "tensorflow"]
    """The part of the installation that contains the files."""
    tensorflow: ReleaseSet
    """Tested TensorFlow releases as a PEP 440 specifier set."""
    reason: str = field(metadata={"key": "why"})
    sources: Sources

    def covers(self, path: str, version: str | None) -> bool:
        """Return whether an image of this TensorFlow goes without a file, given relative to site-packages."""
        patterns = (self.pattern, f"{self.pattern}/*")
        return (
            version is not None
            and any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
            and versions.satisfies(version, self.tensorflow)
        )


@dataclass(frozen=True, slots=True)
class PruneTable:
    """The files that an image does not need."""

    as_of: str
    leftovers: tuple[Leftover, ...] = field(metadata={"key": "leftover"})


def load_prune(folder: Path) -> PruneTable:
    """Load compat/prune.toml. Raise DataError if it is invalid."""
    return read_table(PruneTable, folder / "prune.toml")
