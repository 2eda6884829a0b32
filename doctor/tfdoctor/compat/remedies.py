"""Remedies for particular messages and places: compat/remedies.toml, a hand-written table."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import read_table
from tfdoctor.core.records import dataclass

__all__ = ["BookEntry", "load_remedies"]


Conditions = Mapping[str, str]
"""A regular expression for a line of the log, by the ID of the signature that the line matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookEntry:
    """A remedy for a cause in certain circumstances (`[[entry]]`)."""

    NAMED: ClassVar = ("id",)
    id: str
    causes: tuple[str, ...] = field(metadata={"key": "cause"})
    seen: Conditions = field(default_factory=dict)
    """Lines that must be in the log."""
    unless: Conditions = field(default_factory=dict)
    """Lines that must not be in the log."""
    versions: str = ""
    """The releases, as a specifier set; empty means any, also an unknown one."""
    keeps_general_remedies: bool = field(default=False, metadata={"key": "beside"})
    """Whether the general remedies of the cause follow."""
    reason: str = field(default="", metadata={"key": "why"})
    """A sentence that replaces the meaning of the cause; empty means that the meaning stays."""
    text: str
    commands: tuple[str, ...] = ()
    changes_system: bool = False
    source: str


@dataclass(frozen=True, slots=True)
class RemedyTable:
    """All entries, in the order of the file."""

    entries: tuple[BookEntry, ...] = field(metadata={"key": "entry"})


def load_remedies(folder: Path) -> tuple[BookEntry, ...]:
    """Load the table. Raise decode.DataError if it is invalid."""
    return read_table(RemedyTable, folder / "remedies.toml").entries
