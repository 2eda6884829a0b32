"""Commands begun before tfdoctor is imported run once and never outlive the command."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tfdoctor.cli.check import check
from tfdoctor.cli.options import FailOn
from tfdoctor.core.errors import UsageError
from tfdoctor.probes import target
from tfdoctor.system import LiveSystem

OPTIONS = {
    "deep": False,
    "recording_path": None,
    "against": None,
    "timeout": 100.0,
    "fail_on": FailOn.never,
    "as_json": False,
    "verbose": False,
    "quiet": True,
}


@pytest.fixture
def started(monkeypatch):
    """Return the list of payloads that are run, in order."""
    payloads = []
    original_run = LiveSystem._run

    def run(self, argv, *rest):
        payloads.extend(argument.rpartition("/")[2] for argument in argv if argument.endswith(".py"))
        return original_run(self, argv, *rest)

    monkeypatch.setattr(LiveSystem, "_run", run)
    return payloads


def test_python_is_queried_first_and_once(started, capsys):
    assert check(python=sys.executable, **OPTIONS) == 0
    assert started[0] == "target.py"
    assert started.count("target.py") == 1


def test_run_waits_for_the_begun_command(tmp_path):
    log = tmp_path / "once"
    command = ["sh", "-c", f"echo again >> {log}; echo $WHAT"]
    system = LiveSystem()
    system.start_in_background(command, timeout=5, env={"WHAT": "yes"})
    assert system.run(command, timeout=5, env={"WHAT": "yes"}).stdout == "yes\n"
    assert log.read_text() == "again\n"
    assert system.run(command, timeout=5, env={"WHAT": "no"}).stdout == "no\n"
    assert log.read_text() == "again\n" * 2


def test_failed_start_is_reported_by_run():
    system = LiveSystem()
    system.start_in_background(["/nowhere/at-all"], timeout=5)
    assert system.run(["/nowhere/at-all"], timeout=5).failure is not None


def test_begun_command_ends_after_a_failure(monkeypatch, tmp_path):
    python = tmp_path / "python"
    pid_file = tmp_path / "alive"
    python.write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec sleep 60\n")
    python.chmod(0o755)

    def fail(*_args, **_options):
        deadline = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        raise UsageError("something else is wrong")

    monkeypatch.setattr("tfdoctor.cli.check._examine_machine", fail)
    with pytest.raises(UsageError):
        check(python=str(python), **OPTIONS)
    stat = Path("/proc", pid_file.read_text().strip(), "stat")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail("it runs on")


def test_missing_python_is_not_begun():
    with pytest.raises(UsageError):
        target.start_query(LiveSystem(), "/nowhere/python", timeout=10)
