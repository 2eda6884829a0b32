"""Selection of the Python to examine, with real folders, links and a real PATH."""

from __future__ import annotations

import json
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


def test_environment_on_path_with_deleted_base_python_is_named(tmp_path: Path, shell: Path) -> None:
    """The shell skips its dangling link, and starts the next Python, which has nothing of it."""
    base = make_program(tmp_path / "opt/bin/python3.9")
    environment = make_environment(tmp_path / "image/env", base)
    base.unlink()
    system = make_system(tmp_path, shell, PATH=f"{environment}/bin:{shell}")
    choice = choose_python(system, None)
    assert choice.path == f"{shell}/python3"
    assert [(item.variable, item.prefix, item.problem) for item in choice.lost] == [
        ("PATH", str(environment), "base-gone")
    ]
    active = make_system(tmp_path, shell, PATH=f"{environment}/bin:{shell}", VIRTUAL_ENV=str(environment))
    assert [item.variable for item in choose_python(active, None).lost] == ["VIRTUAL_ENV"]
    after = make_system(tmp_path, shell, PATH=f"{shell}:{environment}/bin")
    assert choose_python(after, None).lost == ()


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
