"""Selection of the Python to examine, with real folders, links and a real PATH."""

from __future__ import annotations

import json
import os
import sys
import venv
from typing import TYPE_CHECKING

import pytest

from tfdoctor.diagnosis import make_live_system
from tfdoctor.probes.interpreter_selection import (
    choose_python,
    examine_python_on_path,
    find_other_pythons,
    read_kernel_variables,
)
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from pathlib import Path


def make_program(path: Path) -> Path:
    """Create an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def make_environment(folder: Path, base: Path, version: str = "3.9.2") -> Path:
    """Create a virtual environment whose Python is a link to `base`."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\nversion = {version}\n")
    (folder / "bin/activate").write_text(f'VIRTUAL_ENV="{folder}"\nexport VIRTUAL_ENV\n')
    (folder / "bin/python").symlink_to(base)
    return folder


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """Return a folder on PATH that contains a python3."""
    return make_program(tmp_path / "usr/bin/python3").parent


def make_system(tmp_path: Path, shell: Path, **variables: str) -> LiveSystem:
    """Return the live system with `shell` on PATH and the working folder `tmp_path/work`."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return LiveSystem(env={"PATH": str(shell), **variables}, cwd=str(work))


def test_active_environment_is_chosen(tmp_path: Path, shell: Path) -> None:
    env = make_environment(tmp_path / "env", shell / "python3")
    choice = choose_python(make_system(tmp_path, shell, VIRTUAL_ENV=str(env)), None)
    assert (choice.path, choice.how, choice.lost) == (f"{env}/bin/python", "$VIRTUAL_ENV", ())
    assert choice.why == "the active virtual environment"


def test_other_python_on_path_is_reported(tmp_path: Path, shell: Path) -> None:
    """With a stale VIRTUAL_ENV, the program will run in another Python than the examined one."""
    env = make_environment(tmp_path / "env", shell / "python3")
    assert (
        choose_python(make_system(tmp_path, shell, VIRTUAL_ENV=str(env)), None).on_path == f"{shell}/python3"
    )
    linked = tmp_path / "linked"
    linked.symlink_to(env)
    for first in (env, linked):  # a link to the same environment counts as the same
        choice = choose_python(
            make_system(tmp_path, shell, VIRTUAL_ENV=str(env), PATH=f"{first}/bin:{shell}"), None
        )
        assert choice.on_path == ""
    shims = make_program(
        tmp_path / "pyenv/shims/python"
    ).parent  # the shims run the environments in pyenv/versions
    pyenv_env = make_environment(tmp_path / "pyenv/versions/own", shell / "python3")
    for active, on_path in ((env, f"{shims}/python"), (pyenv_env, "")):
        system = make_system(tmp_path, shell, VIRTUAL_ENV=str(active), PATH=f"{shims}:{shell}")
        assert choose_python(system, None).on_path == on_path
    without_python = make_program(tmp_path / "bin/ls").parent
    assert (
        choose_python(
            make_system(tmp_path, shell, VIRTUAL_ENV=str(env), PATH=str(without_python)), None
        ).on_path
        == ""
    )


@pytest.mark.parametrize("told", ["activate", "command"])
def test_moved_environment_is_found(tmp_path: Path, shell: Path, told: str) -> None:
    old, new = make_environment(tmp_path / "old", shell / "python3"), tmp_path / "new"
    old.rename(new)
    if told == "command":  # written by venv since Python 3.11
        (new / "bin/activate").unlink()
        (new / "pyvenv.cfg").write_text(f"home = {shell}\ncommand = {shell}/python3 -m venv {old}\n")
    make_environment(tmp_path / "another", shell / "python3")
    choice = choose_python(make_system(tmp_path, shell, VIRTUAL_ENV=str(old)), None)
    assert choice.lost[0].moved_to == (str(new),)


def test_environment_with_deleted_base_python(tmp_path: Path, shell: Path) -> None:
    base = make_program(tmp_path / "opt/bin/python3.9")
    env = make_environment(tmp_path / "env", base)
    base.unlink()
    system = make_system(tmp_path, shell, VIRTUAL_ENV=str(env))
    missing = choose_python(system, None).lost[0]
    assert (missing.problem, missing.target, missing.version, missing.successor) == (
        "base-gone",
        str(base),
        "3.9.2",
        None,
    )
    make_program(shell / "python3.9")
    for requested in (str(env), f"{env}/bin/python"):
        choice = choose_python(system, requested)
        assert choice.path == f"{env}/bin/python"
        assert [(item.variable, item.problem) for item in choice.lost] == [("--python", "base-gone")]
        assert choice.lost[0].successor == f"{shell}/python3.9"


def test_uvx_environment_of_tfdoctor_is_skipped(tmp_path: Path, shell: Path) -> None:
    uvx_bin = make_program(tmp_path / "cache/uv/archive-v0/AVYZ-bSU0MlVqI4s/bin/python3").parent
    choice = choose_python(make_system(tmp_path, shell, PATH=f"{uvx_bin}:{shell}:/usr/bin:/bin"), None)
    assert choice.path == f"{shell}/python3"


# ---------------------------------------------------------------- the Python that `python` starts


@pytest.mark.parametrize(
    "case", ["without TensorFlow", "with TensorFlow", "the environment itself", "no Python"]
)
def test_python_on_path_is_asked_for_tensorflow(tmp_path: Path, case: str) -> None:
    """A shim leads to another Python, to the environment itself or to none. Nothing of the working folder is imported."""
    env, other, shims = tmp_path / "env", tmp_path / "other", tmp_path / "pyenv/shims"
    for folder in (env, other):
        venv.create(folder, symlinks=True)
    package = next(other.glob("lib/python*/site-packages")) / "tensorflow"
    if case == "with TensorFlow":
        package.mkdir()
        (package / "__init__.py").touch()
    shim = make_program(shims / "python")
    target = {"the environment itself": env, "no Python": tmp_path / "nowhere"}.get(case, other)
    shim.write_text(f'#!/bin/sh\nexec {target}/bin/python "$@"\n')
    system = make_system(tmp_path, shims, VIRTUAL_ENV=str(env))
    (tmp_path / "work/os.py").write_text("raise SystemExit('of the working folder')\n")
    choice = examine_python_on_path(system, choose_python(system, None), timeout=30)
    expected_package = {"with TensorFlow": str(package.parent), "the environment itself": None}.get(case, "")
    assert choice.on_path_tensorflow == expected_package
    assert choice.on_path == ("" if case == "the environment itself" else str(shim))


def make_project(folder: Path, shell: Path, file: str = "uv.lock") -> Path:
    """Create a project with an environment, and return the interpreter."""
    env = make_environment(folder / ".venv", shell / "python3")
    (env / "lib").mkdir()
    (folder / file).touch()
    return env / "bin/python"


@pytest.mark.parametrize(
    ("file", "tool"),
    [("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm"), ("Pipfile", "pipenv")],
)
def test_environment_of_a_project_is_named_and_not_run(
    tmp_path: Path, shell: Path, file: str, tool: str
) -> None:
    """It may have come with the project's files: only `--python` runs it."""
    system = make_system(tmp_path, shell, PATH=f"{shell}:/usr/bin:/bin")
    python = make_project(tmp_path / "work", shell, file)
    choice = choose_python(system, None)
    assert choice.path == f"{shell}/python3"
    package = python.parent.parent / "lib/python3.9/site-packages/tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "work/src").mkdir()
    below = LiveSystem(env=dict(system.env), cwd=str(tmp_path / "work/src"))
    for place in (system, below):
        assert [(other.path, other.how) for other in find_other_pythons(place, choice, "")] == [
            (str(python), f"`{tool} run`")
        ]


