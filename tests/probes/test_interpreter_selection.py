"""Which Python is examined: real folders and links, a real PATH."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tfdoctor.errors import UsageError
from tfdoctor.examine import live_machine
from tfdoctor.probes.interpreter_selection import choose, find_other_pythons, kernel_variables
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from pathlib import Path


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def environment(folder: Path, base: Path, version: str = "3.9.2") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\nversion = {version}\n")
    (folder / "bin/activate").write_text(f'VIRTUAL_ENV="{folder}"\nexport VIRTUAL_ENV\n')
    (folder / "bin/python").symlink_to(base)
    return folder


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder on PATH with a python3 in it."""
    return program(tmp_path / "usr/bin/python3").parent


def here(tmp_path: Path, shell: Path, **variables: str) -> LiveSystem:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return LiveSystem(env={"PATH": str(shell), **variables}, cwd=str(work))


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_relative_environment_is_no_active_one(tmp_path: Path, shell: Path, variable: str) -> None:
    environment(tmp_path / "work/env", shell / "python3")
    assert choose(here(tmp_path, shell, **{variable: "env"}), None).path == f"{shell}/python3"


def test_the_active_environment(tmp_path: Path, shell: Path) -> None:
    env = environment(tmp_path / "env", shell / "python3")
    found = choose(here(tmp_path, shell, VIRTUAL_ENV=str(env)), None)
    assert (found.path, found.how, found.lost) == (f"{env}/bin/python", "$VIRTUAL_ENV", ())
    assert found.why == "the active virtual environment"


def test_an_environment_that_is_not_the_shells_is_said(tmp_path: Path, shell: Path) -> None:
    """A variable that something left behind: the program will run in another Python than the one examined."""
    env = environment(tmp_path / "env", shell / "python3")
    assert choose(here(tmp_path, shell, VIRTUAL_ENV=str(env)), None).on_path == f"{shell}/python3"
    linked = tmp_path / "linked"
    linked.symlink_to(env)
    for first in (env, linked):  # the same environment by another name is the same
        found = choose(here(tmp_path, shell, VIRTUAL_ENV=str(env), PATH=f"{first}/bin:{shell}"), None)
        assert found.on_path == ""
    shims = program(tmp_path / "pyenv/shims/python").parent  # lead to the environments beside them
    own = environment(tmp_path / "pyenv/versions/own", shell / "python3")
    for one, said in ((env, f"{shims}/python"), (own, "")):
        system = here(tmp_path, shell, VIRTUAL_ENV=str(one), PATH=f"{shims}:{shell}")
        assert choose(system, None).on_path == said
    nothing = program(tmp_path / "bin/ls").parent
    assert choose(here(tmp_path, shell, VIRTUAL_ENV=str(env), PATH=str(nothing)), None).on_path == ""


def test_condas_base_environment_is_told_from_one_of_ones_own(tmp_path: Path, shell: Path) -> None:
    env = environment(tmp_path / "conda", shell / "python3")
    system = here(tmp_path, shell, CONDA_PREFIX=str(env), CONDA_DEFAULT_ENV="base")
    assert choose(system, None).why == "conda's base environment, which is active"


