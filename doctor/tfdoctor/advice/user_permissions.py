"""The commands that this user can run on this machine, and the folder that they install into. Pure.

They depend on the available programs (uv, sudo, conda), on write permissions, on whether the system forbids
pip (PEP 668), and on whether TensorFlow is in the folder that pip installs into.
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

PIP_ENVIRONMENT = "$HOME/pip-for-tensorflow"
"""A virtual environment that only provides pip, if the examined Python has none and cannot install it."""


class InstallFolder(enum.Enum):
    """The folder that a command would install into if it used the examined Python."""

    OWN = "its own folder"
    USER = "the user's folder, which contains TensorFlow"
    ELSEWHERE = "not where TensorFlow is"
    CLOSED = "a folder that belongs to somebody else"
    MANAGED = "the system's Python (PEP 668)"


def find_install_folder(target: Target) -> InstallFolder:
    """Return the folder that pip would install into; OWN if the Python is not known."""
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


def get_folder_owner(target: Target) -> str:
    """Return the owner of the folder that this user cannot write to; empty if that is not known."""
    return (
        next((name for _, name in target.python.unwritable if name), "") if target.python is not None else ""
    )


def has_program(target: Target, program: str) -> bool | None:
    """Return whether a program is on this user's PATH; None if programs were not looked for."""
    programs = target.programs
    return None if programs is None else program in programs


def sudo_prefix(target: Target) -> str:
    """Return "sudo ", or "" for root."""
    return "" if target.root else "sudo "


def lacks_sudo(target: Target) -> bool:
    """Return whether this user is known to be neither root nor able to use sudo."""
    return target.root is False and has_program(target, "sudo") is False


# ---------------------------------------------------------------- pip and uv


def install(target: Target, requirements: Iterable[str], options: str = "") -> str:
    """Return the command that installs into the examined Python, including the installation of pip if needed."""
    return _format_command(target, "install", options, requirements)


def format_uninstall(target: Target, names: Iterable[str]) -> str:
    """Return the command that removes distributions from the examined Python."""
    return _format_command(target, "uninstall", "", names)


def format_folder_install(target: Target, folder: str, requirements: Iterable[str]) -> str:
    """Return the command that installs wheels, without dependencies, into a new folder.

    The folder may begin with "$HOME/".
    """
    return _format_command(target, "install", f"--no-deps --target {quote_home_path(folder)}", requirements)


def quote_home_path(path: str) -> str:
    """Quote a path for the shell, which still expands "$HOME"."""
    return f'"{path}"' if path.startswith("$HOME/") else shlex.quote(path)


def _format_command(target: Target, verb: str, options: str, items: Iterable[str]) -> str:
    """Return a pip or uv command for the examined Python, with the options that its folder needs."""
    arguments = " ".join(shlex.quote(item) for item in items)
    python = target.python
    if python is None:
        yes = "-y " if verb == "uninstall" else ""
        return f"python3 -m pip {verb} {yes}{f'{options} ' if options else ''}{arguments}"
    separate = "--target" in options
    setup, program = _choose_program(target, python, separate=separate)
    flags = [options] if options else []
    uv = program.startswith("uv ")
    if verb == "uninstall" and not uv:
        flags.insert(0, "-y")
    if uv:
        flags.insert(0, f"--python {shlex.quote(python.executable)}")
    folder = find_install_folder(target)
    if not separate and folder is InstallFolder.USER and verb == "install" and not uv:
        flags.insert(0, "--user")
    if not separate and folder is InstallFolder.MANAGED:
        in_user_site = target.tensorflow is not None and _tensorflow_folder(target) == python.user_site
        flags.insert(0, "--user" if in_user_site and verb == "install" and not uv else "")
        flags.insert(0, "--break-system-packages")
    joined = " ".join(flag for flag in flags if flag)
    return f"{setup}{program} {verb} {joined}{' ' if joined else ''}{arguments}"


