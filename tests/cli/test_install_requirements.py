"""`tfdoctor install` with the user's requirements: resolved with the lock file before anything large is downloaded."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from cli.installing import (
    HAS_WHEELS,
    UNFINISHED_MESSAGE,
    UV,
    Index,
    change_facts,
    command_line,
    make_index,
    mock_free_space,
    needs_uv,
    run_to_end,
    start_python,
)
from cli.planner import Tfdoctor, validate
from tfdoctor.cli import install as command
from tfdoctor.environments.install import InstallRequest, list_locked_lines
from tfdoctor.environments.resolution import ResolvedPackages

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not HAS_WHEELS, reason="no wheel of TensorFlow for this Python")
FAST_INSTALLER = "uv" if UV is not None else "pip"
"""The faster installer, for tests in which both would do: pip takes four seconds to create an environment."""
with_each_installer = pytest.mark.parametrize("installer", [pytest.param("uv", marks=needs_uv), "pip"])


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return make_index(tmp_path / "index")


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    mock_free_space(monkeypatch)
    return Tfdoctor(monkeypatch, capsys)


def test_conflict_with_tensorflow_is_an_error(index: Index, tmp_path: Path) -> None:
    result = run_to_end(
        command_line("--installer", FAST_INSTALLER, "--package", "wants-old-numpy"), index.env(), tmp_path
    )
    assert result.returncode == 3
    assert "Your requirements and TensorFlow 1.0 cannot be installed together: " in result.stderr
    assert "numpy<1" in result.stderr
    assert "TensorFlow 2.20.0 and what it needs" not in result.stderr, "nothing large was fetched"
    assert "run the same command again" not in result.stderr
    assert not (tmp_path / "tensorflow-env").exists()


@pytest.mark.few(1)
@with_each_installer
def test_requirements_change_the_locked_versions(index: Index, tmp_path: Path, installer: str) -> None:
    args = command_line("--installer", installer, "--package", "wants-new-numpy", "--package", "pandas")
    dry_run = run_to_end([*args, "-n", "--json"], index.env(), tmp_path)
    assert dry_run.returncode == 0, dry_run.stderr
    planned = json.loads(dry_run.stdout)
    validate(planned, "install")
    assert planned["resolution"] == {
        "tried": True,
        "why": None,
        "changes": [
            {"name": "numpy", "locked": "1.0", "chosen": "1.1"},
            {"name": "pandas", "locked": None, "chosen": "1.0"},
            {"name": "wants-new-numpy", "locked": None, "chosen": "1.0"},
        ],
    }
    assert planned["room"][0]["needed_bytes"] > 0
    assert not (tmp_path / "tensorflow-env").exists()
    plan_text = run_to_end([*args, "-n"], index.env(), tmp_path).stdout
    assert "numpy 1.1 instead of 1.0, for your requirements." in plan_text
    result = run_to_end([*args, "--json"], index.env(), tmp_path)
    answer = json.loads(result.stdout)
    validate(answer, "install")
    assert answer["resolution"] == planned["resolution"]
    assert answer["commands"] == planned["commands"]
    site = next((tmp_path / "tensorflow-env").glob("lib/python3*/site-packages"))
    names = {path.name for path in site.glob("*.dist-info")}
    assert {"numpy-1.1.dist-info", "pandas-1.0.dist-info", "tensorflow-1.0.dist-info"} <= names
    assert "numpy-1.0.dist-info" not in names
    second = run_to_end([*args, "--json"], index.env(), tmp_path)
    assert json.loads(second.stdout)["resolution"] == planned["resolution"]


@pytest.mark.few(0)
@with_each_installer
def test_dry_run_reports_conflicts(index: Index, tmp_path: Path, installer: str) -> None:
    args = command_line("--installer", installer, "-n", "--package")
    conflict = run_to_end([*args, "wants-old-numpy"], index.env(), tmp_path)
    assert (conflict.returncode, conflict.stdout) == (3, "")
    assert "cannot be installed together: " in conflict.stderr
    assert "numpy<1" in conflict.stderr
    missing = run_to_end([*args, "no-such-package"], index.env(), tmp_path)
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "no-such-package" in missing.stderr
    assert not (tmp_path / "tensorflow-env").exists()


@pytest.mark.few(0)
def test_second_cuda_is_refused(index: Index, tmp_path: Path) -> None:
    result = run_to_end(
        command_line("--installer", FAST_INSTALLER, "--package", "wants-other-cudnn"), index.env(), tmp_path
    )
    assert (result.returncode, result.stdout) == (3, "")
    assert (
        "nvidia-cublas-cu13 1.0 comes with them, and overwrites the files of nvidia-cublas-cu12"
        in result.stderr
    )
    assert not (tmp_path / "tensorflow-env").exists()


@pytest.mark.few(0)
@with_each_installer
def test_dry_run_without_network_is_inconclusive(index: Index, tmp_path: Path, installer: str) -> None:
    env = index.env(PIP_RETRIES="0", UV_HTTP_RETRIES="0")
    del env["PIP_NO_INDEX"], env["PIP_FIND_LINKS"]
    args = command_line("--installer", installer, "--index", "http://127.0.0.1:9/simple", "-n")
    result = run_to_end([*args, "--package", "pandas"], env, tmp_path)
    assert result.returncode == 3
    assert "Could not check whether your requirements" in result.stdout
    assert "the network or the package index cannot be reached" in " ".join(result.stdout.split())
    answer = json.loads(run_to_end([*args, "--package", "pandas", "--json"], env, tmp_path).stdout)
    validate(answer, "install")
    assert answer["resolution"]["tried"] is False
    assert "network" in answer["resolution"]["why"]
    plan_alone = run_to_end(args, env, tmp_path)
    assert plan_alone.returncode == 0, "a plan alone needs no network"


@pytest.mark.few(0)
def test_hashes_of_the_user_are_verified(index: Index, tmp_path: Path) -> None:
    line = f"pandas==1.0 --hash=sha256:{'0' * 64}\n"
    (tmp_path / "r.txt").write_text(line)
    result = run_to_end(command_line("--installer", FAST_INSTALLER, "-r", "r.txt"), index.env(), tmp_path)
    assert result.returncode == 3
    assert "a file is not the one that was locked" in result.stderr
    assert UNFINISHED_MESSAGE in start_python(tmp_path / "tensorflow-env").stderr


@pytest.mark.few(0)
def test_conflict_after_an_unfinished_install(index: Index, tmp_path: Path) -> None:
    run_to_end(command_line(), index.env(**change_facts(kill_after="tools.txt")), tmp_path)
    assert (tmp_path / "tensorflow-env").exists()
    result = run_to_end(command_line("--package", "wants-old-numpy"), index.env(), tmp_path)
    assert result.returncode == 3
    finished = run_to_end(command_line("--package", "pandas"), index.env(), tmp_path)
    assert "Made " in finished.stdout


def test_disk_space_is_checked_first(index: Index, tmp_path: Path) -> None:
    args = command_line("--installer", FAST_INSTALLER, "-n")
    result = run_to_end(args, index.env(), tmp_path)
    text = " ".join(result.stdout.split())
    assert re.search(r" about [\d.]+ GB on disk ", text)
    assert re.search(
        r" Downloads up to [\d.]+ GB\. Disk space in /\S+: .* GB for .*, 1000\.0 GB free\. ", text
    )


# ---------------------------------------------------------------- TensorFlow and Python of requirement files


def run_dry_run(tfdoctor: Tfdoctor, tmp_path: Path, *args: str) -> Any:
    """Return the result of a dry run of `install` with these arguments."""
    options = ("--anywhere", "-n", "--json", "--into", str(tmp_path / "env"), "--installer", FAST_INSTALLER)
    return tfdoctor("install", *options, *args)


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the resolution of the requirements, which other tests cover."""

    def keep_locked(making: InstallRequest) -> ResolvedPackages:
        return ResolvedPackages(list_locked_lines(making.lock_files.tensorflow))

    monkeypatch.setattr(command, "resolve_requirements", keep_locked)


