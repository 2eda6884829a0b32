"""Dataclasses for the choice of the Python to examine, and for Pythons that cannot be used."""

from __future__ import annotations

from tfdoctor.core.facts import Unknown
from tfdoctor.core.records import dataclass

PYTHON_OPTION = "--python"
"""The value of `UnusableEnvironment.variable` if the user named the environment on the command line."""

INSTALL_GUARD_FILE = "_tfdoctor_unfinished.pth"
"""The `.pth` file with which `install` blocks the Python of an unfinished environment.

Such files run in the order of their names, and this name sorts before `distutils-precedence.pth`.
"""


@dataclass(frozen=True, slots=True)
class UnusableEnvironment:
    """A requested or active environment whose Python cannot be used."""

    variable: str
    """The source of the request: "VIRTUAL_ENV", "CONDA_PREFIX" or `PYTHON_OPTION`."""
    prefix: str
    """The folder of the environment."""
    problem: str
    """One of the following:

    * "gone": the folder does not exist
    * "empty": the folder contains no Python
    * "base-gone": its Python is a link to a missing file
    * "closed": this user may not search the folder
    """
    target: str | None = None
    """The target of the link bin/python if `problem` is "base-gone", else None."""
    version: str | None = None
    """The Python version according to its files; None if they do not state it."""
    moved_to: tuple[str, ...] = ()
    """The folders of environments whose files show that they were created at `prefix` and moved."""
    successor: str | None = None
    """The path of a Python on PATH with the same minor version as the missing Python; None if there is none."""


@dataclass(frozen=True, slots=True)
class OtherPython:
    """Another Python on this machine that has TensorFlow. Only its files were read; it was not started."""

    path: str
    """The executable."""
    how: str
    """Where it was found, such as "the Jupyter kernel `tf`" or ".venv in the working folder"."""
    tensorflow: str | None = None
    """The version of its TensorFlow distribution; None if the name of the folder does not contain it."""


@dataclass(frozen=True, slots=True)
class PythonChoice:
    """The choice of the Python to examine, before it is started."""

    path: str
    """The executable."""
    how: str
    """How it was requested or found: the user's argument, "$VIRTUAL_ENV", "python3 on PATH"."""
    why: str = ""
    """`how` as text for the user: "the active virtual environment"."""
    lost: tuple[UnusableEnvironment, ...] = ()
    """Requested or active environments that could not be used."""
    others: tuple[OtherPython, ...] = ()
    """Other Pythons with TensorFlow. They are searched only if this Python has no TensorFlow or does not work."""
    kernel: str | None = None
    """The path of the requested kernel.json, which contains this Python; None if none was requested."""
    kernel_sets: tuple[str, ...] = ()
    """The names of the variables that the kernel.json sets; their values may be secret."""
    on_path: str = ""
    """The path of `python` on PATH, if it is outside the active environment; else empty."""
    on_path_tensorflow: str | None = None
    """The tensorflow package that `on_path` imports; "" if it has none, None if that is not known."""


@dataclass(frozen=True, slots=True)
class StartupFailure:
    """The behaviour of a Python that could not be examined."""

    kind: str
    """One of the following:

    * "base-gone": the file that bin/python links to is missing
    * "not-started": the system could not start it
    * "denied": this user may not run it
    * "exited", "killed": it ended by itself or by a signal
    * "home": it starts only without PYTHONHOME
    * "site": it starts only without its site-packages
    * "silent": it exceeded its time limit
    * "rubbish": it printed something unexpected
    """
    path: str
    how: str
    """The behaviour as a clause for a message, such as "exited with status 1"."""
    said: str = ""
    """The text that it printed."""
    detail: str = ""
    """Details of the reason, such as the missing interpreter."""
    files: tuple[str, ...] = ()
    """The files that Python's `site` module was reading when it stopped, such as a sitecustomize.py."""
    ended: bool = True
    """Whether the process ended by itself; False if it exceeded its time limit and may only be slow."""


@dataclass(frozen=True, slots=True)
class UnusablePython(Unknown):
    """An unknown fact about a Python that could not be examined."""

    trouble: StartupFailure | None = None
    """How the Python behaved; None if it starts, but too slowly."""


@dataclass(frozen=True, slots=True)
class DeniedPath:
    """A file or folder that cannot be used because of its permissions or a mount option."""

    path: str
    """The file or folder that is required."""
    closed: str
    """What denies access: `path`, one of its parents, or the mount point of a noexec file system."""
    why: str = "mode"
    """The reason: "mode" (the permissions) or "noexec" (the mount option)."""
    owner: str | None = None
    """The owner of `closed`; the user ID if the ID has no name on this machine."""
    own: bool | None = None
    """Whether this user is the owner."""
    mode: str | None = None
    """The mode of `closed` in the form that chmod accepts, such as "700"."""
