"""Cards of machines with a 64-bit ARM processor, and the TensorFlow there is for them: compat/arm64.toml."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import re
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import Capability, Evidence, Sources, read
from tfdoctor.records import dataclass

__all__ = ["Arm64", "Arm64Index", "Arm64Kind", "Arm64Way", "load_arm64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm64Way:
    """One way to a TensorFlow with GPU code (`[[kind.way]]`)."""

    NAMED: ClassVar = ("text",)
    text: str
    command: str
    evidence: Evidence
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm64Kind:
    """Machines of one kind (`[[kind]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    alone: tuple[Capability, ...]
    """Compute capabilities that no other machine has."""
    words: tuple[str, ...]
    """Words of the names of cards that have other ones, in small letters."""
    sources: Sources
    ways: tuple[Arm64Way, ...] = field(default=(), metadata={"key": "way"})
    """The best one first; empty: none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm64Index:
    """What the package index has (`[index]`)."""

    since: str
    """The first minor with wheels."""
    note: str
    evidence: Evidence
    sources: Sources


@dataclass(frozen=True, slots=True)
class Arm64:
    """The whole table."""

    as_of: str
    index: Arm64Index
    kinds: tuple[Arm64Kind, ...] = field(metadata={"key": "kind"})

    def kind_of(self, name: str, capability: str) -> Arm64Kind | None:
        """Return the kind of machine that this card is in, or None if others have it as well."""
        words = set(re.findall(r"[a-z0-9]+", name.lower()))
        return next((row for row in self.kinds if capability in row.alone or words & {*row.words}), None)


def load_arm64(folder: Path) -> Arm64:
    """Load compat/arm64.toml. Raises DataError."""
    return read(Arm64, folder / "arm64.toml")
