"""Installation commands that this user can run on this machine.

They depend on the available programs (uv, sudo, conda), on the user's write permissions, on whether the system
forbids pip (PEP 668), and on whether TensorFlow is in the folder that pip installs into.
"""

from __future__ import annotations

import enum
import posixpath
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.core.facts import PythonFacts
    from tfdoctor.remedies.target import Target

PIP_ENVIRONMENT = "$HOME/pip-for-tensorflow"
"""A virtual environment that provides pip if the examined Python has none and cannot install it."""


class InstallFolder(enum.Enum):
    """The kind of folder into which the pip of the examined Python would install."""

    WRITABLE = "its own folder"
    USER_SITE = "the user's folder, which contains TensorFlow"
    ELSEWHERE = "not where TensorFlow is"
    UNWRITABLE = "a folder that belongs to somebody else"
    MANAGED = "the system's Python (PEP 668)"


def classify_install_folder(target: Target) -> InstallFolder:
    """Return the kind of folder that pip would install into; OWN if the Python is not known."""
    python = target.python
    if python is None:
        return InstallFolder.WRITABLE
    if python.externally_managed and not python.virtual:
        return InstallFolder.MANAGED
    folder = _get_tensorflow_folder(target)
    if folder and folder == python.user_site:
        return InstallFolder.USER_SITE
    unwritable_folders = {path for path, _owner in python.unwritable}
    site_folders = [posixpath.normpath(path) for path in python.site_packages]
    if folder and site_folders and posixpath.normpath(folder) not in site_folders:
        return (
            InstallFolder.UNWRITABLE
            if unwritable_folders & {folder, *python.site_packages}
            else InstallFolder.ELSEWHERE
        )
    return (
        InstallFolder.UNWRITABLE
        if unwritable_folders & {folder, *python.site_packages}
        else InstallFolder.WRITABLE
    )


def _get_tensorflow_folder(target: Target) -> str:
    return posixpath.dirname(target.tensorflow.package_dir) if target.tensorflow is not None else ""


def get_folder_owner(target: Target) -> str:
    """Return the owner of the folder that this user cannot write to; "" if that is not known."""
    return (
        next((owner for _path, owner in target.python.unwritable if owner), "")
        if target.python is not None
        else ""
    )


def has_program(target: Target, program: str) -> bool | None:
    """Return whether a program is on this user's PATH; None if tfdoctor did not search for programs."""
    programs = target.programs
    return None if programs is None else program in programs


def get_sudo_prefix(target: Target) -> str:
    """Return "sudo ", or "" for root."""
    return "" if target.is_root else "sudo "


def lacks_sudo(target: Target) -> bool:
    """Return whether this user is known to be not root and to have no sudo."""
    return target.is_root is False and has_program(target, "sudo") is False


# ---------------------------------------------------------------- pip and uv


def format_install_command(target: Target, requirements: Iterable[str], options: str = "") -> str:
    """Return the command that installs requirements into the examined Python.

    If there is neither pip nor uv, the command installs pip first.
    """
    return _format_command(target, "install", options, requirements)


def format_uninstall_command(target: Target, names: Iterable[str]) -> str:
    """Return the command that removes distributions from the examined Python."""
    return _format_command(target, "uninstall", "", names)


def format_folder_install_command(target: Target, folder: str, requirements: Iterable[str]) -> str:
    """Return the command that installs requirements into a new folder, without their dependencies.

    The folder may begin with "$HOME/".
    """
    return _format_command(target, "install", f"--no-deps --target {quote_home_path(folder)}", requirements)


def quote_home_path(path: str) -> str:
    """Quote a path for the shell, which still expands "$HOME"."""
    return f'"{path}"' if path.startswith("$HOME/") else shlex.quote(path)


def _format_command(target: Target, verb: str, options: str, items: Iterable[str]) -> str:
    """Return a pip or uv command for the examined Python, with the options that its install folder requires."""
    arguments = " ".join(shlex.quote(item) for item in items)
    python = target.python
    if python is None:
        yes_option = "-y " if verb == "uninstall" else ""
        return f"python3 -m pip {verb} {yes_option}{f'{options} ' if options else ''}{arguments}"
    uses_target_folder = "--target" in options
    setup_command, program = _choose_program(target, python, uses_target_folder=uses_target_folder)
    flags = [options] if options else []
    uses_uv = program.startswith("uv ")
    if verb == "uninstall" and not uses_uv:
        flags.insert(0, "-y")
    if uses_uv:
        flags.insert(0, f"--python {shlex.quote(python.executable)}")
    folder = classify_install_folder(target)
    if not uses_target_folder and folder is InstallFolder.USER_SITE and verb == "install" and not uses_uv:
        flags.insert(0, "--user")
    if not uses_target_folder and folder is InstallFolder.MANAGED:
        in_user_site = target.tensorflow is not None and _get_tensorflow_folder(target) == python.user_site
        flags.insert(0, "--user" if in_user_site and verb == "install" and not uses_uv else "")
        flags.insert(0, "--break-system-packages")
    joined = " ".join(flag for flag in flags if flag)
    return f"{setup_command}{program} {verb} {joined}{' ' if joined else ''}{arguments}"


