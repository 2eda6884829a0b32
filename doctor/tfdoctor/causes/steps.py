"""The steps of a remedy, as values that `tfdoctor fix` carries out. A remedy's commands are for people.

A step changes only one Python environment and can be undone. All paths are absolute.
"""

from __future__ import annotations

from typing import Union

from tfdoctor.records import dataclass
from tfdoctor.text import split_entries

__all__ = [
    "SHELL_STEPS",
    "CommentOut",
    "Export",
    "Install",
    "LinkParts",
    "MakeLink",
    "Prepend",
    "Remedy",
    "Remove",
    "RemoveEntries",
    "Rename",
    "ShellStep",
    "Step",
    "Uninstall",
    "Unset",
    "comment_out_line",
    "remove_entries",
]


@dataclass(frozen=True, slots=True)
class Install:
    """Install distributions from the package index."""

    requirements: tuple[str, ...]
    """Requirements in pip's notation: `"nvidia-cufft-cu12==11.2.3.61"`."""
    reinstall: bool = False
    """True to reinstall distributions that are registered as installed but lack files."""
    dependencies: bool = True
    lock: str | None = None
    """The CUDA set (compat/locks/cuda) with the hashes of exactly these requirements, if there is one."""


@dataclass(frozen=True, slots=True)
class Uninstall:
    """Uninstall distributions."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakeLink:
    """Create a symbolic link."""

    path: str
    """Path of the link."""
    target: str
    """Path relative to the link's folder, so that the link still works if the environment is moved."""


@dataclass(frozen=True, slots=True)
class LinkParts:
    """Create links to all files of a folder that match a pattern.

    The files may be known only after a wheel is installed.
    """

    source: str
    """Folder that has the files."""
    pattern: str
    """Pattern of the file names: `"libcudnn*.so.9"`."""
    folder: str
    """Folder in which the links are created."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file.

    If the last part of the path is a pattern (`~*ensorflow*`), remove all entries that match it.
    """

    path: str


@dataclass(frozen=True, slots=True)
class CommentOut:
    """Comment out a line of a Python file or a .pth file.

    The line does nothing but set a variable or add a folder to the path.
    """

    path: str
    line: int
    """Line number, counted from 1."""
    text: str
    """The text of the line; if the file has another one there, nothing is changed."""


@dataclass(frozen=True, slots=True)
class Export:
    """Set an environment variable when the environment is activated."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Unset:
    """Unset an environment variable when the environment is activated."""

    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Move the value of one environment variable to another one when the environment is activated."""

    wrong: str
    right: str


@dataclass(frozen=True, slots=True)
class Prepend:
    """Put folders first on a search path when the environment is activated."""

    name: str
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveEntries:
    """Remove entries from a search path when the environment is activated."""

    name: str
    entries: tuple[str, ...]


SHELL_STEPS = (Export, Unset, Rename, Prepend, RemoveEntries)
ShellStep = Union[Export, Unset, Rename, Prepend, RemoveEntries]  # noqa: UP007 - Python 3.10 evaluates it
Step = Union[Install, Uninstall, MakeLink, LinkParts, Remove, CommentOut, ShellStep]  # noqa: UP007


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy of a finding: a sentence, and separately the commands."""

    text: str
    commands: tuple[str, ...] = ()
    changes_system: bool = False
    """True if a command changes more than the target Python's environment.

    Such a command needs root or a reboot, or changes a driver.
    """
    steps: tuple[Step, ...] = ()
    """The steps with which `tfdoctor fix` does the same; empty if only a person can do it."""
    replaces: bool = False
    """True if the remedy installs another TensorFlow with all that it needs.

    Other problems of the current one then no longer matter.
    """
    by_hand: str = ""
    """A sentence about the commands that come before the steps and that only a person can carry out."""

    @property
    def full_text(self) -> str:
        """A sentence or two about all commands of the remedy."""
        return " Then: ".join(filter(None, (self.by_hand, self.text)))


def remove_entries(step: RemoveEntries, value: str) -> tuple[str, ...]:
    """Return the entries of a variable's value that the step keeps."""
    removed = {entry.rstrip("/") for entry in step.entries}
    return tuple(entry for entry in split_entries(step.name, value) if entry.rstrip("/") not in removed)


def comment_out_line(step: CommentOut, text: str) -> str | None:
    """Return the file's text with that line commented out; None if the line has changed."""
    lines = text.split("\n")
    if not 0 < step.line <= len(lines) or lines[step.line - 1].rstrip() != step.text.rstrip():
        return None
    original = lines[step.line - 1]
    statement = original.lstrip()
    indent = original[: len(original) - len(statement)]
    # The line may be the only one in an `if` block, which then needs `pass`. In a .pth file, a leading # is enough.
    prefix = "# " if step.path.endswith(".pth") else "pass  # "
    lines[step.line - 1] = f"{indent}{prefix}{statement}"
    return "\n".join(lines)
