"""Remedies, and the steps with which `tfdoctor fix` applies them.

The commands of a remedy are for users; its steps are for `tfdoctor fix`. A step changes only one Python
environment and can be undone. All paths are absolute.
"""

from __future__ import annotations

from typing import Union

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import split_path_list

__all__ = [
    "SHELL_STEPS",
    "CommentOutLine",
    "Install",
    "LinkMatchingFiles",
    "MakeLink",
    "PrependEntries",
    "Remedy",
    "RemoveEntries",
    "RemovePath",
    "RenameVariable",
    "SetVariable",
    "ShellStep",
    "Step",
    "Uninstall",
    "UnsetVariable",
    "comment_out_line",
    "remove_entries",
]


@dataclass(frozen=True, slots=True)
class Install:
    """Install distributions from the package index."""

    requirements: tuple[str, ...]
    """Requirements in pip's notation: `"nvidia-cufft-cu12==11.2.3.61"`."""
    force_reinstall: bool = False
    """True to reinstall distributions that are registered as installed but lack files."""
    install_dependencies: bool = True
    """False to install nothing but the requirements themselves."""
    lock_id: str | None = None
    """ID of the CUDA set (in compat/locks/cuda) with the hashes of exactly these requirements; None if there is no set."""


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
class LinkMatchingFiles:
    """Create links to all files in a folder that match a pattern.

    The names of the files may not be known before a wheel is installed.
    """

    source_folder: str
    """Folder that contains the files."""
    pattern: str
    """Pattern of the file names: `"libcudnn*.so.9"`."""
    link_folder: str
    """Folder in which the links are created."""


@dataclass(frozen=True, slots=True)
class RemovePath:
    """Remove a file.

    If the last part of the path is a pattern (`~*ensorflow*`), remove all entries that match it.
    """

    path: str


@dataclass(frozen=True, slots=True)
class CommentOutLine:
    """Comment out a line of a Python file or a .pth file.

    The line must do nothing but set a variable or add a folder to the path.
    """

    path: str
    line_number: int
    """Line number, counted from 1."""
    expected_text: str
    """The expected text of the line. If the line is different, the file is not changed."""


@dataclass(frozen=True, slots=True)
class SetVariable:
    """Set an environment variable when the environment is activated."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class UnsetVariable:
    """Unset an environment variable when the environment is activated."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameVariable:
    """Move the value of a misspelt environment variable to the right one when the environment is activated."""

    wrong_name: str
    right_name: str


@dataclass(frozen=True, slots=True)
class PrependEntries:
    """Put folders first on a search path when the environment is activated."""

    name: str
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveEntries:
    """Remove entries from a search path when the environment is activated."""

    name: str
    entries: tuple[str, ...]


SHELL_STEPS = (SetVariable, UnsetVariable, RenameVariable, PrependEntries, RemoveEntries)
"""The steps that change environment variables."""
ShellStep = Union[SetVariable, UnsetVariable, RenameVariable, PrependEntries, RemoveEntries]  # noqa: UP007 - Python 3.10 evaluates it
"""A step that changes environment variables."""
Step = Union[Install, Uninstall, MakeLink, LinkMatchingFiles, RemovePath, CommentOutLine, ShellStep]  # noqa: UP007
"""A step of any kind."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy for a finding: a text, and the commands and steps that apply it."""

    text: str
    commands: tuple[str, ...] = ()
    changes_system: bool = False
    """True if a command changes more than the target Python's environment.

    Such a command needs root or a reboot, or changes a driver.
    """
    steps: tuple[Step, ...] = ()
    """The steps with which `tfdoctor fix` applies the remedy; empty if only the user can apply it."""
    replaces: bool = False
    """True if the remedy installs another TensorFlow with everything that it needs.

    Then the other problems of the current TensorFlow no longer matter.
    """
    by_hand: str = ""
    """A sentence about the commands that the user has to run before the steps; "" if there are none."""

    @property
    def full_text(self) -> str:
        """The text about all commands of the remedy, including those that the user has to run first."""
        return " Then: ".join(filter(None, (self.by_hand, self.text)))


def remove_entries(step: RemoveEntries, value: str) -> tuple[str, ...]:
    """Return the entries of a variable's value that remain after the step."""
    removed_entries = {entry.rstrip("/") for entry in step.entries}
    return tuple(
        entry for entry in split_path_list(step.name, value) if entry.rstrip("/") not in removed_entries
    )


def comment_out_line(step: CommentOutLine, text: str) -> str | None:
    """Return the file's text with the line of the step commented out; None if the line has changed."""
    lines = text.split("\n")
    if (
        not 0 < step.line_number <= len(lines)
        or lines[step.line_number - 1].rstrip() != step.expected_text.rstrip()
    ):
        return None
    original = lines[step.line_number - 1]
    statement = original.lstrip()
    indent = original[: len(original) - len(statement)]
    # The line may be the only one in an `if` block, which then needs `pass`. In a .pth file, a leading # is enough.
    prefix = "# " if step.path.endswith(".pth") else "pass  # "
    lines[step.line_number - 1] = f"{indent}{prefix}{statement}"
    return "\n".join(lines)
