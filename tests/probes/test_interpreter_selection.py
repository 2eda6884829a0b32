"""Selection of the Python to examine, with real folders, links and a real PATH."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tfdoctor.core.errors import UsageError
from tfdoctor.diagnosis import make_live_system
from tfdoctor.probes.interpreter_selection import choose_python, find_other_pythons, read_kernel_variables
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


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_relative_environment_is_not_active(tmp_path: Path, shell: Path, variable: str) -> None:
    make_environment(tmp_path / "work/env", shell / "python3")
    assert choose_python(make_system(tmp_path, shell, **{variable: "env"}), None).path == f"{shell}/python3"


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


def test_conda_base_environment_is_named(tmp_path: Path, shell: Path) -> None:
    env = make_environment(tmp_path / "conda", shell / "python3")
    system = make_system(tmp_path, shell, CONDA_PREFIX=str(env), CONDA_DEFAULT_ENV="base")
    assert choose_python(system, None).why == "conda's base environment, which is active"


@pytest.mark.parametrize("first", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_path_decides_between_two_environments(tmp_path: Path, shell: Path, first: str) -> None:
    folders = {
        name: make_environment(tmp_path / name, shell / "python3") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")
    }
    variables = {name: str(folder) for name, folder in folders.items()}
    path = f"{folders[first]}/bin:{shell}"
    assert choose_python(make_system(tmp_path, shell, **{**variables, "PATH": path}), None).how == f"${first}"


def test_deleted_environment_is_reported(tmp_path: Path, shell: Path) -> None:
    choice = choose_python(make_system(tmp_path, shell, VIRTUAL_ENV=str(tmp_path / "gone")), None)
    assert choice.path == f"{shell}/python3"
    assert [(missing.variable, missing.problem, missing.moved_to) for missing in choice.lost] == [
        ("VIRTUAL_ENV", "gone", ())
    ]


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


def test_successor_is_the_python_behind_the_shim(tmp_path: Path) -> None:
    shims = make_program(tmp_path / "pyenv/shims/python3.9").parent
    make_program(shims / "python3")
    base = make_program(tmp_path / "opt/bin/python3.9")
    env = make_environment(tmp_path / "env", base)
    base.unlink()
    successor = make_program(tmp_path / "pyenv/versions/3.9.18/bin/python3.9")
    choice = choose_python(make_system(tmp_path, shims, VIRTUAL_ENV=str(env)), None)
    assert choice.lost[0].successor == str(successor)
    assert "the shim" in choice.why


def test_environment_without_python_is_empty(tmp_path: Path, shell: Path) -> None:
    (tmp_path / "env").mkdir()
    assert (
        choose_python(make_system(tmp_path, shell, VIRTUAL_ENV=str(tmp_path / "env")), None).lost[0].problem
        == "empty"
    )


def test_error_names_the_missing_environment(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"VIRTUAL_ENV names .*gone, which is not there"):
        choose_python(make_system(tmp_path, tmp_path, VIRTUAL_ENV=str(tmp_path / "gone")), None)


def test_uvx_environment_of_tfdoctor_is_skipped(tmp_path: Path, shell: Path) -> None:
    uvx_bin = make_program(tmp_path / "cache/uv/archive-v0/AVYZ-bSU0MlVqI4s/bin/python3").parent
    choice = choose_python(make_system(tmp_path, shell, PATH=f"{uvx_bin}:{shell}:/usr/bin:/bin"), None)
    assert choice.path == f"{shell}/python3"


def test_hint_names_the_environment_in_a_project(tmp_path: Path, shell: Path) -> None:
    make_environment(tmp_path / "work/.venv", shell / "python3")
    with pytest.raises(UsageError) as caught:
        choose_python(make_system(tmp_path, shell), ".")
    assert caught.value.hint == "An environment is in it: --python ./.venv"


def test_dangling_link_differs_from_missing_file(tmp_path: Path, shell: Path) -> None:
    (tmp_path / "python").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"is a link to .*nowhere, which does not exist"):
        choose_python(make_system(tmp_path, shell), str(tmp_path / "python"))
    with pytest.raises(UsageError, match="does not exist"):
        choose_python(make_system(tmp_path, shell), str(tmp_path / "nothing"))


# ---------------------------------------------------------------- Jupyter


def write_kernel(folder: Path, *argv: str, **env: str) -> Path:
    """Write a kernel.json and return its path."""
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({"argv": list(argv), "env": env, "display_name": "x"}))
    return folder / "kernel.json"


def test_kernel_json_selects_its_python(tmp_path: Path, shell: Path) -> None:
    python = make_program(tmp_path / "env/bin/python")
    path = write_kernel(tmp_path / "k", str(python), "-m", "ipykernel_launcher", LD_LIBRARY_PATH="/x")
    for requested in (str(path), str(path.parent)):
        choice = choose_python(make_system(tmp_path, shell), requested)
        assert choice.path == str(python)
        assert "Jupyter kernel" in choice.why
        assert "LD_LIBRARY_PATH" in choice.why


def test_kernel_without_path_uses_its_environment(tmp_path: Path, shell: Path) -> None:
    python = make_program(tmp_path / "env/bin/python")
    path = write_kernel(tmp_path / "env/share/jupyter/kernels/python3", "python", "-m", "ipykernel_launcher")
    assert choose_python(make_system(tmp_path, shell), str(path)).path == str(python)
    elsewhere = write_kernel(tmp_path / "k", "python3", "-m", "ipykernel_launcher")
    assert choose_python(make_system(tmp_path, shell), str(elsewhere)).path == f"{shell}/python3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"argv": ["docker", "run"]}', "starts docker, which is no Python"),
        ('{"argv": ["/gone/bin/python"]}', "starts /gone/bin/python, which does not exist"),
        ('{"argv": []}', "is no kernel.json"),
        ('{"argv": [3]}', "is no kernel.json"),
        ("[" * 100_000, "is no kernel.json"),
        ("[]", "is no kernel.json"),
    ],
)
def test_invalid_kernel_is_refused(tmp_path: Path, shell: Path, text: str, said: str) -> None:
    path = tmp_path / "kernel.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        choose_python(make_system(tmp_path, shell), str(path))


# ---------------------------------------------------------------- other Pythons with TensorFlow


def install_tensorflow(folder: Path, version: str) -> Path:
    """Create an environment that contains TensorFlow and return its Python."""
    python = make_program(folder / "bin/python")
    site = folder / "lib/python3.11/site-packages"
    (site / "tensorflow").mkdir(parents=True)
    (site / "tensorflow/__init__.py").touch()
    (site / f"tensorflow-{version}.dist-info").mkdir()
    return python


def test_other_pythons_with_tensorflow_are_found(tmp_path: Path, shell: Path) -> None:
    home = tmp_path / "home"
    project_python = install_tensorflow(tmp_path / "work/.venv", "2.20.0")
    kernel_python = install_tensorflow(tmp_path / "kernel-env", "2.15.1")
    write_kernel(home / ".local/share/jupyter/kernels/tf", str(kernel_python), "-m", "ipykernel_launcher")
    write_kernel(home / ".local/share/jupyter/kernels/same", str(kernel_python), "-m", "ipykernel_launcher")
    conda_python = install_tensorflow(tmp_path / "conda", "2.10.0")
    (home / ".conda").mkdir()
    (home / ".conda/environments.txt").write_text(f"{conda_python.parent.parent}\n{tmp_path}/without\n")
    system = make_system(tmp_path, shell, HOME=str(home))
    others = find_other_pythons(system, choose_python(system, None), str(shell.parent))
    assert [(candidate.path, candidate.tensorflow) for candidate in others] == [
        (str(project_python), "2.20.0"),
        (str(kernel_python), "2.15.1"),
        (str(conda_python), "2.10.0"),
    ]
    assert others[0].how == ".venv in the working folder"
    assert find_other_pythons(system, choose_python(system, None), str(project_python.parent.parent))[
        0
    ].path == str(kernel_python)


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
