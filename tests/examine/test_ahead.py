"""What is begun before tfdoctor is loaded is asked once, and never outlives the command."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tfdoctor.cli.check import check
from tfdoctor.cli.options import FailOn
from tfdoctor.errors import UsageError
from tfdoctor.probes import target
from tfdoctor.system import LiveSystem

OPTIONS = {
    "deep": False,
    "facts": None,
    "against": None,
    "timeout": 100.0,
    "fail_on": FailOn.never,
    "as_json": False,
    "verbose": False,
    "quiet": True,
}


@pytest.fixture
def started(monkeypatch):
    """The payloads that are run, in order."""
    seen = []
    real = LiveSystem._run

    def run(self, argv, *rest):
        seen.extend(word.rpartition("/")[2] for word in argv if word.endswith(".py"))
        return real(self, argv, *rest)

    monkeypatch.setattr(LiveSystem, "_run", run)
    return seen


def test_the_python_is_asked_first_and_once(started, capsys):
    assert check(python=sys.executable, **OPTIONS) == 0
    assert started[0] == "target.py"
    assert started.count("target.py") == 1


def test_run_waits_for_what_was_begun(tmp_path):
    file = tmp_path / "once"
    words = ["sh", "-c", f"echo again >> {file}; echo $WHAT"]
    system = LiveSystem()
    system.begin(words, timeout=5, env={"WHAT": "yes"})
    assert system.run(words, timeout=5, env={"WHAT": "yes"}).stdout == "yes\n"
    assert file.read_text() == "again\n"
    assert system.run(words, timeout=5, env={"WHAT": "no"}).stdout == "no\n"
    assert file.read_text() == "again\n" * 2


def test_what_cannot_be_started_is_told_to_whoever_asks():
    system = LiveSystem()
    system.begin(["/nowhere/at-all"], timeout=5)
    assert system.run(["/nowhere/at-all"], timeout=5).failure is not None


def test_nothing_that_was_begun_outlives_a_failure(monkeypatch, tmp_path):
    python = tmp_path / "python"
    alive = tmp_path / "alive"
    python.write_text(f"#!/bin/sh\necho $$ > {alive}\nexec sleep 60\n")
    python.chmod(0o755)

    def fail(*_args, **_options):
        until = time.monotonic() + 20
        while not (alive.exists() and alive.read_text()) and time.monotonic() < until:
            time.sleep(0.01)
        raise UsageError("something else is wrong")

    monkeypatch.setattr("tfdoctor.cli.check._examine_machine", fail)
    with pytest.raises(UsageError):
        check(python=str(python), **OPTIONS)
    state = Path("/proc", alive.read_text().strip(), "stat")
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            if state.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail("it runs on")


def test_what_nobody_can_run_is_not_begun():
    with pytest.raises(UsageError):
        target.begin(LiveSystem(), "/nowhere/python", timeout=10)
