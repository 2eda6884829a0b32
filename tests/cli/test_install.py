"""`tfdoctor install` at the command line: real environments, made by uv and by pip from an index of tiny wheels."""

from __future__ import annotations

import dataclasses
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
    PLANNED,
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
    wait_until,
)
from cli.planner import Tfdoctor, is_clean, validate
from processes import processes_with
from render.screens import lines_at
from tfdoctor.compat import Compat
from tfdoctor.environment import selection
from tfdoctor.environment.interpreters import Interpreter
from tfdoctor.environment.smoke_test import is_right
from tfdoctor.examine.collect import survey
from tfdoctor.probes import machine as machine_probe
from tfdoctor.render.install import render_installed
from tfdoctor.report.diagnose import diagnose
from tfdoctor.system import LiveSystem, RecordedSystem

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


# ---------------------------------------------------------------- it is made


@pytest.mark.few(1)
@with_each
def test_an_environment_is_made_told_and_left_alone_afterwards(
    index: Index, tmp_path: Path, installer: str
) -> None:
    args = command_line("--installer", installer, "--package", "pandas", "--into", "a b/env")
    env = index.env()
    first = run_to_end([*args, "--json"], env, tmp_path)
    assert first.returncode == 1, "a TensorFlow of three empty files is not right"
    answer = json.loads(first.stdout)
    validate(answer, "install")
    made = Path(answer["environment"]["path"])
    assert made == tmp_path / "a b" / "env"
    assert answer["environment"]["installer"] == installer
    assert answer["environment"]["resumed"] is False
    validate(answer["check"], "check")
    assert start(made).stdout == "whole\n"
    for name in ("tensorflow", "numpy", "nvidia_cublas_cu12", "tool", "pandas"):
        assert list(made.glob(f"lib/python3*/site-packages/{name}-1.0.dist-info")), name
    sourced = run_to_end(["sh", "-c", ". 'a b/env/bin/activate' && command -v python"], env, tmp_path)
    assert sourced.stdout == f"{made}/bin/python\n"
    assert not list(made.glob("lib/python3*/site-packages/*unfinished*"))
    inodes = {path: path.lstat().st_ino for path in made.rglob("*") if "__pycache__" not in path.parts}
    again = run_to_end(args, env, tmp_path)
    assert "as planned" in again.stdout
    assert "nothing was done" in again.stdout
    assert again.returncode == 1, "as check"
    after = {path: path.lstat().st_ino for path in made.rglob("*") if "__pycache__" not in path.parts}
    assert after == inodes


@pytest.mark.few(0)
def test_the_callers_variables_do_not_lead_astray(index: Index, tmp_path: Path) -> None:
    elsewhere = {
        name: str(tmp_path / "elsewhere") for name in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "PYTHONHOME")
    }
    env = index.env(**elsewhere, PIP_USER="1", VIRTUAL_ENV=str(tmp_path), UV_PYTHON="2.7", PIP_DRY_RUN="1")
    args = command_line("--installer", "pip", "--no-deep")
    # PYTHONHOME would keep tfdoctor itself from starting.
    done = run_to_end(args, {name: text for name, text in env.items() if name != "PYTHONHOME"}, tmp_path)
    assert "Made " in done.stdout
    assert not (tmp_path / "elsewhere").exists()


# ---------------------------------------------------------------- it is not made


