"""The scripts that need only a shell: their messages if something is missing."""

from __future__ import annotations

import collections
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfdoctor.extensions.fleet.nodes.zipapp import STARTER

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH or sys.platform == "win32", reason="no bash")


@pytest.mark.parametrize("name", ["scripts/tfdoctor", "scripts/test", "scripts/environment.bash", ".ci/run"])
def test_shell_accepts_the_syntax(name: str) -> None:
    done = subprocess.run([BASH, "-n", ROOT / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "name", ["scripts/tfdoctor", "scripts/test", "scripts/bench/check", "scripts/bench/logs", ".ci/run"]
)
def test_script_is_executable(name: str) -> None:
    path = ROOT / name
    assert path.stat().st_mode & 0o111
    assert path.read_text(encoding="utf-8").startswith(("#!/bin/bash\n", "#!/usr/bin/python3\n"))


def test_no_script_is_found_on_path() -> None:
    """`#!/usr/bin/env NAME` runs a NAME of the working folder if PATH has a relative or an empty entry."""
    files = [path for folder in ("scripts", ".ci") for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert [path.name for path in files if path.read_bytes().startswith(b"#!/usr/bin/env")] == []


@pytest.mark.few(1)
@pytest.mark.parametrize("program", ["scripts/tfdoctor", "scripts/test", "tfdoctor.pyz"])
def test_programs_of_the_working_folder_are_not_run(tmp_path: Path, program: str) -> None:
    checkout, work, marker = tmp_path / "checkout", tmp_path / "work", tmp_path / "marker"
    checkout.mkdir()
    copy_scripts(checkout)
    archive = checkout / "tfdoctor.pyz"
    archive.write_text(STARTER + "PK", encoding="ascii")
    archive.chmod(0o755)
    names = (
        "bash",
        "sh",
        "env",
        "dirname",
        "readlink",
        "cksum",
        "mkdir",
        "rm",
        "flock",
        "python3",
        "python3.14",
    )
    for folder in (work, work / "bin"):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(f"#!/bin/sh\necho {name} >>{marker}\nexit 1\n", encoding="utf-8")
            (folder / name).chmod(0o755)
    for name in ("venv", "pip", "ensurepip"):
        (work / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write('{name}')\n", encoding="utf-8")
    # an index that does not answer: the environment is not made, but all its steps up to pip run
    environment = {
        "PATH": ":.:bin:/usr/bin::/bin:",
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_INDEX_URL": "http://127.0.0.1:9",
    }
    subprocess.run(
        [checkout / program, "--version"],
        env=environment,
        cwd=work,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert not marker.exists(), marker.read_text(encoding="utf-8")


def copy_scripts(folder: Path) -> Path:
    (folder / "scripts").mkdir()
    for name in ("tfdoctor", "test", "environment.bash"):
        shutil.copy(ROOT / "scripts" / name, folder / "scripts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def make_path(folder: Path, python: str | None) -> str:
    """Return a PATH with the few tools that the scripts use and, as python3, a shell script."""
    folder.mkdir()
    for tool in ("dirname", "readlink", "cat", "rm", "mv"):
        program = shutil.which(tool)
        assert program is not None
        (folder / tool).symlink_to(program)
    (folder / "apt-get").write_text("#!/bin/sh\n", encoding="ascii")
    (folder / "apt-get").chmod(0o755)
    if python is not None:
        (folder / "python3").write_text(f"#!/bin/sh\n{python}\n", encoding="utf-8")
        (folder / "python3").chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("script", ["tfdoctor", "test"])
@pytest.mark.parametrize(
    ("python", "message"),
    [
        (None, "tfdoctor needs Python 3.10 or newer on PATH, and there is none."),
        ("exit 1", "tfdoctor needs Python 3.10 or newer on PATH, and there is none."),
        ('case "$*" in *ensurepip*) exit 1;; esac', "    sudo apt-get install python3-venv"),
    ],
    ids=["no Python", "too old a Python", "no ensurepip"],
)
def test_missing_python_is_reported(tmp_path: Path, script: str, python: str | None, message: str) -> None:
    checkout = copy_scripts(tmp_path)
    done = subprocess.run(
        [checkout / "scripts" / script, "check"],
        env={"PATH": make_path(tmp_path / "bin", python)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert message in done.stderr.splitlines()
    assert not (checkout / ".venv-run").exists()


def test_tool_keeps_the_callers_environment(tmp_path: Path) -> None:
    """Start scripts/tfdoctor with a fake Python that prints its arguments and environment."""
    checkout = copy_scripts(tmp_path)
    bin_folder = checkout / ".venv-run" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").write_text('#!/bin/sh\npwd -P\nenv\nfor a in "$@"; do echo "arg=$a"; done\n')
    (bin_folder / "python").chmod(0o755)
    state = f"{checkout}\n{(ROOT / 'pyproject.toml').read_text(encoding='utf-8')}"
    (bin_folder.parent / "complete").write_text(state, encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    caller_environment = {
        "PATH": "/usr/bin:/bin",
        "LD_LIBRARY_PATH": "/a:/b",
        "VIRTUAL_ENV": "/v",
        "PYTHONPATH": "/p",
    }
    done = subprocess.run(
        [checkout / "scripts" / "tfdoctor", "check", "--python", "a b"],
        env=caller_environment,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    called = f"TFDOCTOR_CALLED={checkout}/scripts/tfdoctor"  # tfdoctor removes it at start
    lines.remove(called)
    assert lines[0] == str(work.resolve())
    arguments = [line for line in lines if line.startswith("arg=")]
    assert arguments == ["arg=-I", f"arg={bin_folder}/tfdoctor", "arg=check", "arg=--python", "arg=a b"]
    environment = dict(line.split("=", 1) for line in lines[1:] if not line.startswith("arg="))
    assert {name: environment.get(name) for name in caller_environment} == caller_environment
    assert set(environment) - set(caller_environment) <= {"PWD", "OLDPWD", "SHLVL", "_"}
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "variables", "given"),
    [
        ((), {}, ["--quick"]),
        ((), {"TFDOCTOR_ALL": "1"}, ["--without-lab"]),
        (("tests/cli", "-k", "a b"), {}, ["tests/cli", "-k", "a b"]),
        (("--only", "tests/cli"), {"TFDOCTOR_ALL": "1"}, ["tests/cli"]),
    ],
)
def test_arguments_choose_the_tests(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], given: list[str]
) -> None:
    """Run scripts/test with and without arguments.

    A plain run is the quick one or has every case, in parallel. Named tests are run as they are.
    """
    checkout = copy_scripts(tmp_path)
    bin_folder = checkout / ".venv-test" / "bin"
    bin_folder.mkdir(parents=True)
    for name in ("python", "ruff", "mypy", "lint-imports", "zizmor"):
        (bin_folder / name).write_text('#!/bin/sh\nenv\nfor a in "$@"; do echo "arg=$a"; done\n')
        (bin_folder / name).chmod(0o755)
    state = f"{checkout}\n{(ROOT / 'pyproject.toml').read_text(encoding='utf-8')}"
    (bin_folder.parent / "complete").write_text(state, encoding="utf-8")
    done = subprocess.run(
        [checkout / "scripts" / "test", *words],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": "/p",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert not [line for line in lines if line.startswith("PYTHON")]
    arguments = [line.removeprefix("arg=") for line in lines if line.startswith("arg=")]
    workers = min(len(os.sched_getaffinity(0)) + 1, 8)
    side_by_side = [] if words else ["--numprocesses", str(workers), "--dist", "worksteal"]
    assert arguments == ["-m", "pytest", *side_by_side, *given]
    assert done.stderr.count("ok ") == (0 if "--only" in words else 5)


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dependency_group_includes_groups() -> None:
    groups = {"a": ["x>=1", "y"], "b": [{"include-group": "a"}, "y", "z"]}
    assert load_script("dependency_group").requirements(groups, "b") == ["x>=1", "y", "z"]
    with pytest.raises(KeyError):
        load_script("dependency_group").requirements(groups, "c")


def make_environment() -> dict[str, str]:
    """Return the environment of this process without the pytest options of the caller."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}


def collect_cases(*arguments: str) -> tuple[list[str], str]:
    """Return the cases that pytest would run, and its last line."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=make_environment()
    )
    lines = done.stdout.splitlines()
    return [line for line in lines if "::" in line], lines[-1]


def count_cases(cases: list[str]) -> dict[str, int]:
    return dict(collections.Counter(case.partition("[")[0] for case in cases))


def test_cases_option_limits_each_test() -> None:
    """CI uses --cases to run the tests on the other Pythons."""
    file = "tests/environments/test_requirements.py"
    (all_cases, _), (selected, _) = collect_cases(file), collect_cases("--cases", "2", file)
    assert max(count_cases(all_cases).values()) > 2
    assert {name: min(2, count) for name, count in count_cases(all_cases).items()} == count_cases(selected)
    assert set(selected) < set(all_cases)


@pytest.mark.few(0)
def test_quick_run_reports_what_it_leaves_out() -> None:
    """`scripts/test` uses --quick."""
    files = ("tests/cli/test_explain.py", "tests/test_agreement.py")
    (all_cases, _), (quick, last) = collect_cases(*files), collect_cases("--quick", *files)
    in_lab = [case for case in all_cases if case.startswith("tests/test_agreement.py")]
    assert count_cases(quick).keys() == count_cases(all_cases).keys() - count_cases(in_lab).keys()
    slow_count = len(all_cases) - len(in_lab) - len(quick)
    assert slow_count > 0
    assert last == (
        f"left out: {slow_count} further cases of slow tests (TFDOCTOR_ALL=1); "
        f"{len(in_lab)} with real TensorFlow or an engine (TFDOCTOR_LAB=1); the wheel, other Pythons, fuzzing (.ci/run)"
    )
    without, last_line = collect_cases("--without-lab", *files)
    assert without == [case for case in all_cases if case not in in_lab]
    assert last_line == last.replace(f"{slow_count} further cases of slow tests (TFDOCTOR_ALL=1); ", "")


@pytest.mark.few(0)
def test_parallel_run_reports_the_same_counts() -> None:
    """The workers choose the cases and another process prints the counts."""
    arguments = ("--quick", "-k", "wider", "tests/cli/test_explain.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--numprocesses", "2", *arguments],
        cwd=ROOT,
        env=make_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    last = done.stdout.splitlines()[-1]
    assert "further cases of slow tests" in last
    assert last == collect_cases(*arguments)[1]
