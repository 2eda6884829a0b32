"""Which Python is examined and why, and what stood in the way of another one. Part of `facts`."""

from __future__ import annotations

from tfdoctor.facts import Unknown
from tfdoctor.records import dataclass

ASKED = "--python"
"""The `variable` of a lost environment that was asked for by name."""


@dataclass(frozen=True, slots=True)
class LostEnvironment:
    """An environment that somebody means and whose Python cannot be started."""

    variable: str
    """What names it: "VIRTUAL_ENV", "CONDA_PREFIX", `ASKED`."""
    prefix: str
    problem: str
    """"gone": no such folder; "empty": there is no Python in it; "base-gone": its Python is a link to one that
    is gone; "closed": this user may not look into it."""
    target: str | None = None
    """Where bin/python leads, of one whose base is gone."""
    version: str | None = None
    """The version that its pyvenv.cfg names."""
    moved_to: tuple[str, ...] = ()
    """Environments whose own scripts say that they were made in `prefix`."""
    successor: str | None = None
    """A Python on PATH of the same minor version as the base that is gone."""


@dataclass(frozen=True, slots=True)
class OtherPython:
    """Another Python here that has a TensorFlow. Seen from its files: it was not started."""

    path: str
    how: str
    """Where it was found: "the Jupyter kernel `tf`", ".venv in the working folder"."""
    tensorflow: str | None = None
    """The version of its distribution, where the folder's name says it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The Python that is examined, before anything was asked of it."""

    path: str
    """What is run."""
    how: str
    """How it was asked for or found: a path as given, "$VIRTUAL_ENV", "python3 on PATH"."""
    why: str = ""
    """The same for people: "the active virtual environment"."""
    lost: tuple[LostEnvironment, ...] = ()
    others: tuple[OtherPython, ...] = ()
    """Looked for where this one has no TensorFlow or does not answer."""
    kernel: str | None = None
    """The kernel.json that was asked for, of which this is the Python."""
    kernel_sets: tuple[str, ...] = ()
    """The names of the variables that it sets; their values may be secret."""
    on_path: str = ""
    """What `python` is in this shell, where an environment is called active and that is none of its Pythons."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """How a Python behaved that did not answer."""

    kind: str
    """"base-gone", "not-started", "denied", "exited", "killed", "home", "site", "silent", "rubbish"."""
    path: str
    how: str
    """Half a sentence: "exited with status 1"."""
    said: str = ""
    """What it printed."""
    detail: str = ""
    """What is known of the reason: an interpreter that is not there."""
    files: tuple[str, ...] = ()
    """What `site` was at when it did not go on: a sitecustomize.py, a .pth file."""
    ended: bool = True
    """False: it was still running when its time was over; it may only be slow."""


@dataclass(frozen=True, slots=True)
class Unusable(Unknown):
    """The Python did not answer, and how it behaved instead."""

    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """Something that is there and that this user, or this file system, does not let be used."""

    path: str
    """What was wanted."""
    closed: str
    """The file or folder that forbids it: `path`, or one above it; the mount point of a noexec file system."""
    why: str = "mode"
    """"mode" or "noexec"."""
    owner: str | None = None
    """Who owns `closed`; the number where it has no name here."""
    own: bool | None = None
    """Whether that is this user."""
    mode: str | None = None
    """"700", as chmod takes it."""
