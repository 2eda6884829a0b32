"""Machines with a 64-bit ARM processor, their GPUs, and TensorFlow builds for them: compat/arm64.toml."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import re
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import Capability, Evidence, Sources, read_table
from tfdoctor.core.records import dataclass

__all__ = ["Arm64", "Arm64Index", "Arm64Kind", "Arm64Source", "load_arm64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm64Source:
    """A source of a TensorFlow build with GPU code (`[[kind.way]]`)."""

    NAMED: ClassVar = ("text",)
    text: str
    command: str
    evidence: Evidence
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm64Kind:
    """A kind of machines with the same GPUs (`[[kind]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    exclusive_capabilities: tuple[Capability, ...] = field(metadata={"key": "alone"})
    """Compute capabilities that only such machines have."""
    name_words: tuple[str, ...] = field(metadata={"key": "words"})
    """Lower-case words that identify the GPU by its name if other machines have the same capability."""
    sources: Sources
    build_sources: tuple[Arm64Source, ...] = field(default=(), metadata={"key": "way"})
    """Sources of TensorFlow builds, the best first. Empty if none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm64Index:
    """The ARM wheels of TensorFlow on the package index (`[index]`)."""

    since: str
    """First minor release with wheels."""
    note: str
    evidence: Evidence
    sources: Sources


@dataclass(frozen=True, slots=True)
class Arm64:
    """The kinds of ARM machines, and the wheels for them on the package index."""

    as_of: str
    index: Arm64Index
    kinds: tuple[Arm64Kind, ...] = field(metadata={"key": "kind"})

    def find_kind(self, name: str, capability: str) -> Arm64Kind | None:
        """Return the kind of machine that has this GPU; None if other machines can have it as well."""
        name_words = set(re.findall(r"[a-z0-9]+", name.lower()))
        return next(
            (
                kind
                for kind in self.kinds
                if capability in kind.exclusive_capabilities or name_words & {*kind.name_words}
            ),
            None,
        )


def load_arm64(folder: Path) -> Arm64:
    """Load compat/arm64.toml. Raise DataError if it is invalid."""
    return read_table(Arm64, folder / "arm64.toml")
