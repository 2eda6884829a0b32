"""Ways to break an environment by what is run or found first: variables, startup files, search paths."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from . import standins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .broken_env import Env


def put_on_path(env: Env, folder: Path, by: str) -> None:
    """Put a folder first on LD_LIBRARY_PATH; `by` is "activate", "conda" or "caller"."""
    if by == "activate":
        line = f'export LD_LIBRARY_PATH={shlex.quote(str(folder))}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
        env.append_to_activate("", "# CUDA", line)
    elif by == "conda":
        make_conda_like(env)
        script = env.root / "etc/conda/activate.d/env_vars.sh"
        script.write_text(f'export LD_LIBRARY_PATH="{folder}:$LD_LIBRARY_PATH"\n', encoding="utf-8")
    else:
        env.variables["LD_LIBRARY_PATH"] = str(folder)


def make_conda_like(env: Env) -> None:
    """Add the files that mark a conda environment."""
    history = env.root / "conda-meta" / "history"
    history.parent.mkdir()
    history.write_text(
        "==> 2026-01-01 00:00:00 <==\n# cmd: conda create -n tf python=3.11\n", encoding="utf-8"
    )
    (env.root / "etc/conda/activate.d").mkdir(parents=True)
    env.shell = "conda"


def add_startup_file(name: str, *lines: str) -> Callable[[Env], None]:
    """Return a function that writes a file into site-packages that Python runs at start."""

    def break_it(env: Env) -> None:
        (env.site / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    return break_it


def add_foreign_startup_file(env: Env) -> None:
    """Add a sitecustomize.py outside the environment through PYTHONPATH."""
    folder = env.folder("company/python")
    lines = ("import os", "os.environ['CUDA_VISIBLE_DEVICES'] = ''")
    (folder / "sitecustomize.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    env.variables["PYTHONPATH"] = str(folder)


def leave_half_removed_cuda(*, by: str) -> Callable[[Env], None]:
    """Return a function that leaves only cuSOLVER of CUDA 11 in a folder on the search path.

    It has the same soname as in CUDA 12 and requires the cuBLAS of CUDA 11.
    """

    def break_it(env: Env) -> None:
        folder = env.folder("cuda-11.8/lib64")
        standins.write_library(
            folder / "libcusolver.so.11", env.cache, needs=("libcublas.so.11", "libcublasLt.so.11")
        )
        put_on_path(env, folder, by)

    return break_it


def preload_stub(env: Env) -> None:
    """Preload the toolkit's stub in bin/activate."""
    stub = env.folder("cuda/lib64/stubs") / "libcuda.so"
    standins.write_stub_driver(stub, env.cache)
    env.append_to_activate(f"export LD_PRELOAD={shlex.quote(str(stub))}")


def use_foreign_libstdcxx(env: Env) -> None:
    """Put a folder with an empty C++ library first in bin/activate."""
    folder = env.folder("other program/lib")
    standins.write_library(folder / "libstdc++.so.6", env.cache)
    put_on_path(env, folder, "activate")


def use_text_libstdcxx(env: Env) -> None:
    """Put a folder whose C++ library is a text file first in bin/activate."""
    folder = env.folder("other program/lib")
    standins.write_linker_script(folder / "libstdc++.so.6")
    put_on_path(env, folder, "activate")


def shadow_tensorflow(*, by: str) -> Callable[[Env], None]:
    """Return a function that puts a folder with a CPU-only TensorFlow on PYTHONPATH."""

    def break_it(env: Env) -> None:
        folder = env.folder("team/packages")
        env.install("--target", str(folder), "--no-deps", "tensorflow-cpu==2.20.0")
        line = f"export PYTHONPATH={shlex.quote(str(folder))}"
        if by == "activate":
            env.append_to_activate(line)
        else:
            env.variables["PYTHONPATH"] = str(folder)

    return break_it
