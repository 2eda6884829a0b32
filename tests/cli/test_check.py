"""`tfdoctor check` as a user runs it: exit statuses, bad input, deadlines, terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HOSTS = Path(__file__).parents[1] / "hosts"


def run(
    *args: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", "check", *args],
        capture_output=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=120,
        check=False,
    )


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def host(name: str, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return run("--facts", str(HOSTS / name), *args, env=env)


@pytest.mark.parametrize(
    ("name", "fail_on", "status"),
    [
        ("healthy-one-gpu", "error", 0),
        ("container-without-gpu", "error", 1),
        ("container-without-gpu", "never", 0),
        ("misspelt", "error", 0),
        ("misspelt", "warning", 1),
    ],
)
def test_exit_status(name: str, fail_on: str, status: int) -> None:
    assert host(name, "--fail-on", fail_on).returncode == status


def test_a_folder_is_an_environment(tmp_path: Path) -> None:
    """`check FOLDER` is what many type."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    by_folder, by_option = (run(*words, "--json", cwd=tmp_path) for words in (("env",), ("--python", "env")))
    folder, option = (
        json.loads(done.stdout)["facts"]["python"]["known"] for done in (by_folder, by_option)
    )  # what is there; not the times and sizes that differ from run to run
    assert [folder[key] for key in ("requested", "executable", "prefix")] == [
        option[key] for key in ("requested", "executable", "prefix")
    ]
    assert by_folder.returncode == by_option.returncode
    said = " ".join(run("env", cwd=tmp_path).stdout.decode().split())  # how long a line is, is the checkout's
    assert "tfdoctor check --python env -v" in said


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((str(HOSTS / "nouveau"),), "tfdoctor check --facts"),
        (("train.log",), "tfdoctor diagnose train.log"),
        (("program",), "tfdoctor diagnose program"),
        (("python3",), "--python python3"),
        ((".", "--python", "x"), "--python"),
        ((".", "--facts", "x"), "--facts"),
        (("project",), "--python project/.venv"),
    ],
    ids=lambda words: Path(words[0]).name if isinstance(words, tuple) else None,
)
def test_what_is_no_environment_is_not_run(words: tuple[str, ...], hint: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("", encoding="ascii")
    script(tmp_path / "program", "touch was-run")
    inside = tmp_path / "project" / ".venv" / "bin"
    inside.mkdir(parents=True)
    (inside / "python").symlink_to(sys.executable)
    done = run(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert hint in done.stderr.decode()
    assert not (tmp_path / "was-run").exists()


def test_wrong_requests_exit_with_2_and_a_sentence(tmp_path: Path) -> None:
    no_python = script(tmp_path / "nopython", "echo something else")
    for args in (
        ("--python", "/nowhere/python"),
        ("--python", ""),
        ("--python", str(tmp_path)),
        ("--python", "/etc/hostname"),
        ("--python", str(no_python)),
        ("--python", "no-such-command-anywhere"),
        ("--facts", str(tmp_path)),
        ("--facts", str(HOSTS / "healthy-one-gpu"), "--deep"),
        ("--timeout", "0"),
        ("--no-such-option",),
    ):
        done = run(*args)
        assert done.returncode == 2, args
        assert done.stderr.startswith(b"tfdoctor: "), args
        assert b"Traceback" not in done.stderr, args
        assert not done.stdout, args


def test_a_python_that_hangs_costs_no_more_than_the_deadline(tmp_path: Path) -> None:
    hanging = script(tmp_path / "python", "sleep 60")
    began = time.monotonic()
    done = run("--python", str(hanging), "--timeout", "2", "--json")
    assert time.monotonic() - began < 20
    answer = json.loads(done.stdout)
    assert answer["prediction"]["gpu_registered"] is None
    codes = [finding["code"] for finding in answer["findings"]]
    assert codes[0] == "TFD317"
    assert "TFD105" not in codes  # the driver was asked by another Python
    assert answer["verdict"]["cause"] == "python-unusable"
    assert answer["facts"]["choice"]["path"] == str(hanging)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("sleep 60", "timeout"),
        ("head -c 200000 /dev/urandom", "garbage"),
        ("exit 9", "driver_not_communicating"),
        ("exit 3", "other"),
    ],
)
def test_nvidia_smi_may_do_what_it_likes(tmp_path: Path, body: str, kind: str) -> None:
    script(tmp_path / "nvidia-smi", body)
    done = run("--json", "--timeout", "4", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert b"Traceback" not in done.stderr
    assert json.loads(done.stdout)["facts"]["driver"]["smi"]["known"]["kind"] == kind


def test_interrupted(tmp_path: Path) -> None:
    hanging = script(tmp_path / "python", f"echo started > {tmp_path}/started; sleep 60")
    command = [sys.executable, "-m", "tfdoctor", "check", "--python", str(hanging), "--timeout", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        try:
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert stderr == b"Interrupted.\n"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m tfdoctor check --facts {HOSTS / 'healthy-one-gpu'} -v | head -c 1"
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.stderr == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_encoding(encoding: str) -> None:
    done = host("container-without-gpu", env={"PYTHONIOENCODING": encoding, "COLUMNS": "70"})
    assert done.returncode == 1
    text = done.stdout.decode(encoding)
    assert ("✗" if encoding == "utf-8" else "x ") in text


def test_no_colour_in_a_pipe_and_on_request() -> None:
    assert b"\x1b" not in host("container-without-gpu").stdout
    assert b"\x1b[" in host("container-without-gpu", env={"FORCE_COLOR": "1", "NO_COLOR": ""}).stdout
    assert b"\x1b" not in host("container-without-gpu", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && {sys.executable} -m tfdoctor check --json --fail-on never"
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
