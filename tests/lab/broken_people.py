"""Environments that are broken for users other than the owner of a virtual environment.

Only typed.py uses them. `fix` has no commands for them or refuses.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .broken import (
    Broken,
    _each,
    delete_library,
    install_over,
    leave_unchanged,
    make_conda_like,
    uninstall_packages,
)
from .broken_env import Unavailable, inherit_variables

if TYPE_CHECKING:
    from collections.abc import Callable

    from .broken_env import Env

NOBODY = 65534
SYSTEM = Path("/usr/bin/python3")


def _find_minor(python: Path) -> str:
    code = "import sys; print('python%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def make_user_site(*, managed: bool) -> Callable[[Env], None]:
    """Return a function that makes the environment look like a `pip install --user`.

    The environment's folder is the user base. managed: with the system's Python, which forbids pip install.
    """

    def break_it(env: Env) -> None:
        real = Path(os.path.realpath(env.root / "bin/python"))
        python = SYSTEM if managed else real
        folder = env.site.parent.name
        if not python.exists() or _find_minor(python) != folder:
            message = f"{python} is not {folder}"
            raise Unavailable(message)
        if managed and not Path(f"/usr/lib/{folder}/EXTERNALLY-MANAGED").exists():
            message = f"{python} is not managed by the system"
            raise Unavailable(message)
        env.interpreter = python
        env.variables["PYTHONUSERBASE"] = str(env.root)
        env.protected = () if managed else (real.parents[1],)

    return break_it


def make_read_only(env: Env) -> None:
    """Make the environment a readable one of another user."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        message = "only root can be somebody else"
        raise Unavailable(message)
    env.user = NOBODY
    env.work.chmod(0o755)
    real = Path(os.path.realpath(env.root / "bin/python"))
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents):
        return
    # The environment uses a Python in root's private folder, which no other user can run.
    if not SYSTEM.exists() or _find_minor(SYSTEM) != env.site.parent.name:
        message = f"{real} is root's alone, and {SYSTEM} is another version"
        raise Unavailable(message)
    link, settings = env.root / "bin/python", env.root / "pyvenv.cfg"
    link.unlink()
    link.symlink_to(SYSTEM)
    text = settings.read_text(encoding="utf-8")
    settings.unlink()
    settings.write_text(re.sub(r"(?m)^home = .*$", f"home = {SYSTEM.parent}", text), encoding="utf-8")


def remove_uv(env: Env) -> None:
    """Remove uv from the user's PATH."""
    folders = (env.path or os.environ["PATH"]).split(os.pathsep)
    env.path = os.pathsep.join(folder for folder in folders if not (Path(folder) / "uv").exists())


def use_by_pythonpath(env: Env) -> None:
    """Use another virtual environment, in which PYTHONPATH leads to TensorFlow."""
    other = env.work / "other env"
    real = os.path.realpath(env.root / "bin/python")
    subprocess.run([real, "-m", "venv", str(other)], check=True, capture_output=True, env=inherit_variables())
    env.interpreter = other / "bin" / "python"
    env.variables["PYTHONPATH"] = str(env.site)


def keep_only_wheels(*parts: str) -> Callable[[Env], None]:
    """Return a function that keeps only these parts of NVIDIA's wheels."""

    def break_it(env: Env) -> None:
        env.uninstall(*(name for name in env.cuda_wheels() if not any(part in name for part in parts)))

    return break_it


_CUFFT = uninstall_packages("nvidia-cufft-cu12")

PEOPLE: tuple[Broken, ...] = (
    Broken(
        "user-site-managed", "2.20", "pip install --user with the system's Python (PEP 668), cuFFT gone",
        _each(_CUFFT, make_user_site(managed=True)), ("TFD201",),
    ),
    Broken(
        "user-site", "2.20", "pip install --user with a Python of one's own", _each(_CUFFT, make_user_site(managed=False)),
        ("TFD201",),
    ),
    Broken(
        "user-site-no-pip", "2.20", "…and no pip is left there",
        _each(_CUFFT, uninstall_packages("pip"), remove_uv, make_user_site(managed=False)), ("TFD201",),
    ),
    Broken(
        "user-site-protobuf", "2.20", "…and protobuf is too old",
        _each(install_over("--no-deps", "protobuf==4.25.3"), make_user_site(managed=False)), ("TFD307",), whole=True,
    ),
    Broken("read-only", "2.20", "a colleague's, without cuFFT", _each(_CUFFT, make_read_only), ("TFD201",)),
    Broken(
        "read-only-no-uv", "2.20", "…and this person has no uv", _each(_CUFFT, make_read_only, remove_uv), ("TFD201",),
    ),
    Broken(
        "read-only-no-pip", "2.20", "…and nobody a pip",
        _each(_CUFFT, uninstall_packages("pip"), make_read_only, remove_uv), ("TFD201",),
    ),
    Broken(
        "read-only-two", "2.20", "a colleague's, without cuSOLVER and what it needs",
        _each(uninstall_packages("nvidia-cusolver-cu12", "nvidia-nvjitlink-cu12"), make_read_only), ("TFD201",),
    ),
    Broken("read-only-221", "2.21", "a colleague's, as pip leaves it", _each(leave_unchanged, make_read_only), ("TFD203",)),
    Broken("read-only-210", "2.10", "a colleague's, as pip leaves it", _each(leave_unchanged, make_read_only), ("TFD203",)),
    Broken(
        "read-only-protobuf", "2.20", "a colleague's, with an older protobuf",
        _each(install_over("--no-deps", "protobuf==4.25.3"), make_read_only), ("TFD307",), whole=True,
    ),
    Broken("no-uv", "2.20", "made with uv, by one who has none", _each(_CUFFT, remove_uv), ("TFD201",)),
    Broken(
        "no-uv-no-pip", "2.20", "made with uv, and neither it nor a pip is there",
        _each(_CUFFT, uninstall_packages("pip"), remove_uv), ("TFD201",),
    ),
    Broken("elsewhere", "2.20", "PYTHONPATH leads to it", _each(_CUFFT, use_by_pythonpath), ("TFD201",)),
    Broken(
        "conda-half", "2.10", "in a conda environment, two of the wheels alone",
        _each(make_conda_like, keep_only_wheels("cudnn", "cublas")), ("TFD201", "TFD203"),
    ),
    Broken("210-half", "2.10", "two of the wheels alone", keep_only_wheels("cudnn", "cublas"), ("TFD201", "TFD203")),
    Broken(
        "221-half", "2.21", "as pip leaves it, and cuDNN and cuFFT gone",
        uninstall_packages("nvidia-cudnn-cu12", "nvidia-cufft-cu12"), ("TFD201",),
    ),
    Broken(
        "damaged-and-gone", "2.20", "a wheel gone, another's file gone, a third one's package needed",
        _each(_CUFFT, delete_library("cublas/lib/libcublas.so.12"), uninstall_packages("nvidia-nvjitlink-cu12")), ("TFD201",),
    ),
)  # fmt: skip
