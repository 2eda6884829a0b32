"""Dataclasses for the facts about files that wheels installed."""

from __future__ import annotations

from tfdoctor.core.records import dataclass


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that differs from the one that its wheel installed."""

    path: str
    """The path relative to the distribution's location."""
    recorded: int
    """The size in the distribution's RECORD, in bytes."""
    size: int
    """The size on the disk, in bytes; -1 if it is not a file."""
    cut: bool
    """Whether the file is shorter than its headers say."""
    foreign: bool = False
    """Whether the loader refuses the file: it has the name of a shared object, but is none for this architecture."""


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file of several distributions. The last installed one wrote it; uninstalling any one deletes it."""

    path: str
    """The path relative to `location`."""
    location: str
    """The folder that contains the distributions."""
    owners: tuple[tuple[str, str], ...]
    """The (name, version) of each distribution that owns the file."""
    now: tuple[str, str] | None
    """The (name, version) of the owner whose file is on the disk; None if that is not known or the file is missing."""
