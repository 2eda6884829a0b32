"""Find the installed Python interpreters, and query each for its version and its venv module."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core import versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.system import System

__all__ = ["Interpreter", "find_interpreters", "query_interpreter"]

START_TIMEOUT_S = 15.0
"""The time limit in seconds for a Python to start and answer."""
MAX_PYTHONS = 60
"""The largest number of Pythons that are queried."""
_MIN_MINOR, _MAX_MINOR = 6, 30
"""The range of minor versions of Python 3 that are searched by name (`python3.6` …)."""
_QUERY_CODE = """\
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
    """An installed Python that can run TensorFlow."""

    path: str
    """The path. For a virtual environment: the path of the base interpreter, if it is known (Python 3.7 and newer)."""
    version: str
    """The full version: `"3.11.7"`."""
    base_prefix: str
    """The prefix of the base interpreter."""
    can_create_venv: bool
    """Whether venv and ensurepip are available. In Debian these are in a separate package."""

    @property
    def minor_version(self) -> str:
        """The major and minor version: `"3.11"`."""
        return versions.major_minor(self.version)


def query_interpreter(path: str, system: System) -> Interpreter | None:
    """Return the interpreter at a path; None if it does not run or cannot run TensorFlow.

    TensorFlow's wheels need a 64-bit CPython 3 that is not free-threaded (ABI flag "t").
    """
    python_variables = [name for name in system.env if name.startswith("PYTHON")]
    result = system.run(
        (path, "-I", "-c", _QUERY_CODE),
        timeout=START_TIMEOUT_S,
        unset=python_variables,
        key=f"what-is {path}",
    )
    try:
        fields = json.loads(result.stdout[:20_000]) if result.ok else None
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    texts = {name: fields.get(name) for name in ("path", "version", "base")}
    if not all(isinstance(text, str) and text for text in texts.values()):
        return None
    if fields.get("implementation") != "CPython" or fields.get("bits") != 64 or "t" in str(fields.get("abi")):
        return None
    version = str(texts["version"]).partition("+")[0]  # "3.11.2+" is a build from the Git repository
    if not versions.is_version(version) or versions.parse_numbers(version)[0] != 3:
        return None
    return Interpreter(
        path=str(texts["path"]),
        version=version,
        base_prefix=str(texts["base"]),
        can_create_venv=fields.get("venv") is True,
    )


def find_interpreters(system: System) -> tuple[Interpreter, ...]:
    """Return the interpreters of this machine, each installation once.

    The first is that of the active environment, else `python3` on PATH.
    """
    paths: dict[str, str] = {}  # by resolved path
    for path in _iter_paths(system):
        if system.exists(path) and not system.is_dir(path):
            paths.setdefault(system.realpath(path), path)
    with ThreadPoolExecutor(4) as pool:
        interpreters = list(
            pool.map(lambda path: query_interpreter(path, system), list(paths.values())[:MAX_PYTHONS])
        )
    distinct: dict[tuple[str, str], Interpreter] = {}
    for interpreter in interpreters:
        if interpreter is not None:
            distinct.setdefault((system.realpath(interpreter.base_prefix), interpreter.version), interpreter)
    return tuple(distinct.values())


def _iter_paths(system: System) -> Iterator[str]:
    """Yield possible paths of Pythons: in the active environment, on PATH, and those of pyenv and uv."""
    env, home = system.env, system.env.get("HOME", "")
    if env.get("VIRTUAL_ENV", "").startswith("/"):  # a relative folder would be one of the working folder
        yield f"{env['VIRTUAL_ENV']}/bin/python"
    yield from filter(None, map(system.which, ("python3", "python")))
    pyenv_root = env.get("PYENV_ROOT") or f"{home}/.pyenv"
    for folder in env.get("PATH", "").split(":"):
        # A shim of pyenv runs one of the versions that are searched below, or fails.
        if folder.startswith("/") and folder != f"{pyenv_root}/shims":
            for minor in range(_MAX_MINOR, _MIN_MINOR - 1, -1):
                yield f"{folder}/python3.{minor}"
    data_folder = env.get("XDG_DATA_HOME") or f"{home}/.local/share"
    for root in (f"{pyenv_root}/versions", env.get("UV_PYTHON_INSTALL_DIR") or f"{data_folder}/uv/python"):
        try:
            names = system.listdir(root)
        except OSError:
            continue
        for name in names[::-1][:MAX_PYTHONS]:
            yield f"{root}/{name}/bin/python3"