def test_folders_that_are_refused(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "journal" / ".tfdoctor" / "steps").mkdir(parents=True)
    for name, why in (
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
        done = tfdoctor("install", *PLANNED, "--into", str(tmp_path / name))
        assert (done.status, done.out) == (2, ""), name
        assert why in done.err, name
        assert "Traceback" not in done.err
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--python", "threeeleven"), "neither a version nor a path"),
        (("--python", "/nowhere/python3"), "is no Python 3"),
        (("--python", os.devnull), "is no Python 3"),
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
def test_wrong_requests(tfdoctor: Tfdoctor, tmp_path: Path, args: tuple[str, ...], why: str) -> None:
    into = ("--into", str(tmp_path / "env"))
    done = tfdoctor("install", *into, "--dry-run", *args)
    assert (done.status, done.out) == (2, "")
    assert why in done.err
    assert "secret" not in done.err
    assert not (tmp_path / "env").exists()


def test_what_no_wheel_has_is_told_with_the_container_as_the_way_out(
    tfdoctor: Tfdoctor, tmp_path: Path
) -> None:
    wish = ("--tf", "1.15", "--python", "3.7", "--into", str(tmp_path / "env"))
    done = tfdoctor("install", *wish)
    assert done.status == 1
    assert "CUDA 10.0, which no NVIDIA wheel" in done.out
    assert "tfdoctor build --tf 1.15.5" in done.out
    told = tfdoctor("install", *wish, "--json")
    assert told.status == 1
    validate(told.json, "recommend")
    assert "libs-not-installed" in {reason["cause"] for reason in told.json["conflict"]["reasons"]}
    assert not (tmp_path / "env").exists()


def test_another_system(tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    done = tfdoctor("install", *PLANNED, "--into", str(tmp_path / "env"))
    assert (done.status, done.out) == (3, "")
    assert "makes environments on Linux; this is Darwin" in done.err


def test_dry_run_changes_nothing_and_names_every_command(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    wish = (
        *PLANNED,
        "--python",
        sys.executable,
        "--into",
        str(tmp_path / "my env"),
        "--installer",
        "pip",
        "-n",
    )
    short = tfdoctor("install", *wish)
    assert (short.status, short.err) == (0, "")
    assert "Nothing was changed." in short.out
    assert lines_at(short.out, 80) <= 24
    done = tfdoctor("install", *wish, "-v")
    assert (done.status, done.err) == (0, "")
    assert is_clean(done.out)
    assert "Nothing was changed." in done.out
    assert " GB" in done.out
    lines = re.sub(r" \\\n +", " ", done.out).splitlines()
    installs = [line for line in lines if " -m pip install " in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line and f"'{tmp_path}/my env/bin/python'" in line for line in installs)
    for line in installs:
        named = re.findall(r"-r (\S+\.txt)", line)
        assert named
        assert all(Path(name).is_file() for name in named)
    told = tfdoctor("install", *wish, "--json")
    validate(told.json, "install")
    assert told.json["environment"] is None
    assert told.json["check"] is None
    assert not list(tmp_path.iterdir())


def test_the_links_of_a_release_that_needs_them_are_commands_too(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    done = tfdoctor(
        *("install", "--tf", "2.21.0", "--anywhere", "-n", "-v"),
        *("--into", str(tmp_path / "env"), "--installer", "pip"),
    )
    assert re.search(r"^    ln -s \S+libcusolver\.so\.11 (?:\\\n +)?\S+$", done.out, re.MULTILINE)


# ---------------------------------------------------------------- what the machine lacks


def test_no_python_at_hand(index: Index, tmp_path: Path) -> None:
    args = [sys.executable, command_line()[1], "install", *PLANNED, "--installer", "pip"]
    done = run_to_end(args, index.env(**change_facts(python={})), tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "needs Python 3." in done.stderr
    assert "get uv" in done.stderr
    named = run_to_end([*args, "--python", "3.10.99"], index.env(**change_facts(python={})), tmp_path)
    assert "No Python 3.10.99 is here." in named.stderr
    assert not (tmp_path / "tensorflow-env").exists()


@pytest.mark.parametrize(
    ("distribution", "like", "root", "hint"),
    [
        ("debian", (), True, "apt-get install python3.11-venv"),
        ("linuxmint", ("ubuntu", "debian"), False, "sudo apt-get install python3.11-venv"),
        ("fedora", (), False, "Install its venv package"),
    ],
)
def test_what_is_typed_for_a_venv_follows_the_survey(
    distribution: str, like: tuple[str, ...], root: bool, hint: str
) -> None:
    machine = dataclasses.replace(
        machine_probe.probe(LiveSystem()), distribution_id=distribution, distribution_like=like, root=root
    )
    error = selection._make_venv_error(Interpreter("/usr/bin/python3", "3.11.2", "/usr", venv=False), machine)
    assert error.hint.startswith(hint)


def test_a_python_without_venv(index: Index, tmp_path: Path) -> None:
    env = index.env(**change_facts(python={"venv": False}))
    done = run_to_end(command_line("--installer", "pip"), env, tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot make environments: it lacks ensurepip" in done.stderr
    assert "uv" in done.stderr
    assert not (tmp_path / "tensorflow-env").exists()


@needs_uv
def test_a_python_without_venv_is_no_hindrance_for_uv(index: Index, tmp_path: Path) -> None:
    done = run_to_end(command_line(), index.env(**change_facts(python={"venv": False})), tmp_path)
    assert "Made " in done.stdout


@needs_uv
def test_a_python_that_nobody_has_and_uv_may_not_fetch(index: Index, tmp_path: Path) -> None:
    args = [sys.executable, command_line()[1], "install", *PLANNED, "--installer", "uv"]
    done = run_to_end(
        args,
        index.env(**change_facts(python={}), UV_PYTHON_INSTALL_DIR=str(tmp_path), PATH="/usr/bin"),
        tmp_path,
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_no_room(index: Index, tmp_path: Path) -> None:
    done = run_to_end(
        command_line("--installer", "pip"), index.env(**change_facts(free=1_000_000_000)), tmp_path
    )
    assert done.returncode == 3
    assert re.search(r"\d+\.\d GB needed, 1\.0 GB free", done.stderr)
    assert not (tmp_path / "tensorflow-env").exists()


def test_a_file_that_was_changed_is_not_installed(index: Index, tmp_path: Path) -> None:
    lock = index.locks / "tensorflow.txt"
    lock.write_text(re.sub(r"(tensorflow==1.0 --hash=sha256:).{8}", r"\g<1>00000000", lock.read_text()))
    done = run_to_end(command_line("--installer", ONE), index.env(), tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "a file is not the one that was locked" in done.stderr
    assert "run the same command again" in done.stderr
    assert SENTENCE in start(tmp_path / "tensorflow-env").stderr
    made = list(tmp_path.glob("tensorflow-env/lib/python3*/site-packages/tensorflow*"))
    assert not made


def test_no_network(index: Index, tmp_path: Path) -> None:
    env = index.env(PIP_RETRIES="1", UV_HTTP_RETRIES="0")
    del env["PIP_NO_INDEX"], env["PIP_FIND_LINKS"]
    args = command_line("--installer", ONE, "--index", "http://127.0.0.1:9/simple")
    done = run_to_end(args, env, tmp_path)
    assert done.returncode == 3
    assert "the network or the package index cannot be reached" in done.stderr


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
def test_what_the_machine_lacks_is_not_the_environments_fault(host: str, right: bool) -> None:
    system = RecordedSystem(Path(__file__).resolve().parents[1] / "hosts" / host)
    compat = Compat.load()
    report = diagnose(survey(system, compat), compat)
    assert is_right(report) is right
    if right and report.verdict.gpu_usable is not True:
        told = render_installed("env", report, right=True, verbose=False)
        assert "What is wrong on this machine: " in told


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
def test_killed_after_each_command(index: Index, tmp_path: Path, installer: str, step: str) -> None:
    args = command_line("--installer", installer, "--package", "pandas")
    killed = run_to_end(args, index.env(**change_facts(kill_after=step)), tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    made = tmp_path / "tensorflow-env"
    refused = start(made)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert SENTENCE in refused.stderr
    isolated = subprocess.run([made / "bin/python", "-I", "-c", "0"], capture_output=True, check=False)
    assert isolated.returncode == 3
    done = run_to_end(args, index.env(), tmp_path)
    assert ("Finished" if step != "venv" else "Made ") in done.stdout
    assert start(made).stdout == "whole\n"


@pytest.mark.few(1)
@with_each
def test_ctrl_c(index: Index, tmp_path: Path, installer: str) -> None:
    """Also everything that was started ends."""
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
    made = tmp_path / "tensorflow-env"
    wait_until(process, made / ".tfdoctor" / "install.json", '"tools"')
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    if process.returncode != 130:  # it was faster than we are
        assert process.returncode == 1
        return
    assert "Interrupted." in told
    assert "run the same command again to finish it, or remove it: rm -r" in told
    assert SENTENCE in start(made).stderr
    assert not processes_with(str(made))
    assert "Finished" in run_to_end(args, slow.env(), tmp_path).stdout


@needs_uv
def test_sigterm_is_a_polite_end(index: Index, tmp_path: Path) -> None:
    slow = make_index(tmp_path / "slow", files=4000)
    process = subprocess.Popen(
        command_line(), env=slow.env(), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    made = tmp_path / "tensorflow-env"
    wait_until(process, made / ".tfdoctor" / "install.json", '"venv"')
    process.terminate()
    _, told = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert "is unfinished" in told
    assert SENTENCE in start(made).stderr


@needs_uv
def test_two_at_once(index: Index, tmp_path: Path) -> None:
    slow = make_index(tmp_path / "slow", files=2000)
    args = command_line()
    both = [
        subprocess.Popen(
            args, env=slow.env(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = {process.communicate(timeout=120)[0].splitlines()[0].split()[0] for process in both}
    assert told == {"Made", str(tmp_path / "tensorflow-env")}, "…is there already"
    assert start(tmp_path / "tensorflow-env").stdout == "whole\n"


@needs_uv
def test_a_finished_environment_of_another_plan_stays(index: Index, tmp_path: Path) -> None:
    run_to_end(command_line(), index.env(), tmp_path)
    other = run_to_end(command_line("--package", "pandas"), index.env(), tmp_path)
    assert (other.returncode, other.stdout) == (2, "")
    assert "of another plan" in other.stderr
    assert start(tmp_path / "tensorflow-env").stdout == "whole\n"
