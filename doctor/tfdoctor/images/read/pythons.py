"""Track which Python version `python3`, `pip` and similar commands run at each line of a Dockerfile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.images.read.bases import BaseReference
    from tfdoctor.images.read.installs import AptCall, CondaCall, PipCall
    from tfdoctor.images.read.models import Setting
    from tfdoctor.images.read.shell import Command

__all__ = ["PythonTracker"]

_VERSIONED_PROGRAM = re.compile(r"(?:.*/)?(?:python|pip)(\d\.\d{1,2})")
"""A program with a version in its name, such as python3.8 or pip3.8."""
_UNVERSIONED_PROGRAM = re.compile(r"(?:.*/)?(python3?|pip3?)")
"""A program without a full version in its name, such as python3 or pip."""
_VERSION_MANAGERS = frozenset({"pyenv", "asdf", "rye", "pixi", "add-pkg", "module"})
"""Tools that install or select a Python version, which is unknown afterwards."""
_PERMITTING_OPTIONS = frozenset(
    {"--break-system-packages", "--target", "-t", "--prefix", "--root", "--dry-run", "--python", "-p"}
)
"""Options that allow pip to change the system's Python, or that make pip install elsewhere."""


class PythonTracker:
    """The Python versions of an image at one step of its build. An unknown version is None."""

    def __init__(self, base: BaseReference, compat: Compat) -> None:
        self.base = base
        self.compat = compat
        self.version_by_command: dict[str, str | None] = {"python3": base.python, "pip3": base.python}
        """The Python version of each command, by its name."""
        version = base.python
        if base.kind in ("python", "official", "ngc"):
            self.version_by_command |= {"python": version, "pip": version}
        # Since Ubuntu 20.04 and Debian 11, python3-pip also has a `pip` command.
        elif version is not None and (
            (base.ubuntu_release is not None and base.ubuntu_release >= "20.04")
            or (base.kind == "plain" and versions.is_at_least(version, "3.9"))
        ):
            self.version_by_command |= {"pip": version, "python": None}
        self.environments: dict[str, str | None] = {}
        """The Python version of each virtual environment, by its folder."""
        self.is_managed = base.is_python_managed
        """Whether pip refuses to install into the system's own Python."""
        self.is_environment_active = False
        """Whether commands without a path run the Python of an environment."""

    def is_refused(self, call: PipCall, command: Command) -> bool:
        """Return whether pip refuses to run a command because the system manages its Python (PEP 668)."""
        options = {argument.text.partition("=")[0] for argument in command.words}
        if not self.is_managed or options & _PERMITTING_OPTIONS:
            return False
        version = call.python or self.find_python(call.program)
        if call.program == "uv":
            return version == self.base.python and "--system" in options
        folder = call.program.rpartition("/bin/")[0]
        is_system_pip = folder in ("/usr", "") and (
            not self.is_environment_active or _VERSIONED_PROGRAM.fullmatch(call.program) is not None
        )
        return is_system_pip and version == self.base.python

    def find_python(self, program: str) -> str | None:
        """Return the Python version of a program such as `pip3`, `python3.8`, `/opt/venv/bin/pip` or `uv`.

        Return None if it is unknown.
        """
        match = _VERSIONED_PROGRAM.fullmatch(program)
        if match is not None:
            return match[1]
        folder = program.rpartition("/bin/")[0]
        if folder and folder in self.environments:
            return self.environments[folder]
        if program == "uv":
            if "uv" in self.version_by_command:
                return self.version_by_command["uv"]
            return self.version_by_command.get("python") or self.version_by_command.get("python3")
        match = _UNVERSIONED_PROGRAM.fullmatch(program)
        if match is None or (folder and folder not in ("/usr", "/usr/local", "")):
            return None
        return self.version_by_command.get(match[1])

    def apply_setting(self, setting: Setting) -> None:
        """Apply an ENV instruction: PATH, VIRTUAL_ENV or PIP_BREAK_SYSTEM_PACKAGES."""
        if setting.name == "PATH":
            entries = re.split(r"[:\s]", (setting.value or setting.text)[:4096])
            self._use_environment(
                next((entry.removesuffix("/bin") for entry in entries if entry.endswith("/bin")), ""),
                setting.text,
            )
        elif setting.name == "PIP_BREAK_SYSTEM_PACKAGES" and setting.value not in ("", "0", "false"):
            self.is_managed = False
        elif setting.name == "VIRTUAL_ENV" and setting.value in self.environments:
            self.version_by_command["uv"] = self.environments[setting.value]

    def _use_environment(self, folder: str, text: str) -> None:
        """Point the commands without a path at a virtual environment, or at an unknown Python (conda, pyenv).

        `text` is the setting or path that selects the environment.
        """
        version = self.environments.get(folder)
        if version is None and "VIRTUAL_ENV" in text and len(self.environments) == 1:
            version = next(iter(self.environments.values()))
        if folder in self.environments or version is not None:
            self._set_unversioned_commands(version)
        elif "conda" in folder or "pyenv" in folder or "forge" in folder:
            self._set_unversioned_commands(None)

    def _set_unversioned_commands(self, version: str | None) -> None:
        """Set the Python version of all commands without a path, as in an environment."""
        self.is_environment_active = True
        for name in ("python", "python3", "pip", "pip3"):
            self.version_by_command[name] = version

    def apply_apt(self, call: AptCall) -> None:
        """Apply an apt-get command. python-pip is for Python 2.7; python-is-python3 adds a `python` command."""
        for name, _ in call.packages:
            if name == "python-pip":
                self.version_by_command |= {"pip": "2.7", "python": "2.7"}
            elif name == "python-is-python3":
                self.version_by_command["python"] = self.version_by_command.get("python3")

    def apply_conda(self, call: CondaCall) -> None:
        """Apply a conda command that installs Python, assuming that its environment is the active one."""
        for name, version in call.packages:
            if name == "python":
                match = re.fullmatch(r"[=~]{0,2}(\d\.\d{1,2})(?:\.\S*)?", version)
                self._set_unversioned_commands(match[1] if match is not None else None)

    def apply_command(self, command: Command) -> None:
        """Apply a shell command if it creates links, alternatives or virtual environments, or runs get-pip."""
        name, arguments = command.name, [argument.text for argument in command.words]
        if "EXTERNALLY-MANAGED" in command.text or "break-system-packages" in command.text:
            self.is_managed = False
        if name in ("ln", "cp") and len(arguments) > 2:
            self._add_link(arguments[-2], arguments[-1])
        elif name == "update-alternatives" and len(arguments) > 3:
            self._add_alternative(arguments)
        elif name == "uv" and arguments[1:2] == ["venv"]:
            self._add_uv_environment(arguments[2:])
        elif name in _VERSION_MANAGERS or (name == "uv" and arguments[1:2] == ["python"]):
            self._set_unversioned_commands(None)
        elif name == "virtualenv":
            self._add_environment(
                arguments[1:],
                self._find_version_option(arguments, ("-p", "--python"))
                or self.version_by_command.get("python3"),
            )
        elif re.fullmatch(r"python(?:\d(?:\.\d{1,2})?)?", name):
            version = self.find_python(arguments[0])
            if (
                "-m" in arguments
                and (index := arguments.index("-m")) + 2 < len(arguments)
                and arguments[index + 1]
                in (
                    "venv",
                    "virtualenv",
                )
            ):
                self._add_environment(arguments[index + 2 :], version)
            # get-pip.py is an argument, or it is read from a pipe, as in `curl … | python3`.
            elif any("get-pip" in argument for argument in arguments[1:]) or (
                command.is_piped and len(arguments) < 3
            ):
                self.version_by_command |= {"pip": version, "pip3": version}
        elif name in (".", "source") and len(arguments) > 1 and arguments[1].endswith("/bin/activate"):
            self._use_environment(arguments[1].removesuffix("/bin/activate"), arguments[1])

    def _add_link(self, source: str, target: str) -> None:
        """Apply a link that gives a Python a name without a version."""
        # A link in the folder /usr/bin/ keeps the name of its source.
        match = _UNVERSIONED_PROGRAM.fullmatch(target.rstrip("/") if not target.endswith("/bin/") else "")
        if match is None:
            return
        version = self.find_python(source)
        self._set_command(match[1], version)

    def _set_command(self, name: str, version: str | None) -> None:
        """Set the Python version of a command. If it is `python3`, also set those of `pip3` and `pip`."""
        self.version_by_command[name] = version
        if name == "python3":  # Debian's pip3 is a script of /usr/bin/python3
            self.version_by_command["pip3"] = version
            # python-pip, whose Python is 2.7, has a `pip` command of its own.
            if "pip" in self.version_by_command and self.version_by_command["pip"] != "2.7":
                self.version_by_command["pip"] = version

    def _add_alternative(self, arguments: list[str]) -> None:
        """Apply `update-alternatives --install` or `--set`."""
        if "--install" in arguments and (index := arguments.index("--install")) + 3 < len(arguments):
            link, path = arguments[index + 1], arguments[index + 3]
        elif "--set" in arguments and (index := arguments.index("--set")) + 2 < len(arguments):
            link, path = arguments[index + 1], arguments[index + 2]
        else:
            return
        match = _UNVERSIONED_PROGRAM.fullmatch(link)
        if match is not None:
            self._set_command(match[1], self.find_python(path))

    def _add_uv_environment(self, arguments: list[str]) -> None:
        """Apply `uv venv`, whose environment uv uses from then on."""
        requested = self._find_version_option(arguments, ("-p", "--python"))
        version = requested if requested is not None else self.version_by_command.get("python3")
        self._add_environment(arguments, version)
        self._set_unversioned_commands(version)

    @staticmethod
    def _find_version_option(arguments: list[str], names: tuple[str, ...]) -> str | None:
        """Return the Python version in the value of an option, or None if there is none."""
        for index, argument in enumerate(arguments):
            option, equals_sign, value = argument.partition("=")
            if option in names:
                text = value if equals_sign else (arguments[index + 1] if index + 1 < len(arguments) else "")
                match = re.fullmatch(r"(?:.*/)?(?:python)?(\d\.\d{1,2})(?:\.\d{1,2})?", text)
                return match[1] if match is not None else None
        return None

    def _add_environment(self, arguments: list[str], version: str | None) -> None:
        """Record a new virtual environment. Its folder is the last argument except options and versions."""
        folder = next(
            (
                argument
                for argument in reversed(arguments)
                if not argument.startswith("-")
                and not re.fullmatch(r"(?:.*/)?(?:python)?\d\.\d{1,2}(?:\.\d{1,2})?", argument)
            ),
            None,
        )
        if folder is not None and len(self.environments) < 100:
            self.environments[folder.rstrip("/")] = version
