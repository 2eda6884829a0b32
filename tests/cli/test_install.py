"""`tfdoctor install` on the command line: real environments, created by uv and pip from an index of tiny wheels."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.installing import (
    HAS_WHEELS,
    PLAN_ARGUMENTS,
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
    wait_until,
)
from cli.planner import Tfdoctor, is_clean, validate
from processes import find_processes_by_word
from render.screens import lines_at
from tfdoctor.cli import install as install_command
from tfdoctor.cli.startup import run
from tfdoctor.compat import Compat
from tfdoctor.core.errors import Error
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.environments.smoke_test import is_intact
from tfdoctor.render.install import render_installation
from tfdoctor.system import RecordedSystem

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


# ---------------------------------------------------------------- created environments


@pytest.mark.few(1)
@with_each_installer
def test_environment_is_created_and_then_unchanged(index: Index, tmp_path: Path, installer: str) -> None:
    args = command_line("--installer", installer, "--package", "pandas", "--into", "a b/env")
    env = index.env()
    first = run_to_end([*args, "--json"], env, tmp_path)
    assert first.returncode == 1, "a TensorFlow of three empty files is not right"
    answer = json.loads(first.stdout)
    validate(answer, "install")
    environment = Path(answer["environment"]["path"])
    assert environment == tmp_path / "a b" / "env"
    assert answer["environment"]["installer"] == installer
    assert answer["environment"]["resumed"] is False
    validate(answer["check"], "check")
    assert start_python(environment).stdout == "whole\n"
    for name in ("tensorflow", "numpy", "nvidia_cublas_cu12", "tool", "pandas"):
        assert list(environment.glob(f"lib/python3*/site-packages/{name}-1.0.dist-info")), name
    sourced = run_to_end(["sh", "-c", ". 'a b/env/bin/activate' && command -v python"], env, tmp_path)
    assert sourced.stdout == f"{environment}/bin/python\n"
    assert not list(environment.glob("lib/python3*/site-packages/*unfinished*"))
    inodes = {path: path.lstat().st_ino for path in environment.rglob("*") if "__pycache__" not in path.parts}
    second = run_to_end(args, env, tmp_path)
    assert "as planned" in second.stdout
    assert "nothing was done" in second.stdout
    assert second.returncode == 1, "as check"
    after = {path: path.lstat().st_ino for path in environment.rglob("*") if "__pycache__" not in path.parts}
    assert after == inodes


@pytest.mark.few(0)
def test_callers_variables_have_no_effect(index: Index, tmp_path: Path) -> None:
    path_variables = {
        name: str(tmp_path / "elsewhere") for name in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "PYTHONHOME")
    }
    env = index.env(
        **path_variables, PIP_USER="1", VIRTUAL_ENV=str(tmp_path), UV_PYTHON="2.7", PIP_DRY_RUN="1"
    )
    args = command_line("--installer", "pip", "--no-deep")
    # PYTHONHOME would keep tfdoctor itself from starting.
    result = run_to_end(args, {name: value for name, value in env.items() if name != "PYTHONHOME"}, tmp_path)
    assert "Made " in result.stdout
    assert not (tmp_path / "elsewhere").exists()


# ---------------------------------------------------------------- refused requests


def test_invalid_folders_are_refused(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "journal" / ".tfdoctor" / "steps").mkdir(parents=True)
    for name, reason in (
        ("file", "is a file"),
        ("full", "not empty"),
        ("venv", "an environment that tfdoctor did not make"),
        ("dangling", "a link to nothing"),
        ("journal", "not empty"),
        ("with:colon", "colon"),
        ("with\nline", "control character"),
        ("/usr", "cannot be an environment's folder"),
        ("/", "cannot be an environment's folder"),
    ):
        before = sorted(tmp_path.rglob("*"))
        result = tfdoctor("install", *PLAN_ARGUMENTS, "--into", str(tmp_path / name))
        assert (result.status, result.out) == (2, ""), name
        assert reason in result.err, name
        assert "Traceback" not in result.err
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--python-version", "threeeleven"), "neither a version nor a path"),
        (("--python-version", "/nowhere/python3"), "is no Python 3"),
        (("--python-version", os.devnull), "is no Python 3"),
        (("--index", "https://me:secret@example.org/simple"), "can be read by everybody"),
        (("--index", "example.org"), "is not the address"),
        (("--package", "tensorflow"), "chosen with --tf"),
        (("--package", "../mine"), "a file of this machine"),
        (("-r", "/nowhere/requirements.txt"), "No such file"),
        (("--tf", "9.9.9"), "no TensorFlow 9.9.9 is known"),
        (("--gpu", "GeForce Nonsense 12"), "no NVIDIA GPU called"),
        (("--anywhere", "--gpu", "8.6"), "--anywhere means every card"),
        (("--driver", "new"), "is not a version"),
    ],
)
def test_invalid_requests_are_refused(
    tfdoctor: Tfdoctor, tmp_path: Path, args: tuple[str, ...], why: str
) -> None:
    into = ("--into", str(tmp_path / "env"))
    result = tfdoctor("install", *into, "--dry-run", *args)
    assert (result.status, result.out) == (2, "")
    assert why in result.err
    assert "secret" not in result.err
    assert not (tmp_path / "env").exists()


def test_refusal_plans_for_the_requested_card(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    machine = ("--gpu", "K80", "--driver", "470")
    result = tfdoctor("install", "-n", "--tf", "2.20", *machine, "--into", str(tmp_path / "env"))
    assert result.status == 1
    assert result.out.startswith("For Tesla K80 (3.7), a driver of branch 470\n")
    assert "Without a GPU" not in result.out
    assert "tfdoctor install --tf 2.14.1 --gpu K80 --driver 470\n" in result.out


def test_release_without_wheels_suggests_a_container(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    arguments = ("--tf", "1.14", "--into", str(tmp_path / "env"))
    result = tfdoctor("install", *arguments)
    assert result.status == 1
    assert "needs CUDA 10.0, whose libraries NVIDIA" in result.out
    assert "tfdoctor build --tf 1.14.0" in result.out
    assert "# without Docker: Apptainer, or CUDA from conda" in result.out
    assert "--recipe official --emit apptainer\n" in result.out
    assert "        tfdoctor matrix 1.14.0\n" in result.out
    assert result.out.count("\n") <= 23, "with the line of the command, one screen"
    json_result = tfdoctor("install", *arguments, "--json")
    assert json_result.status == 1
    validate(json_result.json, "recommend")
    assert "libs-not-installed" in {reason["cause"] for reason in json_result.json["conflict"]["reasons"]}
    assert not (tmp_path / "env").exists()


def test_other_systems_are_refused(
    tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    result = tfdoctor("install", *PLAN_ARGUMENTS, "--into", str(tmp_path / "env"))
    assert (result.status, result.out) == (3, "")
    assert "makes environments on Linux; this is Darwin" in result.err


def test_dry_run_prints_every_command(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    arguments = (
        *PLAN_ARGUMENTS,
        "--python-version",
        sys.executable,
        "--into",
        str(tmp_path / "my env"),
        "--installer",
        "pip",
        "-n",
    )
    brief = tfdoctor("install", *arguments)
    assert (brief.status, brief.err) == (0, "")
    assert "Nothing was changed." in brief.out
    assert lines_at(brief.out, 80) <= 24
    verbose = tfdoctor("install", *arguments, "-v")
    assert (verbose.status, verbose.err) == (0, "")
    assert is_clean(verbose.out)
    assert "Nothing was changed." in verbose.out
    assert " GB" in verbose.out
    lines = re.sub(r" \\\n +", " ", verbose.out).splitlines()
    installs = [line for line in lines if " -m pip install " in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line and f"'{tmp_path}/my env/bin/python'" in line for line in installs)
    for line in installs:
        lock_files = re.findall(r"-r (\S+\.txt)", line)
        assert lock_files
        assert all(Path(name).is_file() for name in lock_files)
    json_result = tfdoctor("install", *arguments, "--json")
    validate(json_result.json, "install")
    assert json_result.json["environment"] is None
    assert json_result.json["check"] is None
    assert not list(tmp_path.iterdir())


def test_required_links_are_printed_as_commands(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    result = tfdoctor(
        *("install", "--tf", "2.21.0", "--anywhere", "-n", "-v"),
        *("--into", str(tmp_path / "env"), "--installer", "pip"),
    )
    assert re.search(r"^    ln -s \S+libcusolver\.so\.11 (?:\\\n +)?\S+$", result.out, re.MULTILINE)


# ---------------------------------------------------------------- missing requirements of the machine


def test_python_without_venv_is_an_error(index: Index, tmp_path: Path) -> None:
    env = index.env(**change_facts(python={"can_create_venv": False}))
    result = run_to_end(command_line("--installer", "pip"), env, tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert "cannot make environments: it lacks ensurepip" in result.stderr
    assert "uv" in result.stderr
    assert not (tmp_path / "tensorflow-env").exists()


@needs_uv
def test_uv_without_python_downloads_is_an_error(index: Index, tmp_path: Path) -> None:
    args = [sys.executable, command_line()[1], "install", *PLAN_ARGUMENTS, "--installer", "uv"]
    result = run_to_end(
        args,
        index.env(**change_facts(python={}), UV_PYTHON_INSTALL_DIR=str(tmp_path), PATH="/usr/bin"),
        tmp_path,
    )
    assert result.returncode == 3
    assert "Traceback" not in result.stderr


def test_full_disk_is_reported_first(index: Index, tmp_path: Path) -> None:
    result = run_to_end(
        command_line("--installer", "pip"), index.env(**change_facts(free=1_000_000_000)), tmp_path
    )
    assert result.returncode == 3
    assert re.search(r"\d+\.\d GB for .*, 1\.0 GB free", result.stderr)
    assert not (tmp_path / "tensorflow-env").exists()


def test_wheel_with_another_hash_is_not_installed(index: Index, tmp_path: Path) -> None:
    lock = index.locks / "tensorflow.txt"
    lock.write_text(re.sub(r"(tensorflow==1.0 --hash=sha256:).{8}", r"\g<1>00000000", lock.read_text()))
    result = run_to_end(command_line("--installer", FAST_INSTALLER), index.env(), tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert "a file is not the one that was locked" in result.stderr
    assert "run the same command again" in result.stderr
    assert UNFINISHED_MESSAGE in start_python(tmp_path / "tensorflow-env").stderr
    installed = list(tmp_path.glob("tensorflow-env/lib/python3*/site-packages/tensorflow*"))
    assert not installed


def test_unreachable_index_is_an_error(index: Index, tmp_path: Path) -> None:
    env = index.env(PIP_RETRIES="1", UV_HTTP_RETRIES="0")
    del env["PIP_NO_INDEX"], env["PIP_FIND_LINKS"]
    args = command_line("--installer", FAST_INSTALLER, "--index", "http://127.0.0.1:9/simple")
    result = run_to_end(args, env, tmp_path)
    assert result.returncode == 3
    assert "the network or the package index cannot be reached" in result.stderr


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("healthy-one-gpu", True),
        ("no-card-no-driver", True),
        ("driver-below-cuda-12", True),
        ("kepler-k40", True),
        ("hidden-by-minus-one", True),
        ("docker-without-utility", True),
        ("module-of-another-cuda", False),
        ("two-other-cudas", False),
        ("jetson-with-a-desktop-wheel", False),
    ],
)
def test_problems_of_the_machine_are_no_failed_install(host: str, right: bool) -> None:
    system = RecordedSystem(Path(__file__).resolve().parents[1] / "hosts" / host)
    compat = Compat.load()
    report = diagnose(run_probes(system, compat), compat)
    assert is_intact(report) is right
    if right and report.verdict.gpu_usable is not True:
        text = render_installation("env", report, is_correct=True, verbose=False)
        assert "What is wrong on this machine: " in text


# ---------------------------------------------------------------- the question before a download


class FakeTerminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("arguments", "reply", "is_asked", "is_started"),
    [
        ((), "n\n", True, False),
        ((), "", True, False),
        ((), "\n", True, True),
        ((), "yes\n", True, True),
        (("-y",), "", False, True),
        (("-q",), "", False, True),
    ],
)
def test_install_shows_the_size_and_asks(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    reply: str,
    is_asked: bool,
    is_started: bool,
) -> None:
    def start(*_: object, **__: object) -> None:
        raise Error("it was started.")

    error_stream = FakeTerminal()
    monkeypatch.setattr(sys, "stdin", FakeTerminal(reply))
    monkeypatch.setattr(sys, "stderr", error_stream)
    monkeypatch.setattr(install_command, "_make_environment", start)
    request = ["install", *PLAN_ARGUMENTS, "--into", str(tmp_path / "env"), *arguments]
    monkeypatch.setattr(sys, "argv", ["tfdoctor", *request])
    with pytest.raises(SystemExit) as end:
        run()
    text = " ".join(error_stream.getvalue().split())
    assert ("Go on? [Y/n]" in text) is is_asked
    assert ("it was started" in text) is is_started
    assert ("Nothing was changed." in text) is (is_asked and not is_started)
    if "-q" not in arguments:
        assert re.search(r"Downloads up to \d\.\d GB\. Disk space in ", text)
    if not is_started:
        assert end.value.code == 1
        assert not (tmp_path / "env").exists()


# ---------------------------------------------------------------- interrupted


@pytest.mark.few(0)
@pytest.mark.parametrize(
    ("installer", "step"),
    [
        pytest.param("uv", "venv", marks=needs_uv),
        pytest.param("uv", "tools.txt", marks=needs_uv),
        pytest.param("uv", "found.txt", marks=needs_uv),
        pytest.param("uv", "locked.txt", marks=needs_uv),
        pytest.param("uv", "requirements.txt", marks=needs_uv),
        ("pip", "report.json"),
        ("pip", "locked.txt"),
    ],
)
def test_killed_install_is_finished_by_the_next(
    index: Index, tmp_path: Path, installer: str, step: str
) -> None:
    args = command_line("--installer", installer, "--package", "pandas")
    killed = run_to_end(args, index.env(**change_facts(kill_after=step)), tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    environment = tmp_path / "tensorflow-env"
    refused = start_python(environment)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert UNFINISHED_MESSAGE in refused.stderr
    isolated = subprocess.run([environment / "bin/python", "-I", "-c", "0"], capture_output=True, check=False)
    assert isolated.returncode == 3
    result = run_to_end(args, index.env(), tmp_path)
    assert ("Finished" if step != "venv" else "Made ") in result.stdout
    assert start_python(environment).stdout == "whole\n"


@pytest.mark.few(0)
@with_each_installer
def test_interrupted_install_is_finished_by_the_next(index: Index, tmp_path: Path, installer: str) -> None:
    """End all started processes, too."""
    slow = make_index(tmp_path / "slow", files=4000)
    args = command_line("--installer", installer)
    process = subprocess.Popen(
        args,
        env=slow.env(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    environment = tmp_path / "tensorflow-env"
    wait_until(process, environment / ".tfdoctor" / "install.json", '"tools"')
    half_done = Path(slow.env()["UV_CACHE_DIR"], ".tmpHalf", "nvidia", "library.so")
    half_done.parent.mkdir(parents=True)
    half_done.write_bytes(bytes(2_000_000))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if process.returncode != 130:  # it finished before the signal
        assert process.returncode == 1
        return
    assert "Interrupted." in errors
    assert ("2 MB of unfinished downloads" in errors) is (installer == "uv")
    assert "run the same command again to finish it, or remove it: rm -r" in errors
    assert UNFINISHED_MESSAGE in start_python(environment).stderr
    assert not find_processes_by_word(str(environment))
    assert "Finished" in run_to_end(args, slow.env(), tmp_path).stdout


@needs_uv
def test_sigterm_leaves_a_marked_environment(index: Index, tmp_path: Path) -> None:
    slow = make_index(tmp_path / "slow", files=4000)
    process = subprocess.Popen(
        command_line(), env=slow.env(), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    environment = tmp_path / "tensorflow-env"
    wait_until(process, environment / ".tfdoctor" / "install.json", '"venv"')
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert "is unfinished" in errors
    assert UNFINISHED_MESSAGE in start_python(environment).stderr


@pytest.mark.few(0)
@needs_uv
def test_two_installs_at_once(index: Index, tmp_path: Path) -> None:
    slow = make_index(tmp_path / "slow", files=2000)
    args = command_line()
    processes = [
        subprocess.Popen(
            args, env=slow.env(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    first_words = {process.communicate(timeout=120)[0].splitlines()[0].split()[0] for process in processes}
    assert first_words == {"Made", str(tmp_path / "tensorflow-env")}, "…is there already"
    assert start_python(tmp_path / "tensorflow-env").stdout == "whole\n"


@needs_uv
def test_environment_of_another_plan_is_refused(index: Index, tmp_path: Path) -> None:
    run_to_end(command_line(), index.env(), tmp_path)
    result = run_to_end(command_line("--package", "pandas"), index.env(), tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "of another plan" in result.stderr
    assert start_python(tmp_path / "tensorflow-env").stdout == "whole\n"
