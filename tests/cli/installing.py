"""What the tests of `install` share: a package index of tiny wheels, locks for them, and the command in a child.

Run as a program it is `tfdoctor`, with the locks of `TEST_LOCKS` in place of the real ones and without the links to
NVIDIA's libraries, which the tiny wheels do not have.
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

import tfdoctor.environment.install as core
from tfdoctor.cli.startup import run
from tfdoctor.environment import selection
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.causes.steps import MakeLink

HERE = Path(__file__)
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
PLANNED = ("--tf", "2.20.0", "--anywhere")
HAS_WHEELS = MINOR in ("3.10", "3.11", "3.12", "3.13")
"""Whether that release has a wheel for the Python of the tests."""
UV = shutil.which("uv")
needs_uv = pytest.mark.skipif(UV is None, reason="there is no uv")
REQUIRES = ("numpy>=1",)
"""What the tiny TensorFlow requires."""
SENTENCE = "this environment is unfinished"


def wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = ()
) -> tuple[Path, str]:
    """A wheel, and its SHA-256."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    inside = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in inside.items()]
    inside[f"{info}/RECORD"] = "".join(f"{row}\n" for row in [*rows, f"{info}/RECORD,,"])
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in inside.items():
            archive.writestr(zipfile.ZipInfo(inner, (2026, 1, 1, 0, 0, 0)), text)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Index:
    """A folder of wheels and the locks that pin them."""

    wheels: Path
    locks: Path

    def env(self, **more: str) -> dict[str, str]:
        """The variables of a command that has this index and no other one, and nothing of the caller's."""
        keep = ("HOME", "LANG", "PATH", "PYENV_ROOT", "SYSTEMROOT", "TMPDIR", "PYTHONDONTWRITEBYTECODE")
        return {
            **{name: os.environ[name] for name in keep if name in os.environ},
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_NO_INDEX": "1",
            "TEST_LOCKS": str(self.locks),
            "UV_CACHE_DIR": str(self.locks / "uv-cache"),
            "UV_PYTHON_DOWNLOADS": "never",
            **more,
        }


def make_index(folder: Path, *, files: int = 3) -> Index:
    """Tiny wheels of TensorFlow, of NVIDIA, of the tools and of what a user may want."""
    index = Index(folder / "wheels", folder / "locks")
    index.wheels.mkdir(parents=True)
    index.locks.mkdir()
    made = {
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
        "tensorflow": REQUIRES,
        "wants-old-numpy": ("numpy<1",),
        "wants-new-numpy": ("numpy>=1.1",),
        "wants-other-cudnn": ("nvidia-cublas-cu13",),
    }
    wheel(index.wheels, "numpy", "1.1", {"numpy/__init__.py": ""})
    for lock, wheels in made.items():
        lines = []
        for name, content in wheels:
            _, digest = wheel(index.wheels, name, "1.0", content, requires.get(name, ()))
            lines.append(f"{name}==1.0 --hash=sha256:{digest}\n")
        if lock:
            (index.locks / f"{lock}.txt").write_text("".join(lines), encoding="utf-8")
    return index


def command_line(*args: str) -> list[str]:
    """`tfdoctor install …` in a child, from the Python of the tests."""
    return [sys.executable, str(HERE), "install", *PLANNED, "--python", sys.executable, *args]


def run_to_end(args: Sequence[str], env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        args, env=dict(env), cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


def empty_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: room is never short, whatever else lies on the disk of the tests."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**12})())


def change_facts(**changes: object) -> dict[str, str]:
    """A variable for the command: what is another way than it is."""
    return {"TEST_CHANGES": json.dumps(changes)}


def start(folder: Path) -> subprocess.CompletedProcess[str]:
    """What the Python of an environment does when somebody starts it."""
    env = {"PATH": os.environ["PATH"]}
    command = [str(folder / "bin/python"), "-c", "print('whole')"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def wait_until(process: subprocess.Popen[str], seen: Path, text: str = "") -> None:
    """Wait until a file is there (with a text in it), while the process lives."""
    for _ in range(3000):
        if seen.exists() and (not text or text in seen.read_text(encoding="utf-8")):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    pytest.fail(f"{seen} did not come")


# ---------------------------------------------------------------- as a program


def _locks(folder: Path) -> core.LockFiles:
    names = [folder / f"{name}.txt" for name in ("tools", "tensorflow", "cuda")]
    pins = [row.split()[0] for path in names[1:] for row in path.read_text(encoding="utf-8").splitlines()]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in names)).hexdigest()
    return core.LockFiles(*names, tuple(pins), digest)


def _main() -> None:
    folder = Path(os.environ["TEST_LOCKS"])

    def find_no_links(*_: Any) -> tuple[MakeLink, ...]:
        return ()

    core.links_for = find_no_links
    core.requires_of = lambda _: REQUIRES
    for module in (core, selection):
        module.locks_of = lambda _: _locks(folder)
    changes: dict[str, Any] = json.loads(os.environ.get("TEST_CHANGES", "{}"))
    free = changes.get("free", 10**12)  # the plan is of gigabytes, the tiny wheels are not
    shutil.disk_usage = lambda _: type("Usage", (), {"free": free})()
    if "python" in changes:  # what every Python answers
        one = selection.ask(sys.executable, LiveSystem())
        assert one is not None
        fields = {"path": one.path, "version": one.version, "base": one.base, "venv": one.venv} | changes[
            "python"
        ]
        found = type(one)(**fields) if changes["python"] else None
        selection.ask = lambda *_: found
        selection.find_interpreters = lambda _: (found,) if found else ()
    if (
        "kill_after" in changes
    ):  # a step's name: SIGKILL at the moment when it is done and not yet written down
        whole = core.run_installers

        def dying(commands: Any, **words: Any) -> None:
            whole(commands, **words)
            if any(changes["kill_after"] in word for words in commands for word in words):
                os.kill(os.getpid(), signal.SIGKILL)

        core.run_installers = dying
    run()


if __name__ == "__main__":
    _main()