@pytest.mark.few(1)
@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("r.txt", "-r more.txt\n", "2.14.1"),
        ("pyproject.toml", "[project]\ndependencies = ['tensorflow~=2.15.0']\n", "2.15.1"),
        ("environment.yml", "dependencies:\n  - tensorflow=2.15\n", "2.15.1"),
        ("poetry.lock", "[[package]]\nname='tensorflow'\nversion='2.13.1'\n", "2.13.1"),
        ("uv.lock", "[[package]]\nname='tensorflow'\nversion='2.13.1'\n", "2.13.1"),
    ],
)
def test_tensorflow_of_a_file_is_selected(
    tfdoctor: Tfdoctor, tmp_path: Path, name: str, text: str, version: str
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "more.txt").write_text("tensorflow==2.14.*\n")
    result = run_dry_run(tfdoctor, tmp_path, "-r", str(tmp_path / name))
    assert result.status == 0, result.err
    validate(result.json, "install")
    assert result.json["plan"]["tensorflow"] == version
    contradiction = run_dry_run(tfdoctor, tmp_path, "-r", str(tmp_path / name), "--tf", "2.20")
    assert contradiction.status == 2
    assert re.search(
        r"--tf 2\.20 and .*\(tensorflow.*\) contradict each other", contradiction.json["error"]["message"]
    )