@pytest.mark.parametrize("first", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_of_two_environments_the_one_that_the_shell_finds(tmp_path: Path, shell: Path, first: str) -> None:
    folders = {
        name: environment(tmp_path / name, shell / "python3") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")
    }
    variables = {name: str(folder) for name, folder in folders.items()}
    path = f"{folders[first]}/bin:{shell}"
    assert choose(here(tmp_path, shell, **{**variables, "PATH": path}), None).how == f"${first}"


def test_an_environment_that_was_deleted(tmp_path: Path, shell: Path) -> None:
    found = choose(here(tmp_path, shell, VIRTUAL_ENV=str(tmp_path / "gone")), None)
    assert found.path == f"{shell}/python3"
    assert [(lost.variable, lost.problem, lost.moved_to) for lost in found.lost] == [
        ("VIRTUAL_ENV", "gone", ())
    ]


@pytest.mark.parametrize("told", ["activate", "command"])
def test_an_environment_that_was_moved(tmp_path: Path, shell: Path, told: str) -> None:
    old, new = environment(tmp_path / "old", shell / "python3"), tmp_path / "new"
    old.rename(new)
    if told == "command":  # what venv writes from 3.11 on
        (new / "bin/activate").unlink()
        (new / "pyvenv.cfg").write_text(f"home = {shell}\ncommand = {shell}/python3 -m venv {old}\n")
    environment(tmp_path / "another", shell / "python3")
    found = choose(here(tmp_path, shell, VIRTUAL_ENV=str(old)), None)
    assert found.lost[0].moved_to == (str(new),)


def test_an_environment_whose_base_is_gone(tmp_path: Path, shell: Path) -> None:
    base = program(tmp_path / "opt/bin/python3.9")
    env = environment(tmp_path / "env", base)
    base.unlink()
    system = here(tmp_path, shell, VIRTUAL_ENV=str(env))
    lost = choose(system, None).lost[0]
    assert (lost.problem, lost.target, lost.version, lost.successor) == (
        "base-gone",
        str(base),
        "3.9.2",
        None,
    )
    program(shell / "python3.9")
    for asked in (str(env), f"{env}/bin/python"):
        named = choose(system, asked)
        assert named.path == f"{env}/bin/python"
        assert [(one.variable, one.problem) for one in named.lost] == [("--python", "base-gone")]
        assert named.lost[0].successor == f"{shell}/python3.9"


def test_behind_a_shim_the_python_itself_follows_the_one_that_is_gone(tmp_path: Path) -> None:
    shims = program(tmp_path / "pyenv/shims/python3.9").parent
    program(shims / "python3")
    base = program(tmp_path / "opt/bin/python3.9")
    env = environment(tmp_path / "env", base)
    base.unlink()
    real = program(tmp_path / "pyenv/versions/3.9.18/bin/python3.9")
    found = choose(here(tmp_path, shims, VIRTUAL_ENV=str(env)), None)
    assert found.lost[0].successor == str(real)
    assert "the shim" in found.why


def test_an_environment_without_a_python(tmp_path: Path, shell: Path) -> None:
    (tmp_path / "env").mkdir()
    assert choose(here(tmp_path, shell, VIRTUAL_ENV=str(tmp_path / "env")), None).lost[0].problem == "empty"


def test_nothing_to_run_names_what_is_lost(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"VIRTUAL_ENV names .*gone, which is not there"):
        choose(here(tmp_path, tmp_path, VIRTUAL_ENV=str(tmp_path / "gone")), None)


def test_the_environment_that_uvx_makes_for_tfdoctor_is_not_meant(tmp_path: Path, shell: Path) -> None:
    own = program(tmp_path / "cache/uv/archive-v0/AVYZ-bSU0MlVqI4s/bin/python3").parent
    found = choose(here(tmp_path, shell, PATH=f"{own}:{shell}:/usr/bin:/bin"), None)
    assert found.path == f"{shell}/python3"


def test_a_projects_folder_names_the_environment_in_it(tmp_path: Path, shell: Path) -> None:
    environment(tmp_path / "work/.venv", shell / "python3")
    with pytest.raises(UsageError) as told:
        choose(here(tmp_path, shell), ".")
    assert told.value.hint == "An environment is in it: --python ./.venv"


def test_a_link_that_leads_nowhere_is_told_from_nothing(tmp_path: Path, shell: Path) -> None:
    (tmp_path / "python").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"is a link to .*nowhere, which does not exist"):
        choose(here(tmp_path, shell), str(tmp_path / "python"))
    with pytest.raises(UsageError, match="does not exist"):
        choose(here(tmp_path, shell), str(tmp_path / "nothing"))


# ---------------------------------------------------------------- Jupyter


def kernel(folder: Path, *argv: str, **env: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({"argv": list(argv), "env": env, "display_name": "x"}))
    return folder / "kernel.json"


def test_a_kernel_is_the_python_that_it_starts(tmp_path: Path, shell: Path) -> None:
    python = program(tmp_path / "env/bin/python")
    path = kernel(tmp_path / "k", str(python), "-m", "ipykernel_launcher", LD_LIBRARY_PATH="/x")
    for asked in (str(path), str(path.parent)):
        found = choose(here(tmp_path, shell), asked)
        assert found.path == str(python)
        assert "Jupyter kernel" in found.why
        assert "LD_LIBRARY_PATH" in found.why


