"""`tfdoctor check` as a user runs it: exit statuses, invalid input, timeouts, terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.planner import CommandResult, call_tfdoctor

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


def write_script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def host(name: str, *args: str, env: dict[str, str] | None = None) -> CommandResult:
    return call_tfdoctor("check", "--from", str(HOSTS / name), *args, env=env)


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
    assert host(name, "--fail-on", fail_on).status == status


def test_folder_argument_is_an_environment(tmp_path: Path) -> None:
    """Accept `check FOLDER`, which many users type."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    by_folder, by_option = (
        run(*arguments, "--json", cwd=tmp_path) for arguments in (("env",), ("--python", "env"))
    )
    folder, option = (
        json.loads(result.stdout)["facts"]["python"]["known"] for result in (by_folder, by_option)
    )  # the stable facts: times and sizes differ from run to run
    assert [folder[key] for key in ("requested", "executable", "prefix")] == [
        option[key] for key in ("requested", "executable", "prefix")
    ]
    assert by_folder.returncode == by_option.returncode
    output = " ".join(
        run("env", cwd=tmp_path).stdout.decode().split()
    )  # the checkout's path decides where lines are wrapped
    assert "tfdoctor check --python env -v" in output.replace("\\ ", "")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((str(HOSTS / "nouveau"),), "tfdoctor check --from"),
        (("train.log",), "tfdoctor diagnose train.log"),
        (("program",), "tfdoctor diagnose program"),
        (("python3",), "--python python3"),
        ((".", "--python", "x"), "--python"),
        ((".", "--from", "x"), "--from"),
        (("project",), "--python project/.venv"),
    ],
    ids=lambda words: Path(words[0]).name if isinstance(words, tuple) else None,
)
def test_other_arguments_are_not_executed(words: tuple[str, ...], hint: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("", encoding="ascii")
    write_script(tmp_path / "program", "touch was-run")
    bin_folder = tmp_path / "project" / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").symlink_to(sys.executable)
    result = call_tfdoctor("check", *words, cwd=tmp_path)
    assert (result.status, result.out) == (2, "")
    assert hint in result.err
    assert not (tmp_path / "was-run").exists()


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    no_python = write_script(tmp_path / "nopython", "echo something else")
    for args in (
        ("--python", "/nowhere/python"),
        ("--python", ""),
        ("--python", str(tmp_path)),
        ("--python", "/etc/hostname"),
        ("--python", str(no_python)),
        ("--python", "no-such-command-anywhere"),
        ("--from", str(tmp_path)),
        ("--from", str(HOSTS / "healthy-one-gpu"), "--deep"),
        ("--timeout", "0"),
        ("--no-such-option",),
    ):
        result = call_tfdoctor("check", *args)
        assert (result.status, result.out) == (2, ""), args
        assert result.err.startswith("tfdoctor: "), args


def test_hanging_python_ends_at_the_timeout(tmp_path: Path) -> None:
    hanging = write_script(tmp_path / "python", "sleep 60")
    start = time.monotonic()
    result = run("--python", str(hanging), "--timeout", "2", "--json")
    assert time.monotonic() - start < 20
    answer = json.loads(result.stdout)
    assert not answer["prediction"]["gpu_registered"]  # None, or False on a machine without a driver
    codes = [finding["code"] for finding in answer["findings"]]
    assert "TFD317" in codes
    assert "TFD105" not in codes  # another Python queried the driver
    driver = answer["facts"]["driver"]["cuda"]["known"]
    if driver["loaded"] and driver["count"]:
        assert (codes[0], answer["verdict"]["cause"]) == ("TFD317", "python-unusable")
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
def test_faulty_nvidia_smi_is_reported(tmp_path: Path, body: str, kind: str) -> None:
    write_script(tmp_path / "nvidia-smi", body)
    result = run("--json", "--timeout", "4", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert b"Traceback" not in result.stderr
    assert json.loads(result.stdout)["facts"]["driver"]["smi"]["known"]["kind"] == kind


def test_interrupt_exits_with_130(tmp_path: Path) -> None:
    hanging = write_script(tmp_path / "python", f"echo started > {tmp_path}/started; sleep 60")
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


def test_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m tfdoctor check --from {HOSTS / 'healthy-one-gpu'} -v | head -c 1"
    result = subprocess.run(["/bin/bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert result.stderr == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_output_fits_the_encoding(encoding: str) -> None:
    facts = str(HOSTS / "container-without-gpu")
    result = run("--from", facts, env={"PYTHONIOENCODING": encoding, "COLUMNS": "70"})
    assert result.returncode == 1
    text = result.stdout.decode(encoding)
    assert ("✗" if encoding == "utf-8" else "x ") in text


def test_colour_is_for_terminals_or_on_request() -> None:
    assert "\x1b" not in host("container-without-gpu").out
    assert "\x1b[" in host("container-without-gpu", env={"FORCE_COLOR": "1", "NO_COLOR": ""}).out
    assert "\x1b" not in host("container-without-gpu", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).out


def test_deleted_working_folder(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    command = f"cd {folder} && rmdir {folder} && {sys.executable} -m tfdoctor check --json --fail-on never"
    result = subprocess.run(["/bin/bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
