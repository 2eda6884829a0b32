"""Remedies, and the steps with which `tfdoctor fix` applies them.

The commands of a remedy are for users; its steps are for `tfdoctor fix`. A step changes only one Python
environment and can be undone. All paths are absolute.
"""

from __future__ import annotations

import shlex
from typing import Union

from tfdoctor.core.causes.variable_steps import (
    PrependEntries,
    RemoveEntries,
    RenameVariable,
    SetVariable,
    UnsetVariable,
    VariableStep,
)
from tfdoctor.core.records import dataclass

__all__ = [
    "STEP_ORDER",
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
    "Step",
    "Uninstall",
    "UnsetVariable",
    "VariableStep",
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

    @property
    def changed_path(self) -> str:
        """The path below which the step changes something."""
        return self.path

    def format_commands(self) -> tuple[str, ...]:
        """Return the commands that do the same."""
        return (f"ln -sf {shlex.quote(self.target)} {_format_path(self.path)}",)


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

    @property
    def changed_path(self) -> str:
        """The path below which the step changes something."""
        return self.link_folder

    def format_commands(self) -> tuple[str, ...]:
        """Return the commands that do the same. The shell expands the pattern, so it is not quoted."""
        source, folder = _format_path(self.source_folder), _format_path(self.link_folder)
        return (f"ln -srf {source}/{self.pattern} {folder}/",)


@dataclass(frozen=True, slots=True)
class RemovePath:
    """Remove a file.

    If the last part of the path is a pattern (`~*ensorflow*`), remove all entries that match it.
    """

    path: str

    @property
    def changed_path(self) -> str:
        """The path below which the step changes something."""
        return self.path

    def format_commands(self) -> tuple[str, ...]:
        """Return the commands that do the same. The shell expands a pattern, so it is not quoted."""
        folder, _, name = self.path.rpartition("/")
        path = f"{shlex.quote(folder)}/{name}" if "*" in name else shlex.quote(self.path)
        return (f"rm -rf {path}",)


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

    @property
    def changed_path(self) -> str:
        """The path below which the step changes something."""
        return self.path

    @property
    def comment_mark(self) -> str:
        """The text that makes the line a comment.

        The line may be the only one in an `if` block, which then needs `pass`. In a .pth file, a leading # is enough.
        """
        return "# " if self.path.endswith(".pth") else "pass  # "

    def format_commands(self) -> tuple[str, ...]:
        """Return the commands that do the same."""
        return (f"sed -i '{self.line_number}s/[^ \\t]/{self.comment_mark}&/' {shlex.quote(self.path)}",)

    def edit(self, text: str) -> str | None:
        """Return the file's text with the line commented out; None if the line has changed."""
        lines = text.split("\n")
        if (
            not 0 < self.line_number <= len(lines)
            or lines[self.line_number - 1].rstrip() != self.expected_text.rstrip()
        ):
            return None
        original = lines[self.line_number - 1]
        statement = original.lstrip()
        indent = original[: len(original) - len(statement)]
        lines[self.line_number - 1] = f"{indent}{self.comment_mark}{statement}"
        return "\n".join(lines)


Step = Union[Install, Uninstall, MakeLink, LinkMatchingFiles, RemovePath, CommentOutLine, VariableStep]  # noqa: UP007
"""A step of any kind."""
STEP_ORDER: tuple[type[Step], ...] = (
    CommentOutLine,
    RemoveEntries,
    UnsetVariable,
    SetVariable,
    RenameVariable,
    RemovePath,
    Uninstall,
    Install,
    MakeLink,
    LinkMatchingFiles,
    PrependEntries,
)
"""The order of steps when several remedies are combined."""


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


def _format_path(path: str) -> str:
    return shlex.quote(path.removeprefix("$PWD/"))