def test_a_kernel_that_names_no_path_is_of_its_environment(tmp_path: Path, shell: Path) -> None:
    python = program(tmp_path / "env/bin/python")
    path = kernel(tmp_path / "env/share/jupyter/kernels/python3", "python", "-m", "ipykernel_launcher")
    assert choose(here(tmp_path, shell), str(path)).path == str(python)
    lone = kernel(tmp_path / "k", "python3", "-m", "ipykernel_launcher")
    assert choose(here(tmp_path, shell), str(lone)).path == f"{shell}/python3"


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
def test_kernels_that_are_none(tmp_path: Path, shell: Path, text: str, said: str) -> None:
    path = tmp_path / "kernel.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        choose(here(tmp_path, shell), str(path))


# ---------------------------------------------------------------- others


def with_tensorflow(folder: Path, version: str) -> Path:
    python = program(folder / "bin/python")
    site = folder / "lib/python3.11/site-packages"
    (site / "tensorflow").mkdir(parents=True)
    (site / "tensorflow/__init__.py").touch()
    (site / f"tensorflow-{version}.dist-info").mkdir()
    return python


def test_the_others_that_have_a_tensorflow(tmp_path: Path, shell: Path) -> None:
    home = tmp_path / "home"
    beside = with_tensorflow(tmp_path / "work/.venv", "2.20.0")
    other = with_tensorflow(tmp_path / "kernel-env", "2.15.1")
    kernel(home / ".local/share/jupyter/kernels/tf", str(other), "-m", "ipykernel_launcher")
    kernel(home / ".local/share/jupyter/kernels/same", str(other), "-m", "ipykernel_launcher")
    conda = with_tensorflow(tmp_path / "conda", "2.10.0")
    (home / ".conda").mkdir()
    (home / ".conda/environments.txt").write_text(f"{conda.parent.parent}\n{tmp_path}/without\n")
    system = here(tmp_path, shell, HOME=str(home))
    found = find_other_pythons(system, choose(system, None), str(shell.parent))
    assert [(one.path, one.tensorflow) for one in found] == [
        (str(beside), "2.20.0"),
        (str(other), "2.15.1"),
        (str(conda), "2.10.0"),
    ]
    assert found[0].how == ".venv in the working folder"
    assert find_other_pythons(system, choose(system, None), str(beside.parent.parent))[0].path == str(other)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_closed_environment_is_not_gone(tmp_path: Path, shell: Path) -> None:
    env = environment(tmp_path / "closed/env", shell / "python3")
    env.parent.chmod(0)
    try:
        assert choose(here(tmp_path, shell, VIRTUAL_ENV=str(env)), None).lost[0].problem == "closed"
    finally:
        env.parent.chmod(0o755)


def test_the_variables_that_a_kernel_sets(tmp_path: Path) -> None:
    """They are the Python's that it starts: CUDA_VISIBLE_DEVICES=-1 there hides every card."""
    folder = tmp_path / "kernels" / "tf"
    folder.mkdir(parents=True)
    said = {"argv": [sys.executable], "env": {"CUDA_VISIBLE_DEVICES": "-1", "A=B": "x", "N": 3, "Z": "a\0b"}}
    (folder / "kernel.json").write_text(json.dumps(said), encoding="utf-8")
    for named in (folder, folder / "kernel.json"):
        assert live_machine(str(named)).env["CUDA_VISIBLE_DEVICES"] == "-1"
        assert kernel_variables(LiveSystem(), str(named)) == {"CUDA_VISIBLE_DEVICES": "-1"}
    for other in (str(tmp_path), sys.executable, "/nowhere", "x\0y"):
        assert kernel_variables(LiveSystem(), other) == {}


def test_a_folder_with_a_python_of_its_own_is_no_kernel(tmp_path: Path) -> None:
    """What is examined and whose variables hold is decided in one place; a kernel may have any name."""
    said = json.dumps({"argv": [sys.executable], "env": {"CUDA_VISIBLE_DEVICES": "-1"}})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "kernel.json").write_text(said, encoding="utf-8")
    (tmp_path / "mine.json").write_text(said, encoding="utf-8")
    system = LiveSystem(cwd=str(tmp_path))
    assert choose(system, str(tmp_path)).path == f"{tmp_path}/bin/python"
    assert kernel_variables(system, str(tmp_path)) == {}
    assert choose(system, "./mine.json").path == sys.executable
    assert kernel_variables(system, "./mine.json") == {"CUDA_VISIBLE_DEVICES": "-1"}