# ---------------------------------------------------------------- Jupyter


# ---------------------------------------------------------------- other Pythons with TensorFlow


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_unreadable_environment_is_not_missing(tmp_path: Path, shell: Path) -> None:
    env = make_environment(tmp_path / "closed/env", shell / "python3")
    env.parent.chmod(0)
    try:
        assert (
            choose_python(make_system(tmp_path, shell, VIRTUAL_ENV=str(env)), None).lost[0].problem
            == "closed"
        )
    finally:
        env.parent.chmod(0o755)


def test_variables_of_a_kernel_are_used(tmp_path: Path) -> None:
    """They affect the kernel's Python: CUDA_VISIBLE_DEVICES=-1 hides every GPU from it."""
    folder = tmp_path / "kernels" / "tf"
    folder.mkdir(parents=True)
    spec = {"argv": [sys.executable], "env": {"CUDA_VISIBLE_DEVICES": "-1", "A=B": "x", "N": 3, "Z": "a\0b"}}
    (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    for requested in (folder, folder / "kernel.json"):
        assert make_live_system(str(requested)).env["CUDA_VISIBLE_DEVICES"] == "-1"
        assert read_kernel_variables(LiveSystem(), str(requested)) == {"CUDA_VISIBLE_DEVICES": "-1"}
    for other in (str(tmp_path), sys.executable, "/nowhere", "x\0y"):
        assert read_kernel_variables(LiveSystem(), other) == {}


def test_folder_with_a_python_is_not_a_kernel(tmp_path: Path) -> None:
    """Interpreter and variables must come from the same choice; a kernel file may have any name."""
    spec = json.dumps({"argv": [sys.executable], "env": {"CUDA_VISIBLE_DEVICES": "-1"}})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "kernel.json").write_text(spec, encoding="utf-8")
    (tmp_path / "mine.json").write_text(spec, encoding="utf-8")
    system = LiveSystem(cwd=str(tmp_path))
    assert choose_python(system, str(tmp_path)).path == f"{tmp_path}/bin/python"
    assert read_kernel_variables(system, str(tmp_path)) == {}
    assert choose_python(system, "./mine.json").path == sys.executable
    assert read_kernel_variables(system, "./mine.json") == {"CUDA_VISIBLE_DEVICES": "-1"}
