"""`tfdoctor install` with requirements of the user's own: resolved beside the lock, before anything large comes."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cli.installing import (
    HAS_WHEELS,
    SENTENCE,
    UV,
    Index,
    change_facts,
    command_line,
    empty_disks,
    make_index,
    needs_uv,
    run_to_end,
    start,
)
from cli.planner import Tfdoctor, validate
from tfdoctor.cli import install as command
from tfdoctor.environment.install import Making, list_locked_lines
from tfdoctor.environment.resolution import PipResolution

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not HAS_WHEELS, reason="no wheel of TensorFlow for this Python")
ONE = "uv" if UV is not None else "pip"
"""Where either would do: pip takes four seconds to make an environment."""
with_each = pytest.mark.parametrize("installer", [pytest.param("uv", marks=needs_uv), "pip"])


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return make_index(tmp_path / "index")


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    empty_disks(monkeypatch)
    return Tfdoctor(monkeypatch, capsys)


def test_requirements_that_do_not_go_with_tensorflow(index: Index, tmp_path: Path) -> None:
    done = run_to_end(command_line("--installer", ONE, "--package", "wants-old-numpy"), index.env(), tmp_path)
    assert done.returncode == 3
    assert "Your requirements and TensorFlow 1.0 cannot be installed together: " in done.stderr
    assert "numpy<1" in done.stderr
    assert "TensorFlow 2.20.0 and what it needs" not in done.stderr, "nothing large was fetched"
    assert "run the same command again" not in done.stderr
    assert not (tmp_path / "tensorflow-env").exists()


@pytest.mark.few(1)
@with_each
def test_requirements_that_want_another_version_are_resolved_anew(
    index: Index, tmp_path: Path, installer: str
) -> None:
    args = command_line("--installer", installer, "--package", "wants-new-numpy", "--package", "pandas")
    tried = run_to_end([*args, "-n", "--json"], index.env(), tmp_path)
    assert tried.returncode == 0, tried.stderr
    promised = json.loads(tried.stdout)
    validate(promised, "install")
    assert promised["resolution"] == {
        "tried": True,
        "why": None,
        "changes": [
            {"name": "numpy", "locked": "1.0", "chosen": "1.1"},
            {"name": "pandas", "locked": None, "chosen": "1.0"},
            {"name": "wants-new-numpy", "locked": None, "chosen": "1.0"},
        ],
    }
    assert promised["room"][0]["needed_bytes"] > 0
    assert not (tmp_path / "tensorflow-env").exists()
    shown = run_to_end([*args, "-n"], index.env(), tmp_path).stdout
    assert "numpy 1.1 instead of 1.0, for your requirements." in shown
    done = run_to_end([*args, "--json"], index.env(), tmp_path)
    answer = json.loads(done.stdout)
    validate(answer, "install")
    assert answer["resolution"] == promised["resolution"]
    assert answer["commands"] == promised["commands"]
    site = next((tmp_path / "tensorflow-env").glob("lib/python3*/site-packages"))
    names = {path.name for path in site.glob("*.dist-info")}
    assert {"numpy-1.1.dist-info", "pandas-1.0.dist-info", "tensorflow-1.0.dist-info"} <= names
    assert "numpy-1.0.dist-info" not in names
    again = run_to_end([*args, "--json"], index.env(), tmp_path)
    assert json.loads(again.stdout)["resolution"] == promised["resolution"]


@pytest.mark.few(1)
@with_each
def test_a_dry_run_says_what_cannot_be_had(index: Index, tmp_path: Path, installer: str) -> None:
    args = command_line("--installer", installer, "-n", "--package")
    done = run_to_end([*args, "wants-old-numpy"], index.env(), tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot be installed together: " in done.stderr
    assert "numpy<1" in done.stderr
    nowhere = run_to_end([*args, "no-such-package"], index.env(), tmp_path)
    assert (nowhere.returncode, nowhere.stdout) == (3, "")
    assert "no-such-package" in nowhere.stderr
    assert not (tmp_path / "tensorflow-env").exists()


@pytest.mark.few(0)
def test_what_would_write_over_the_plans_cuda_is_refused(index: Index, tmp_path: Path) -> None:
    done = run_to_end(
        command_line("--installer", ONE, "--package", "wants-other-cudnn"), index.env(), tmp_path
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        "nvidia-cublas-cu13 1.0 comes with them, and overwrites the files of nvidia-cublas-cu12"
        in done.stderr
    )
    assert not (tmp_path / "tensorflow-env").exists()


@pytest.mark.few(1)
@with_each
def test_a_dry_run_without_network_claims_nothing(index: Index, tmp_path: Path, installer: str) -> None:
    env = index.env(PIP_RETRIES="0", UV_HTTP_RETRIES="0")
    del env["PIP_NO_INDEX"], env["PIP_FIND_LINKS"]
    args = command_line("--installer", installer, "--index", "http://127.0.0.1:9/simple", "-n")
    done = run_to_end([*args, "--package", "pandas"], env, tmp_path)
    assert done.returncode == 3
    assert "Could not check whether your requirements" in done.stdout
    assert "the network or the package index cannot be reached" in " ".join(done.stdout.split())
    told = json.loads(run_to_end([*args, "--package", "pandas", "--json"], env, tmp_path).stdout)
    validate(told, "install")
    assert told["resolution"]["tried"] is False
    assert "network" in told["resolution"]["why"]
    without = run_to_end(args, env, tmp_path)
    assert without.returncode == 0, "a plan alone needs no network"


@pytest.mark.few(0)
def test_hashes_of_the_users_own_are_kept(index: Index, tmp_path: Path) -> None:
    wrong = f"pandas==1.0 --hash=sha256:{'0' * 64}\n"
    (tmp_path / "r.txt").write_text(wrong)
    done = run_to_end(command_line("--installer", ONE, "-r", "r.txt"), index.env(), tmp_path)
    assert done.returncode == 3
    assert "a file is not the one that was locked" in done.stderr
    assert SENTENCE in start(tmp_path / "tensorflow-env").stderr


@pytest.mark.few(0)
def test_a_conflict_after_an_unfinished_run_of_another_plan(index: Index, tmp_path: Path) -> None:
    run_to_end(command_line(), index.env(**change_facts(kill_after="tools.txt")), tmp_path)
    assert (tmp_path / "tensorflow-env").exists()
    done = run_to_end(command_line("--package", "wants-old-numpy"), index.env(), tmp_path)
    assert done.returncode == 3
    made = run_to_end(command_line("--package", "pandas"), index.env(), tmp_path)
    assert "Made " in made.stdout


def test_room_of_each_disk_is_shown_before_anything_is_fetched(index: Index, tmp_path: Path) -> None:
    args = command_line("--installer", ONE, "-n")
    shown = run_to_end(args, index.env(), tmp_path)
    said = " ".join(shown.stdout.split())
    assert re.search(r" Room: .*the environment.*\d GB needed, 1000\.0 GB free\. ", said)
    short = run_to_end(args, index.env(**change_facts(free=1_000_000_000)), tmp_path)
    assert (short.returncode, short.stdout) == (3, "")
    assert re.search(r"\d+\.\d GB needed, 1\.0 GB free", short.stderr)


# ---------------------------------------------------------------- what the files of -r have a say in


def plan_with(tfdoctor: Tfdoctor, tmp_path: Path, *args: str) -> Any:
    """The dry run of a wish; without an index, so that nothing is asked of one."""
    into = ("--anywhere", "-n", "--json", "--into", str(tmp_path / "env"), "--installer", ONE)
    return tfdoctor("install", *into, *args)


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it can be had is asked elsewhere."""

    def as_locked(making: Making) -> PipResolution:
        return PipResolution(list_locked_lines(making.locks.tensorflow))

    monkeypatch.setattr(command, "try_requirements", as_locked)


