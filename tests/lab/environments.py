"""Environments with a real TensorFlow for the opt-in tests; they are created on demand and removed afterwards.

TFDOCTOR_LAB=1 creates those of ENVIRONMENTS with the available Pythons. TFDOCTOR_LAB_PYTHONS="ENV/bin/python …" uses
existing ones instead and keeps them.
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

OLD_COMPANIONS = ("protobuf<3.21", "numpy<1.20", "h5py<3")
ENVIRONMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "2.21-and-cuda": ("3.11", ("tensorflow[and-cuda]==2.21.0",)),
    "2.18": ("3.11", ("tensorflow==2.18.1",)),
    "1.14": ("3.7", ("tensorflow-gpu==1.14.0", *OLD_COMPANIONS)),
}
"""The Python version and the requirements by name.

1.14 stands for the releases before 2.0 that open the CUDA libraries themselves, 2.21 requires NVML, and 2.18 comes
without NVIDIA's wheels.
"""


MORE = {"2.21": ("3.11", ("tensorflow==2.21.0",))}
"""Environments for TFDOCTOR_LAB_FULL=1 only."""
OTHERS = {
    "2.15": ("3.11", ("tensorflow==2.15.1",)),
    "2.20": ("3.11", ("tensorflow==2.20.0",)),
    "1.13": ("3.7", ("tensorflow-gpu==1.13.2", *OLD_COMPANIONS)),
    "1.15": ("3.7", ("tensorflow-gpu==1.15.5", *OLD_COMPANIONS)),
}
"""Environments that single tests use."""


def is_lab_enabled() -> bool:
    """Return whether the tests with real wheels should run."""
    return bool(os.environ.get("TFDOCTOR_LAB") or list_existing())


def is_full_run() -> bool:
    """Return whether the tests should try every situation with the whole import."""
    return bool(os.environ.get("TFDOCTOR_LAB_FULL"))


def list_existing() -> list[str]:
    """Return the interpreters of existing environments."""
    return os.environ.get("TFDOCTOR_LAB_PYTHONS", "").split()


def names() -> list[str]:
    """Return the environments to run on: existing interpreters, else the names of ENVIRONMENTS."""
    return list_existing() or list(ENVIRONMENTS | (MORE if is_full_run() else {}))


def find_python(version: str) -> str | None:
    """Return an interpreter of this minor version from PATH or pyenv, or None."""
    path = shutil.which(f"python{version}")
    if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
        return path
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(installed[-1]) if installed else None


@contextmanager
def provide_environment(name: str, folder: Path) -> Iterator[Path | str]:
    """Yield the interpreter of one of `names()`, or the reason why there is none.

    A created environment is removed at the end, because disks are small.
    """
    if name in list_existing():
        yield Path(name)
        return
    version, requirements = (ENVIRONMENTS | MORE | OTHERS)[name]
    base = find_python(version)
    if base is None:
        yield f"no Python {version} here"
        return
    interpreter = folder / "bin" / "python"
    subprocess.run([base, "-m", "venv", str(folder)], check=True, capture_output=True)
    uv = shutil.which("uv")  # three times as fast as pip
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
