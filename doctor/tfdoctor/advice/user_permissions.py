"""What this person can type at this machine, and where that puts things. Pure.

A command that is right somewhere else is wrong here: where there is no uv, no sudo, where a folder is a colleague's,
where the system forbids pip (PEP 668), or where TensorFlow lies in another folder than the one pip takes.
"""

from __future__ import annotations

import enum
import posixpath
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.advice.target import Target
    from tfdoctor.facts import PythonFacts

TOOLS = "$HOME/pip-for-tensorflow"
"""A virtual environment for nothing but its pip, where the examined Python has none and takes none."""


class InstallFolder(enum.Enum):
    """Where a command that installs into the examined Python would put things."""

    OWN = "its own folder"
    USER = "the user's folder, which contains TensorFlow"
    ELSEWHERE = "not where TensorFlow is"
    CLOSED = "a folder that belongs to somebody else"
    MANAGED = "the system's Python (PEP 668)"


def place(target: Target) -> InstallFolder:
    """Return where that is here. OWN also where nobody looked."""
    python = target.python
    if python is None:
        return InstallFolder.OWN
    if python.externally_managed and not python.virtual:
        return InstallFolder.MANAGED
    folder = _tensorflow_folder(target)
    if folder and folder == python.user_site:
        return InstallFolder.USER
    closed = {path for path, _ in python.unwritable}
    site = [posixpath.normpath(path) for path in python.site_packages]
    if folder and site and posixpath.normpath(folder) not in site:
        return InstallFolder.CLOSED if closed & {folder, *python.site_packages} else InstallFolder.ELSEWHERE
    return InstallFolder.CLOSED if closed & {folder, *python.site_packages} else InstallFolder.OWN


def _tensorflow_folder(target: Target) -> str:
    return posixpath.dirname(target.tensorflow.package_dir) if target.tensorflow is not None else ""


def owner(target: Target) -> str:
    """Return who owns the folder in which this person may not write; empty if that is not known."""
    return (
        next((name for _, name in target.python.unwritable if name), "") if target.python is not None else ""
    )


def has(target: Target, program: str) -> bool | None:
    """Return whether a program is on this person's PATH; None if nobody looked."""
    programs = target.programs
    return None if programs is None else program in programs


def sudo(target: Target) -> str:
    """Return "sudo ", or nothing if this already runs as root."""
    return "" if target.root else "sudo "


def lacks_sudo(target: Target) -> bool:
    """Return whether this person is known to have no way to become root."""
    return target.root is False and has(target, "sudo") is False


# ---------------------------------------------------------------- pip and uv


def install(target: Target, requirements: Iterable[str], options: str = "") -> str:
    """Return the command that installs into the examined Python, with what has to come before it."""
    return _command(target, "install", options, requirements)


def uninstall(target: Target, names: Iterable[str]) -> str:
    """Return the command that removes distributions from the examined Python."""
    return _command(target, "uninstall", "", names)


def install_to(target: Target, folder: str, requirements: Iterable[str]) -> str:
    """Return the command that puts wheels alone into a new folder of this person's (it may begin with "$HOME/")."""
    return _command(target, "install", f"--no-deps --target {quote_home_path(folder)}", requirements)


def quote_home_path(path: str) -> str:
    """Return a path as a word of a command, with "$HOME" left to the shell."""
    return f'"{path}"' if path.startswith("$HOME/") else shlex.quote(path)


def _command(target: Target, verb: str, options: str, words: Iterable[str]) -> str:
    wanted = " ".join(shlex.quote(word) for word in words)
    python = target.python
    if python is None:
        yes = "-y " if verb == "uninstall" else ""
        return f"python3 -m pip {verb} {yes}{f'{options} ' if options else ''}{wanted}"
    apart = "--target" in options
    before, program = _program(target, python, apart=apart)
    flags = [options] if options else []
    uv = program.startswith("uv ")
    if verb == "uninstall" and not uv:
        flags.insert(0, "-y")
    if uv:
        flags.insert(0, f"--python {shlex.quote(python.executable)}")
    where = place(target)
    if not apart and where is InstallFolder.USER and verb == "install" and not uv:
        flags.insert(0, "--user")
    if not apart and where is InstallFolder.MANAGED:
        inside = target.tensorflow is not None and _tensorflow_folder(target) == python.user_site
        flags.insert(0, "--user" if inside and verb == "install" and not uv else "")
        flags.insert(0, "--break-system-packages")
    joined = " ".join(flag for flag in flags if flag)
    return f"{before}{program} {verb} {joined}{' ' if joined else ''}{wanted}"


