"""Which Python `python3`, `pip` and the rest of them mean at a point of a Dockerfile; None where it is not known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.dockerfile.read.bases import BaseReference
    from tfdoctor.dockerfile.read.installs import AptCall, CondaCall, PipCall
    from tfdoctor.dockerfile.read.models import Setting
    from tfdoctor.dockerfile.read.shell import Command

__all__ = ["PythonTracker"]

_VERSIONED = re.compile(r"(?:.*/)?(?:python|pip)(\d\.\d{1,2})")
_PLAIN = re.compile(r"(?:.*/)?(python3?|pip3?)")
_SWITCHES = frozenset({"pyenv", "asdf", "rye", "pixi", "add-pkg", "module"})


_ALLOWED = frozenset(
    {"--break-system-packages", "--target", "-t", "--prefix", "--root", "--dry-run", "--python", "-p"}
)
"""With them pip does not change the system's Python, or was told that it may."""


def _has_plain_pip(base: BaseReference) -> bool:
    """Return whether the system's python3-pip has a `pip` besides `pip3`: Debian's from 11 on."""
    return base.kind == "plain" and base.python is not None and versions.is_at_least(base.python, "3.9")


class PythonTracker:
    """Follows the steps in order."""

    def __init__(self, base: BaseReference, compat: Compat) -> None:
        self.base = base
        self.compat = compat
        self.names: dict[str, str | None] = {"python3": base.python, "pip3": base.python}
        own = base.python
        if base.kind in ("python", "official", "ngc"):
            self.names |= {"python": own, "pip": own}
        elif own is not None and (
            (base.system is not None and base.system >= "20.04") or _has_plain_pip(base)
        ):
            self.names |= {"pip": own, "python": None}
        self.environments: dict[str, str | None] = {}
        """Folder of a virtual environment → its Python."""
        self.managed = base.managed
        """Whether pip still refuses the system's own Python."""
        self.inside = False
        """Whether plain names mean an environment's Python by now."""

    def refuses(self, call: PipCall, command: Command) -> bool:
        """Return whether pip refuses for the Python being the system's (PEP 668)."""
        words = {word.text.partition("=")[0] for word in command.words}
        if not self.managed or words & _ALLOWED:
            return False
        version = call.python or self.find_python(call.program)
        if call.program == "uv":
            return version == self.base.python and "--system" in words
        folder = call.program.rpartition("/bin/")[0]
        plain = folder in ("/usr", "") and (not self.inside or _VERSIONED.fullmatch(call.program) is not None)
        return plain and version == self.base.python

    def find_python(self, program: str) -> str | None:
        """Return the Python of `pip3`, `python3.8`, `/opt/venv/bin/pip`, `uv`."""
        match = _VERSIONED.fullmatch(program)
        if match is not None:
            return match[1]
        folder = program.rpartition("/bin/")[0]
        if folder and folder in self.environments:
            return self.environments[folder]
        if program == "uv":
            return self.names.get("python", self.names.get("python3"))
        match = _PLAIN.fullmatch(program)
        if match is None or (folder and folder not in ("/usr", "/usr/local", "")):
            return None
        return self.names.get(match[1])

    def setting(self, setting: Setting) -> None:
        """`ENV PATH=/opt/venv/bin:$PATH`, `ENV VIRTUAL_ENV=/opt/venv`."""
        if setting.name == "PATH":
            folders = re.split(r"[:\s]", (setting.value or setting.text)[:4096])
            self._enter(
                next((f.removesuffix("/bin") for f in folders if f.endswith("/bin")), ""), setting.text
            )
        elif setting.name == "PIP_BREAK_SYSTEM_PACKAGES" and setting.value not in ("", "0", "false"):
            self.managed = False
        elif setting.name == "VIRTUAL_ENV" and setting.value in self.environments:
            self.names["uv"] = self.environments[setting.value]

    def _enter(self, folder: str, text: str) -> None:
        version = self.environments.get(folder)
        if version is None and "VIRTUAL_ENV" in text and len(self.environments) == 1:
            version = next(iter(self.environments.values()))
        if folder in self.environments or version is not None:
            self._set_all(version)
        elif "conda" in folder or "pyenv" in folder or "forge" in folder:
            self._set_all(None)

    def _set_all(self, version: str | None) -> None:
        self.inside = True
        for name in ("python", "python3", "pip", "pip3"):
            self.names[name] = version

    def apt(self, call: AptCall) -> None:
        """`apt-get install python3-pip` gives `pip` on newer systems, `python-pip` one of Python 2."""
        for name, _ in call.packages:
            if name == "python-pip":
                self.names |= {"pip": "2.7", "python": "2.7"}
            elif name in ("python-is-python3",):
                self.names["python"] = self.names.get("python3")

    def conda(self, call: CondaCall) -> None:
        """`conda create python=3.8`; whether the environment is the one that is used is not known."""
        for name, version in call.packages:
            if name == "python":
                match = re.fullmatch(r"[=~]{0,2}(\d\.\d{1,2})(?:\.\S*)?", version)
                self._set_all(match[1] if match is not None else None)

    def command(self, command: Command) -> None:
        """Links, alternatives, virtual environments, get-pip."""
        name, words = command.name, [word.text for word in command.words]
        if "EXTERNALLY-MANAGED" in command.text or "break-system-packages" in command.text:
            self.managed = False
        if name in ("ln", "cp") and len(words) > 2:
            self._link(words[-2], words[-1])
        elif name == "update-alternatives" and len(words) > 3:
            self._alternative(words)
        elif name == "uv" and words[1:2] == ["venv"]:
            self._uv_venv(words[2:])
        elif name in _SWITCHES or (name == "uv" and words[1:2] == ["python"]):
            self._set_all(None)
        elif name in ("virtualenv",):
            self._environment(words[1:], self._option(words, ("-p", "--python")) or self.names.get("python3"))
        elif re.fullmatch(r"python(?:\d(?:\.\d{1,2})?)?", name):
            version = self.find_python(words[0])
            if (
                "-m" in words
                and (place := words.index("-m")) + 2 < len(words)
                and words[place + 1]
                in (
                    "venv",
                    "virtualenv",
                )
            ):
                self._environment(words[place + 2 :], version)
            elif any("get-pip" in word for word in words[1:]) or (command.piped and len(words) < 3):
                self.names |= {"pip": version, "pip3": version}
        elif name in (".", "source") and len(words) > 1 and words[1].endswith("/bin/activate"):
            self._enter(words[1].removesuffix("/bin/activate"), words[1])

    def _link(self, source: str, target: str) -> None:
        made = _PLAIN.fullmatch(target.rstrip("/") if not target.endswith("/bin/") else "")
        if made is None:
            return
        version = self.find_python(source)
        self._set(made[1], version)

    def _set(self, name: str, version: str | None) -> None:
        self.names[name] = version
        if name == "python3":  # Debian's pip3 is a script of /usr/bin/python3
            self.names["pip3"] = version
            if "pip" in self.names and self.names["pip"] != "2.7":
                self.names["pip"] = version

    def _alternative(self, words: list[str]) -> None:
        if "--install" in words and (place := words.index("--install")) + 3 < len(words):
            link, path = words[place + 1], words[place + 3]
        elif "--set" in words and (place := words.index("--set")) + 2 < len(words):
            link, path = words[place + 1], words[place + 2]
        else:
            return
        made = _PLAIN.fullmatch(link)
        if made is not None:
            self._set(made[1], self.find_python(path))

    def _uv_venv(self, words: list[str]) -> None:
        asked = self._option(words, ("-p", "--python"))
        version = asked if asked is not None else self.names.get("python3")
        self._environment(words, version)
        self._set_all(version)

    @staticmethod
    def _option(words: list[str], names: tuple[str, ...]) -> str | None:
        for place, word in enumerate(words):
            option, equal, value = word.partition("=")
            if option in names:
                text = value if equal else (words[place + 1] if place + 1 < len(words) else "")
                match = re.fullmatch(r"(?:.*/)?(?:python)?(\d\.\d{1,2})(?:\.\d{1,2})?", text)
                return match[1] if match is not None else None
        return None

    def _environment(self, words: list[str], version: str | None) -> None:
        folder = next(
            (
                word
                for word in reversed(words)
                if not word.startswith("-")
                and not re.fullmatch(r"(?:.*/)?(?:python)?\d\.\d{1,2}(?:\.\d{1,2})?", word)
            ),
            None,
        )
        if folder is not None and len(self.environments) < 100:
            self.environments[folder.rstrip("/")] = version
