"""Environments with a real TensorFlow, for the tests that are opt-in: made when asked for, removed afterwards.

TFDOCTOR_LAB=1 makes those of ENVIRONMENTS with the Pythons that are to be had; TFDOCTOR_LAB_PYTHONS="ENV/bin/python …"
takes ready ones instead and leaves them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OLD_FRIENDS = ("protobuf<3.21", "numpy<1.20", "h5py<3")
ENVIRONMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "2.21-and-cuda": ("3.11", ("tensorflow[and-cuda]==2.21.0",)),
    "2.18": ("3.11", ("tensorflow==2.18.1",)),
    "1.14": ("3.7", ("tensorflow-gpu==1.14.0", *OLD_FRIENDS)),
}
"""Name → (Python, requirements). 1.14 is the last era with a loader of its own; 2.21 needs NVML; 2.18 has no wheels of
NVIDIA's beside it."""


MORE = {"2.21": ("3.11", ("tensorflow==2.21.0",))}
"""With TFDOCTOR_LAB_FULL=1 alone."""
OTHERS = {
    "2.15": ("3.11", ("tensorflow==2.15.1",)),
    "2.20": ("3.11", ("tensorflow==2.20.0",)),
    "1.13": ("3.7", ("tensorflow-gpu==1.13.2", *OLD_FRIENDS)),
    "1.15": ("3.7", ("tensorflow-gpu==1.15.5", *OLD_FRIENDS)),
}
"""What single tests ask for."""


def parse_wanted() -> bool:
    """Whether the tests with real wheels are to run at all."""
    return bool(os.environ.get("TFDOCTOR_LAB") or ready())


def list_everything() -> bool:
    """Whether they are to try every situation, and the slow way."""
    return bool(os.environ.get("TFDOCTOR_LAB_FULL"))


def ready() -> list[str]:
    """Interpreters of environments that are there already."""
    return os.environ.get("TFDOCTOR_LAB_PYTHONS", "").split()


def names() -> list[str]:
    """What to run on: ready interpreters, else the names of ENVIRONMENTS."""
    return ready() or list(ENVIRONMENTS | (MORE if list_everything() else {}))


def find_python(version: str) -> str | None:
    """An interpreter of this minor version: on PATH, or one of pyenv's."""
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
        return found
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    there = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(there[-1]) if there else None


@contextmanager
def environment(name: str, folder: Path) -> Iterator[Path | str]:
    """The interpreter of one of `names()`, or the reason why there is none; removed at the end: disks are small."""
    if name in ready():
        yield Path(name)
        return
    version, requirements = (ENVIRONMENTS | MORE | OTHERS)[name]
    base = find_python(version)
    if base is None:
        yield f"no Python {version} here"
        return
    interpreter = folder / "bin" / "python"
    subprocess.run([base, "-m", "venv", str(folder)], check=True, capture_output=True)
    uv = shutil.which("uv")  # three times as fast
    pip = (
        [uv, "pip", "install", "--python", str(interpreter)] if uv else [interpreter, "-m", "pip", "install"]
    )
    installed = subprocess.run(
        [*pip, "-q", "--no-cache-dir", *requirements],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    try:
        if installed.returncode:
            message = f"pip could not install {requirements}: {installed.stderr[-1500:]}"
            raise RuntimeError(message)
        yield interpreter
    finally:
        shutil.rmtree(folder, ignore_errors=True)
