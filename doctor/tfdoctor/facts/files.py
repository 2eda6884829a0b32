"""What was seen of the files that wheels brought: frozen, without judgement."""

from __future__ import annotations

from tfdoctor.records import dataclass


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that is not as its wheel brought it."""

    path: str
    """Below the distribution's location."""
    recorded: int
    """Bytes, as its RECORD says."""
    size: int
    """Bytes that are there; -1: it is no file."""
    cut: bool
    """It ends before its own headers say."""
    foreign: bool = False
    """A shared object's name, and no object of this kind of machine: the loader refuses it."""


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that several distributions own: the last one installed won, removing any takes it away."""

    path: str
    """Below `location`."""
    location: str
    owners: tuple[tuple[str, str], ...]
    """(name, version) of each."""
    now: tuple[str, str] | None
    """Whose file is there; None where that could not be told, or none is there."""