def _choose_program(target: Target, python: PythonFacts, *, separate: bool) -> tuple[str, str]:
    """Return (setup command, program): the program is "uv pip" or a pip command that works for this Python.

    The installer of the existing packages is preferred, because it knows this user's index. `separate`:
    nothing is installed into the Python itself, which need not be writable.
    """
    uv, own_pip = has_program(target, "uv"), f"{shlex.quote(python.executable)} -m pip"
    installers = {distribution.installer for distribution in python.distributions}
    installed_by_uv = "uv" in installers and "pip" not in installers
    uv_serves = separate or not _needs_pip(target)
    if uv_serves and uv is not False and installed_by_uv and (uv or not python.pip):
        return "", "uv pip"
    if python.pip is not False:
        return "", own_pip
    if uv and uv_serves:
        return "", "uv pip"
    if (
        python.ensurepip
        and not separate
        and find_install_folder(target) in (InstallFolder.OWN, InstallFolder.USER, InstallFolder.ELSEWHERE)
    ):
        user_option = " --user" if find_install_folder(target) is InstallFolder.USER else ""
        return f"{shlex.quote(python.executable)} -m ensurepip{user_option} && ", own_pip
    if python.ensurepip:
        tools_python = f'"{PIP_ENVIRONMENT}/bin/python"'
        python_option = "" if separate else f" --python {shlex.quote(python.executable)}"
        return (
            f'{shlex.quote(python.executable)} -m venv "{PIP_ENVIRONMENT}" && ',
            f"{tools_python} -m pip{python_option}",
        )
    for name in ("pip3", "pip"):
        if has_program(target, name):
            return "", f"{name} --python {shlex.quote(python.executable)}"
    if has_program(target, "apt-get"):
        return (
            f"{sudo_prefix(target)}apt-get install python3-pip && ",
            f"python3 -m pip --python {shlex.quote(python.executable)}",
        )
    return "", own_pip


def needs_new_environment(target: Target) -> bool:
    """Return whether TensorFlow should be installed into a new environment.

    This is so if the system or another user owns this Python.
    """
    return find_install_folder(target) in (InstallFolder.MANAGED, InstallFolder.CLOSED)


def make_environment_commands(target: Target, python: str, folder: str, arguments: str) -> tuple[str, ...]:
    """Return the commands that create a virtual environment and install into it.

    `arguments`: quoted requirements, joined with spaces.
    """
    examined, name = target.python, shlex.quote(python)
    new_python = f"{folder}/bin/python"
    default = (
        f"{name} -m venv {folder}",
        f"{new_python} -m pip install --upgrade pip",
        f"{new_python} -m pip install {arguments}",
    )
    if examined is None or python != examined.executable or examined.ensurepip is not False:
        return default
    # this Python cannot create pip, as on Debian without python3-venv
    if has_program(target, "uv"):
        return (
            f"uv venv --python {name} {folder}",
            f"uv pip install --python {new_python} {arguments}",
        )
    if examined.pip:
        return (
            f"{name} -m venv --without-pip {folder}",
            f"{name} -m pip --python {new_python} install {arguments}",
        )
    if has_program(target, "apt-get") and not lacks_sudo(target):
        package = f"python{'.'.join(examined.version.split('.')[:2])}-venv"
        return (f"{sudo_prefix(target)}apt-get install {package}", *default)
    return default


def choose_uv(target: Target) -> tuple[tuple[str, ...], str]:
    """Return (commands that install uv, command name of uv); the commands are empty if uv is available."""
    if has_program(target, "uv") is not False or target.python is None:
        return (), "uv"
    return make_environment_commands(target, target.python.executable, "tf-uv", "uv"), "tf-uv/bin/uv"


def choose_conda(target: Target) -> str:
    """Return the command name of conda, or of mamba or micromamba if only these are available."""
    if has_program(target, "conda") is not False:
        return "conda"
    return next((name for name in ("mamba", "micromamba") if has_program(target, name)), "conda")


def _needs_pip(target: Target) -> bool:
    """Return whether pip is required, because the installation needs `--user`, which uv does not support."""
    python = target.python
    return find_install_folder(target) is InstallFolder.USER or (
        find_install_folder(target) is InstallFolder.MANAGED
        and python is not None
        and python.user_site is not None
        and _tensorflow_folder(target) == python.user_site
    )