def _program(target: Target, python: PythonFacts, *, apart: bool) -> tuple[str, str]:
    """Return (what has to be typed before, "uv pip" or the words for a pip that serves this Python).

    The one that has installed what is there comes first: it knows this person's index. `apart`: nothing goes into the
    Python itself, so that it need not be open.
    """
    uv, own = has(target, "uv"), f"{shlex.quote(python.executable)} -m pip"
    installers = {distribution.installer for distribution in python.distributions}
    by_uv = "uv" in installers and "pip" not in installers
    uv_serves = apart or not _needs_pip(target)
    if uv_serves and uv is not False and by_uv and (uv or not python.pip):
        return "", "uv pip"
    if python.pip is not False:
        return "", own
    if uv and uv_serves:
        return "", "uv pip"
    if (
        python.ensurepip
        and not apart
        and place(target) in (InstallFolder.OWN, InstallFolder.USER, InstallFolder.ELSEWHERE)
    ):
        user = " --user" if place(target) is InstallFolder.USER else ""
        return f"{shlex.quote(python.executable)} -m ensurepip{user} && ", own
    if python.ensurepip:
        tools = f'"{TOOLS}/bin/python"'
        other = "" if apart else f" --python {shlex.quote(python.executable)}"
        return f'{shlex.quote(python.executable)} -m venv "{TOOLS}" && ', f"{tools} -m pip{other}"
    for name in ("pip3", "pip"):
        if has(target, name):
            return "", f"{name} --python {shlex.quote(python.executable)}"
    if has(target, "apt-get"):
        return (
            f"{sudo(target)}apt-get install python3-pip && ",
            f"python3 -m pip --python {shlex.quote(python.executable)}",
        )
    return "", own


def needs_another(target: Target) -> bool:
    """Return whether TensorFlow is best installed into a new environment: this Python is the system's, or somebody
    else's.
    """
    return place(target) in (InstallFolder.MANAGED, InstallFolder.CLOSED)


def new_environment(target: Target, python: str, folder: str, wanted: str) -> tuple[str, ...]:
    """Return commands that make a virtual environment and install into it.

    `wanted`: requirements, as words of a shell.
    """
    own, name = target.python, shlex.quote(python)
    inside = f"{folder}/bin/python"
    usual = (
        f"{name} -m venv {folder}",
        f"{inside} -m pip install --upgrade pip",
        f"{inside} -m pip install {wanted}",
    )
    if own is None or python != own.executable or own.ensurepip is not False:
        return usual
    # Debian without python3-venv
    if has(target, "uv"):
        return (
            f"uv venv --python {name} {folder}",
            f"uv pip install --python {inside} {wanted}",
        )
    if own.pip:
        return (
            f"{name} -m venv --without-pip {folder}",
            f"{name} -m pip --python {inside} install {wanted}",
        )
    if has(target, "apt-get") and not lacks_sudo(target):
        package = f"python{'.'.join(own.version.split('.')[:2])}-venv"
        return (f"{sudo(target)}apt-get install {package}", *usual)
    return usual


def uv(target: Target) -> tuple[tuple[str, ...], str]:
    """Return (what has to be typed to have uv, the word for it)."""
    if has(target, "uv") is not False or target.python is None:
        return (), "uv"
    return new_environment(target, target.python.executable, "tf-uv", "uv"), "tf-uv/bin/uv"


def conda(target: Target) -> str:
    """Return the word for conda: another program of its kind where that is what there is."""
    if has(target, "conda") is not False:
        return "conda"
    return next((name for name in ("mamba", "micromamba") if has(target, name)), "conda")


def _needs_pip(target: Target) -> bool:
    """Return whether this cannot be done with uv, which knows no `--user`."""
    python = target.python
    return place(target) is InstallFolder.USER or (
        place(target) is InstallFolder.MANAGED
        and python is not None
        and python.user_site is not None
        and _tensorflow_folder(target) == python.user_site
    )
