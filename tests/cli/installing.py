"""Helpers of the tests of `install`: a package index of tiny wheels, their lock files, and the command in a child.

Run as a program, this module is `tfdoctor` with the lock files of `TEST_LOCKS` instead of the real ones. It creates no
links to NVIDIA's libraries, which the tiny wheels do not contain.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tfdoctor.environments.install as core
from tfdoctor.cli.startup import run
from tfdoctor.environments import selection
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.core.causes.steps import MakeLink

THIS_FILE = Path(__file__)
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
PLAN_ARGUMENTS = ("--tf", "2.20.0", "--anywhere")
HAS_WHEELS = MINOR in ("3.10", "3.11", "3.12", "3.13")
"""Whether TensorFlow 2.20.0 has a wheel for the Python of the tests."""
UV = shutil.which("uv")
needs_uv = pytest.mark.skipif(UV is None, reason="there is no uv")
TINY_REQUIREMENTS = ("numpy>=1",)
"""Requirements of the tiny TensorFlow."""
UNFINISHED_MESSAGE = "this environment is unfinished"


def write_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = ()
) -> tuple[Path, str]:
    """Write a wheel and return its path and its SHA-256."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    requires_lines = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires_lines}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    records = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in members.items()]
    members[f"{info}/RECORD"] = "".join(f"{record}\n" for record in [*records, f"{info}/RECORD,,"])
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_in_wheel, text in members.items():
            archive.writestr(zipfile.ZipInfo(name_in_wheel, (2026, 1, 1, 0, 0, 0)), text)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(text: str) -> str:
    """Return the digest that a RECORD file has for the text."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Index:
    """A folder of wheels and the lock files that pin them."""

    wheels: Path
    locks: Path

    def env(self, **extra: str) -> dict[str, str]:
        """Return the environment of a command that uses only this index and no settings of the caller."""
        keep = ("HOME", "LANG", "PATH", "PYENV_ROOT", "SYSTEMROOT", "TMPDIR", "PYTHONDONTWRITEBYTECODE")
        return {
            **{name: os.environ[name] for name in keep if name in os.environ},
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_NO_INDEX": "1",
            "TEST_LOCKS": str(self.locks),
            "UV_CACHE_DIR": str(self.locks / "uv-cache"),
            "UV_PYTHON_DOWNLOADS": "never",
            **extra,
        }


def make_index(folder: Path, *, files: int = 3) -> Index:
    """Write an index with tiny wheels of TensorFlow, NVIDIA, the tools and packages that a user may request."""
    index = Index(folder / "wheels", folder / "locks")
    index.wheels.mkdir(parents=True)
    index.locks.mkdir()
    groups = {
        "tools": [("tool", {"tool.py": ""})],
        "tensorflow": [
            ("tensorflow", {f"tensorflow/part{number}.py": "x = 1\n" for number in range(files)}),
            ("numpy", {"numpy/__init__.py": ""}),
        ],
        "cuda": [("nvidia-cublas-cu12", {"nvidia/cublas/lib/libcublas.so.12": "not one"})],
        "": [
            ("pandas", {"pandas.py": ""}),
            ("wants-old-numpy", {"wants.py": ""}),
            ("wants-new-numpy", {"wants_new.py": ""}),
            ("wants-other-cudnn", {"wants_other.py": ""}),
            ("nvidia-cublas-cu13", {"nvidia/cublas/lib/libcublas.so.13": "not one"}),
        ],
    }
    requires = {
        "tensorflow": TINY_REQUIREMENTS,
        "wants-old-numpy": ("numpy<1",),
        "wants-new-numpy": ("numpy>=1.1",),
        "wants-other-cudnn": ("nvidia-cublas-cu13",),
    }
    write_wheel(index.wheels, "numpy", "1.1", {"numpy/__init__.py": ""})
    for lock, wheels in groups.items():
        lines = []
        for name, files_of_wheel in wheels:
            _, digest = write_wheel(index.wheels, name, "1.0", files_of_wheel, requires.get(name, ()))
            lines.append(f"{name}==1.0 --hash=sha256:{digest}\n")
        if lock:
            (index.locks / f"{lock}.txt").write_text("".join(lines), encoding="utf-8")
    return index


def command_line(*args: str) -> list[str]:
    """Return the command `tfdoctor install …`, run by the Python of the tests."""
    return [
        sys.executable,
        str(THIS_FILE),
        "install",
        *PLAN_ARGUMENTS,
        "--python-version",
        sys.executable,
        *args,
    ]


def run_to_end(args: Sequence[str], env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command and return its result."""
    return subprocess.run(
        args, env=dict(env), cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


def mock_free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this process has 1 TB of free disk space."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**12})())


def change_facts(**changes: object) -> dict[str, str]:
    """Return the variable that changes the facts or the steps of the child process."""
    return {"TEST_CHANGES": json.dumps(changes)}


def start_python(folder: Path) -> subprocess.CompletedProcess[str]:
    """Start the Python of an environment and return the result."""
    env = {"PATH": os.environ["PATH"]}
    command = [str(folder / "bin/python"), "-c", "print('whole')"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def wait_until(process: subprocess.Popen[str], path: Path, text: str = "") -> None:
    """Wait until a file exists and contains `text`; fail if the process ends first."""
    for _ in range(3000):
        if path.exists() and (not text or text in path.read_text(encoding="utf-8")):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    pytest.fail(f"{path} did not come")


# ---------------------------------------------------------------- the command


def _locks(folder: Path) -> core.LockFiles:
    names = [folder / f"{name}.txt" for name in ("tools", "tensorflow", "cuda")]
    pins = [line.split()[0] for path in names[1:] for line in path.read_text(encoding="utf-8").splitlines()]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in names)).hexdigest()
    return core.LockFiles(*names, tuple(pins), digest)


def _main() -> None:
    folder = Path(os.environ["TEST_LOCKS"])

    def find_no_links(*_: Any) -> tuple[MakeLink, ...]:
        return ()

    core.list_links = find_no_links
    core.get_known_requirements = lambda _: TINY_REQUIREMENTS
    for module in (core, selection):
        module.get_lock_files = lambda _: _locks(folder)
    changes: dict[str, Any] = json.loads(os.environ.get("TEST_CHANGES", "{}"))
    free = changes.get("free", 10**12)  # the plan needs gigabytes, the tiny wheels do not
    shutil.disk_usage = lambda _: type("Usage", (), {"free": free})()
    if "python" in changes:  # the answer of every Python
        interpreter = selection.query_interpreter(sys.executable, LiveSystem())
        assert interpreter is not None
        fields = {
            "path": interpreter.path,
            "version": interpreter.version,
            "base_prefix": interpreter.base_prefix,
            "can_create_venv": interpreter.can_create_venv,
        } | changes["python"]
        changed = type(interpreter)(**fields) if changes["python"] else None
        selection.query_interpreter = lambda *_: changed
        selection.find_interpreters = lambda _: (changed,) if changed else ()
    if "kill_after" in changes:  # kill the process after this step, before the journal records it
        run_installers = core.run_installers

        def run_then_kill(commands: Any, **options: Any) -> None:
            run_installers(commands, **options)
            if any(changes["kill_after"] in argument for options in commands for argument in options):
                os.kill(os.getpid(), signal.SIGKILL)

        core.run_installers = run_then_kill
    run()


if __name__ == "__main__":
    _main()
