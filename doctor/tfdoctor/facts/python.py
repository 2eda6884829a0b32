"""The facts about the choice of the Python to examine, and about Pythons that cannot be used."""

from __future__ import annotations

from tfdoctor.facts import Unknown
from tfdoctor.records import dataclass

PYTHON_OPTION = "--python"
"""The `variable` of a lost environment that the user named on the command line."""


@dataclass(frozen=True, slots=True)
class LostEnvironment:
    """A requested or active environment whose Python cannot be started."""

    variable: str
    """The source of the environment: "VIRTUAL_ENV", "CONDA_PREFIX" or `PYTHON_OPTION`."""
    prefix: str
    problem: str
    """"gone": no such folder; "empty": it contains no Python; "base-gone": its Python is a link to a missing
    one; "closed": this user may not search it."""
    target: str | None = None
    """The target of bin/python, if `problem` is "base-gone"."""
    version: str | None = None
    """The Python version in its pyvenv.cfg."""
    moved_to: tuple[str, ...] = ()
    """Environments whose scripts say that they were created in `prefix`."""
    successor: str | None = None
    """A Python on PATH with the same minor version as the missing base."""


@dataclass(frozen=True, slots=True)
class OtherPython:
    """Another Python on this machine that has TensorFlow; its files were read, it was not started."""

    path: str
    how: str
    """Where it was found: "the Jupyter kernel `tf`", ".venv in the working folder"."""
    tensorflow: str | None = None
    """The version of its distribution; None if the folder's name does not contain it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of the Python to examine, made before starting it."""

    path: str
    """The executable."""
    how: str
    """How it was requested or found: a path as given, "$VIRTUAL_ENV", "python3 on PATH"."""
    why: str = ""
    """`how` as text for the user: "the active virtual environment"."""
    lost: tuple[LostEnvironment, ...] = ()
    others: tuple[OtherPython, ...] = ()
    """Other Pythons with TensorFlow; looked for if this one has none or does not answer."""
    kernel: str | None = None
    """The requested kernel.json, which names this Python."""
    kernel_sets: tuple[str, ...] = ()
    """The names of the variables that the kernel.json sets; their values may be secret."""
    on_path: str = ""
    """The path of `python` in this shell, if an environment is active and does not contain it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The behaviour of a Python that did not answer."""

    kind: str
    """"base-gone", "not-started", "denied", "exited", "killed", "home", "site", "silent", "rubbish"."""
    path: str
    how: str
    """A clause for a message: "exited with status 1"."""
    said: str = ""
    """The text that it printed."""
    detail: str = ""
    """Details of the reason, such as the missing interpreter."""
    files: tuple[str, ...] = ()
    """The files that `site` was processing when it stopped: a sitecustomize.py, a .pth file."""
    ended: bool = True
    """Whether the process ended by itself; False if it exceeded its time limit and may only be slow."""


@dataclass(frozen=True, slots=True)
class Unusable(Unknown):
    """A Python that did not answer, with its behaviour."""

    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """An existing file or folder that this user or a mount option makes unusable."""

    path: str
    """The file or folder that is required."""
    closed: str
    """The file or folder that denies access: `path`, one of its parents, or the mount point of a noexec file
    system."""
    why: str = "mode"
    """"mode" or "noexec"."""
    owner: str | None = None
    """The owner of `closed`; the user ID if the ID has no name on this machine."""
    own: bool | None = None
    """Whether this user is the owner."""
    mode: str | None = None
    """The mode of `closed` as chmod takes it, such as "700"."""
