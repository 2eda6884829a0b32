"""The Pythons at hand that a virtual environment can be made from: found by name and place, each asked what it is."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor import versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.system import System

__all__ = ["Interpreter", "ask", "find_interpreters"]

START_TIMEOUT_S = 15.0
"""Seconds that a Python may take to start and answer."""
MAX_PYTHONS = 60
"""Pythons that are asked."""
_OLDEST, _NEWEST = 6, 30
"""Minors of Python 3 that are looked for by name."""
_QUESTION = """\
import importlib.util, json, os, platform, struct, sys
base = getattr(sys, "_base_executable", None) or ""
has = lambda name: importlib.util.find_spec(name) is not None
print(json.dumps({
    "path": base if os.path.isfile(base) else sys.executable,
    "version": platform.python_version(),
    "base": getattr(sys, "base_prefix", sys.prefix),
    "abi": getattr(sys, "abiflags", ""),
    "implementation": platform.python_implementation(),
    "bits": struct.calcsize("P") * 8,
    "venv": has("venv") and has("ensurepip"),
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that runs."""

    path: str
    """In a virtual environment the Python that it was made from, where that is told (3.7 and newer)."""
    version: str
    """`"3.11.7"`."""
    base: str
    """The prefix of the Python behind it, where it is a virtual environment's."""
    venv: bool
    """Whether it can make an environment with pip by itself; Debian has that in a package of its own."""

    @property
    def minor(self) -> str:
        """`"3.11"`."""
        return versions.major_minor(self.version)


def ask(path: str, system: System) -> Interpreter | None:
    """Return what a Python is; None if it does not run, or is none that wheels of TensorFlow are for.

    Those are for CPython, 64 bits, with the global lock.
    """
    python = [name for name in system.env if name.startswith("PYTHON")]
    answer = system.run(
        (path, "-I", "-c", _QUESTION), timeout=START_TIMEOUT_S, unset=python, key=f"what-is {path}"
    )
    try:
        said = json.loads(answer.stdout[:20_000]) if answer.ok else None
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    texts = {name: said.get(name) for name in ("path", "version", "base")}
    if not all(isinstance(text, str) and text for text in texts.values()):
        return None
    if said.get("implementation") != "CPython" or said.get("bits") != 64 or "t" in str(said.get("abi")):
        return None
    version = str(texts["version"]).partition("+")[0]  # "3.11.2+": built from a repository
    if not versions.is_version(version) or versions.numbers(version)[0] != 3:
        return None
    return Interpreter(str(texts["path"]), version, str(texts["base"]), said.get("venv") is True)


def find_interpreters(system: System) -> tuple[Interpreter, ...]:
    """Return the Pythons of this machine, the one that `python3` means first, each installation once."""
    paths: dict[str, str] = {}
    for path in _places(system):
        if system.exists(path) and not system.is_dir(path):
            paths.setdefault(system.realpath(path), path)
    with ThreadPoolExecutor(4) as pool:
        asked = list(pool.map(lambda path: ask(path, system), list(paths.values())[:MAX_PYTHONS]))
    found: dict[tuple[str, str], Interpreter] = {}
    for one in asked:
        if one is not None:
            found.setdefault((system.realpath(one.base), one.version), one)
    return tuple(found.values())


def _places(system: System) -> Iterator[str]:
    """Yield where Pythons may be: the active environment, PATH, pyenv's and uv's folders."""
    env, home = system.env, system.env.get("HOME", "")
    if env.get("VIRTUAL_ENV"):
        yield f"{env['VIRTUAL_ENV']}/bin/python"
    yield from filter(None, map(system.which, ("python3", "python")))
    pyenv = env.get("PYENV_ROOT") or f"{home}/.pyenv"
    for folder in env.get("PATH", "").split(":"):
        if (
            folder.startswith("/") and folder != f"{pyenv}/shims"
        ):  # its names stand for the versions below, or for nothing
            for minor in range(_NEWEST, _OLDEST - 1, -1):
                yield f"{folder}/python3.{minor}"
    data = env.get("XDG_DATA_HOME") or f"{home}/.local/share"
    for root in (f"{pyenv}/versions", env.get("UV_PYTHON_INSTALL_DIR") or f"{data}/uv/python"):
        try:
            names = system.listdir(root)
        except OSError:
            continue
        for name in names[::-1][:MAX_PYTHONS]:
            yield f"{root}/{name}/bin/python3"