def _choose_program(target: Target, python: PythonFacts, *, uses_target_folder: bool) -> tuple[str, str]:
    """Return (setup command, program). The program is "uv pip" or a pip command for this Python.

    The program that installed the existing packages is preferred, because it is configured for this user's
    index. With `uses_target_folder`, nothing is installed into the Python itself, so it need not be writable.
    The setup command is empty if the program is available.
    """
    has_uv, own_pip = has_program(target, "uv"), f"{shlex.quote(python.executable)} -m pip"
    installers = {distribution.installer for distribution in python.distributions}
    installed_by_uv = "uv" in installers and "pip" not in installers
    can_use_uv = uses_target_folder or not _needs_pip(target)
    if can_use_uv and has_uv is not False and installed_by_uv and (has_uv or not python.pip):
        return "", "uv pip"
    if python.pip is not False:
        return "", own_pip
    if has_uv and can_use_uv:
        return "", "uv pip"
    if (
        python.ensurepip
        and not uses_target_folder
        and classify_install_folder(target)
        in (InstallFolder.WRITABLE, InstallFolder.USER_SITE, InstallFolder.ELSEWHERE)
    ):
        user_option = " --user" if classify_install_folder(target) is InstallFolder.USER_SITE else ""
        return f"{shlex.quote(python.executable)} -m ensurepip{user_option} && ", own_pip
    if python.ensurepip:
        # pip in a separate environment can install for another Python with --python.
        tools_python = f'"{PIP_ENVIRONMENT}/bin/python"'
        python_option = "" if uses_target_folder else f" --python {shlex.quote(python.executable)}"
        return (
            f'{shlex.quote(python.executable)} -m venv "{PIP_ENVIRONMENT}" && ',
            f"{tools_python} -m pip{python_option}",
        )
    for name in ("pip3", "pip"):
        if has_program(target, name):
            return "", f"{name} --python {shlex.quote(python.executable)}"
    if has_program(target, "apt-get"):
        return (
            f"{get_sudo_prefix(target)}apt-get install python3-pip && ",
            f"python3 -m pip --python {shlex.quote(python.executable)}",
        )
    return "", own_pip


def needs_new_environment(target: Target) -> bool:
    """Return whether a new environment is needed, because the system or another user owns this Python."""
    return classify_install_folder(target) in (InstallFolder.MANAGED, InstallFolder.UNWRITABLE)


def make_environment_commands(target: Target, python: str, folder: str, arguments: str) -> tuple[str, ...]:
    """Return the commands that create a virtual environment in `folder` and install requirements into it.

    `arguments` are the quoted requirements, joined with spaces.
    """
    examined_python, quoted_python = target.python, shlex.quote(python)
    new_python = f"{folder}/bin/python"
    default_commands = (
        f"{quoted_python} -m venv {folder}",
        f"{new_python} -m pip install --upgrade pip",
        f"{new_python} -m pip install {arguments}",
    )
    if (
        examined_python is None
        or python != examined_python.executable
        or examined_python.ensurepip is not False
    ):
        return default_commands
    # This Python has no ensurepip, as on Debian without python3-venv, so `-m venv` alone fails.
    if has_program(target, "uv"):
        return (
            f"uv venv --python {quoted_python} {folder}",
            f"uv pip install --python {new_python} {arguments}",
        )
    if examined_python.pip:
        return (
            f"{quoted_python} -m venv --without-pip {folder}",
            f"{quoted_python} -m pip --python {new_python} install {arguments}",
        )
    if has_program(target, "apt-get") and not lacks_sudo(target):
        package = f"python{'.'.join(examined_python.version.split('.')[:2])}-venv"
        return (f"{get_sudo_prefix(target)}apt-get install {package}", *default_commands)
    return default_commands


def choose_uv_command(target: Target) -> tuple[tuple[str, ...], str]:
    """Return (commands that install uv, command that runs uv).

    The first item is empty if uv is available, or if the Python is not known.
    """
    if has_program(target, "uv") is not False or target.python is None:
        return (), "uv"
    return make_environment_commands(target, target.python.executable, "tf-uv", "uv"), "tf-uv/bin/uv"


def choose_conda(target: Target) -> str:
    """Return the command name of conda, or of mamba or micromamba if only these are available."""
    if has_program(target, "conda") is not False:
        return "conda"
    return next((name for name in ("mamba", "micromamba") if has_program(target, name)), "conda")


def _needs_pip(target: Target) -> bool:
    """Return whether pip is required, because the command needs `--user`, which uv does not support."""
    python = target.python
    return classify_install_folder(target) is InstallFolder.USER_SITE or (
        classify_install_folder(target) is InstallFolder.MANAGED
        and python is not None
        and python.user_site is not None
        and _get_tensorflow_folder(target) == python.user_site
    )