@pytest.mark.few(1)
@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("r.txt", "tensorflow==2.15.*\nnumpy<2\n", "2.15.1"),
        ("r.txt", "tensorflow[and-cuda]>=2.14,<2.16 ; sys_platform == 'linux'\n", "2.15.1"),
        ("r.txt", "tensorflow-gpu==2.12.0\n", "2.12.0"),
        ("r.txt", "-r more.txt\n", "2.14.1"),
        ("r.txt", "tensorflow==2.12.*; python_version<'3'\ntensorflow==2.13.*; python_version>'3'", "2.13.1"),
        ("pyproject.toml", "[project]\ndependencies = ['tensorflow~=2.15.0']\n", "2.15.1"),
        ("environment.yml", "dependencies:\n  - tensorflow=2.15\n", "2.15.1"),
        ("poetry.lock", "[[package]]\nname='tensorflow'\nversion='2.13.1'\n", "2.13.1"),
        ("uv.lock", "[[package]]\nname='tensorflow'\nversion='2.13.1'\n", "2.13.1"),
    ],
)
def test_a_tensorflow_in_a_file_is_chosen(
    tfdoctor: Tfdoctor, tmp_path: Path, name: str, text: str, version: str
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "more.txt").write_text("tensorflow==2.14.*\n")
    told = plan_with(tfdoctor, tmp_path, "-r", str(tmp_path / name))
    assert told.status == 0, told.err
    validate(told.json, "install")
    assert told.json["plan"]["tensorflow"] == version
    same = plan_with(tfdoctor, tmp_path, "-r", str(tmp_path / name), "--tf", version.rpartition(".")[0])
    assert same.json["plan"]["tensorflow"] == version
    other = plan_with(tfdoctor, tmp_path, "-r", str(tmp_path / name), "--tf", "2.20")
    assert other.status == 2
    assert re.search(
        r"--tf 2\.20 and .*\(tensorflow.*\) contradict each other", other.json["error"]["message"]
    )


@pytest.mark.usefixtures("untried")
def test_the_python_of_a_file_counts(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    path = tmp_path / "environment.yml"
    path.write_text(f"dependencies:\n  - python={minor}\n  - cudatoolkit=11.8\n  - ffmpeg\n")
    told = plan_with(tfdoctor, tmp_path, "-r", str(path))
    assert told.json["plan"]["python"] == minor
    other = plan_with(tfdoctor, tmp_path, "-r", str(path), "--python", "3.8")
    assert other.status == 2
    assert "--python 3.8 and " in other.json["error"]["message"]
    path.write_text("dependencies:\n  - python=3.30\n")
    none = plan_with(tfdoctor, tmp_path, "-r", str(path))
    assert none.status == 2
    assert "no wheels for this Python" in none.json["error"]["message"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tensorflow==2.99\n", "no known TensorFlow"),
        ("tensorflow==2.15.*\ntensorflow==2.16.*\n", "no known TensorFlow"),
        ("tf-nightly\n", "not one of the TensorFlow packages"),
        ("tensorflow==2.15.*; python_version > '4'\n", "want no TensorFlow"),
        ("-r missing.txt\n", "No such file"),
    ],
)
def test_files_that_cannot_be_followed(tfdoctor: Tfdoctor, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r.txt").write_text(text)
    told = plan_with(tfdoctor, tmp_path, "-r", str(tmp_path / "r.txt"))
    assert told.status == 2
    assert said in told.json["error"]["message"]
