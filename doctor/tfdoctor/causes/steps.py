"""What a remedy does, as values: `tfdoctor fix` carries them out, where a remedy's commands are for people.

Only what changes one Python environment and can be taken back is a step. Paths are absolute.
"""

from __future__ import annotations

from typing import Union

from tfdoctor.records import dataclass
from tfdoctor.text import entries_of

__all__ = [
    "SHELL_STEPS",
    "Drop",
    "Export",
    "Install",
    "LinkParts",
    "MakeLink",
    "Prepend",
    "Remedy",
    "Remove",
    "Rename",
    "ShellStep",
    "Step",
    "TakeOut",
    "Uninstall",
    "Unset",
    "comment_out_line",
    "remove_entries",
]


@dataclass(frozen=True, slots=True)
class Install:
    """Distributions from the package index."""

    requirements: tuple[str, ...]
    """As pip takes them: `"nvidia-cufft-cu12==11.2.3.61"`."""
    again: bool = False
    """Also where they are registered as installed: their files are not all there."""
    dependencies: bool = True
    lock: str | None = None
    """The CUDA set (compat/locks/cuda) whose hashes hold for exactly these requirements."""


@dataclass(frozen=True, slots=True)
class Uninstall:
    """Distributions that go."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakeLink:
    """A symbolic link."""

    path: str
    """Where it lies."""
    target: str
    """Relative to its folder, so that an environment that is moved takes it along."""


@dataclass(frozen=True, slots=True)
class LinkParts:
    """Links to every file of a folder that fits a pattern, which may be known only once a wheel is installed."""

    source: str
    """The folder with the files."""
    pattern: str
    """`"libcudnn*.so.9"`."""
    folder: str
    """The folder for the links."""


@dataclass(frozen=True, slots=True)
class Remove:
    """A file, or all entries that fit where the last part of the path is a pattern (`~*ensorflow*`)."""

    path: str


@dataclass(frozen=True, slots=True)
class TakeOut:
    """A line of a Python file or a .pth file becomes a comment: all that it does is to set a variable, or to put a
    folder on the path."""

    path: str
    line: int
    """From 1."""
    text: str
    """As it stands there; where it does not, nothing is changed."""


@dataclass(frozen=True, slots=True)
class Export:
    """An environment variable gets a value where the environment is activated."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Unset:
    """An environment variable goes where the environment is activated."""

    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """What one environment variable holds goes to another one where the environment is activated."""

    wrong: str
    right: str


@dataclass(frozen=True, slots=True)
class Prepend:
    """Folders come first on a search path where the environment is activated."""

    name: str
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Entries go from a search path where the environment is activated."""

    name: str
    entries: tuple[str, ...]


SHELL_STEPS = (Export, Unset, Rename, Prepend, Drop)
ShellStep = Union[Export, Unset, Rename, Prepend, Drop]  # noqa: UP007 - Python 3.10 evaluates it
Step = Union[Install, Uninstall, MakeLink, LinkParts, Remove, TakeOut, ShellStep]  # noqa: UP007


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do: a sentence, and apart from it what to type."""

    text: str
    commands: tuple[str, ...] = ()
    changes_system: bool = False
    """True where a command changes more than the target Python's environment (needs root, a reboot, a driver)."""
    steps: tuple[Step, ...] = ()
    """The same as `tfdoctor fix` does it; empty where only a person can."""
    replaces: bool = False
    """Another TensorFlow comes with all that it needs: what else this one lacks does not matter then."""
    by_hand: str = ""
    """What the commands do before the steps, and only a person can."""

    @property
    def full_text(self) -> str:
        """Return what all its commands do."""
        return " Then: ".join(filter(None, (self.by_hand, self.text)))


def remove_entries(step: Drop, value: str) -> tuple[str, ...]:
    """Return the entries of a variable's value that the step leaves."""
    gone = {entry.rstrip("/") for entry in step.entries}
    return tuple(entry for entry in entries_of(step.name, value) if entry.rstrip("/") not in gone)


def comment_out_line(step: TakeOut, text: str) -> str | None:
    """Return the file's text with that line as a comment; None if the line has changed."""
    lines = text.split("\n")
    if not 0 < step.line <= len(lines) or lines[step.line - 1].rstrip() != step.text.rstrip():
        return None
    old = lines[step.line - 1]
    body = old.lstrip()
    indent = old[: len(old) - len(body)]
    # It may be all that an `if` has; a line of a .pth file that begins with # is passed over.
    nothing = "# " if step.path.endswith(".pth") else "pass  # "
    lines[step.line - 1] = f"{indent}{nothing}{body}"
    return "\n".join(lines)
