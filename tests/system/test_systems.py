"""Access to the machine: live, recorded and recording systems."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tfdoctor.compat import Compat
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.system import CommandResult, Failure, LiveSystem, RecordedSystem, RecordingSystem

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = sys.executable


def test_run_returns_output_and_exit_status() -> None:
    result = LiveSystem().run(
        [PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(9)"], timeout=30
    )
    assert (result.returncode, result.stdout.strip(), result.stderr.strip()) == (9, "out", "err")
    assert result.describe_outcome() == "exited with status 9"


def test_run_never_raises() -> None:
    system = LiveSystem()
    assert system.run(["/nowhere/at/all"], timeout=5).failure is Failure.NOT_FOUND
    assert system.run(["/etc/hostname"], timeout=5).failure in (
        Failure.PERMISSION,
        Failure.NOT_FOUND,
        Failure.OS_ERROR,
    )
    assert system.run(["a\0b"], timeout=5).failure is Failure.OS_ERROR


def test_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    survivor_file = tmp_path / "alive"
    script = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3); open({str(survivor_file)!r}, 'w').close()"])
time.sleep(60)
"""
    began = time.monotonic()
    result = LiveSystem().run([PYTHON, "-c", script], timeout=1)
    assert result.failure is Failure.TIMEOUT
    assert time.monotonic() - began < 10
    time.sleep(3)
    assert not survivor_file.exists()


def test_stop_ends_running_and_later_commands() -> None:
    system = LiveSystem()
    threading.Timer(0.5, system.stop).start()
    began = time.monotonic()
    result = system.run([PYTHON, "-c", "import time; time.sleep(60)"], timeout=60)
    assert result.returncode is not None
    assert result.returncode < 0
    assert system.run([PYTHON, "-c", "import time; time.sleep(60)"], timeout=60).returncode != 0
    assert time.monotonic() - began < 20


def test_output_is_bounded() -> None:
    result = LiveSystem().run([PYTHON, "-c", "import sys; sys.stdout.write('x' * (8 << 20))"], timeout=60)
    assert result.returncode == 0
    assert len(result.stdout) == 4 << 20


def test_run_sets_and_unsets_variables() -> None:
    system = LiveSystem(env={**os.environ, "TFD_A": "1", "TFD_B": "2"})
    code = "import os; print(os.environ.get('TFD_A'), os.environ.get('TFD_B'), os.environ.get('TFD_C'))"
    result = system.run([PYTHON, "-c", code], timeout=30, env={"TFD_C": "3"}, unset=("TFD_A",))
    assert result.stdout.split() == ["None", "2", "3"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_fifo_does_not_block_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert LiveSystem().read_text(str(tmp_path / "pipe")) == ""


def test_root_can_be_another_folder(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=other\n", encoding="utf-8")
    system = LiveSystem(root=str(tmp_path))
    assert system.read_text("/etc/os-release") == "ID=other\n"
    assert system.listdir("/etc") == ["os-release"]
    assert not system.exists("/usr")


def test_recording_gives_the_same_report(tmp_path: Path) -> None:
    """Record this machine; the recording must give the same prediction and the same codes."""
    compat = Compat.load()
    recording = RecordingSystem(LiveSystem())
    live = diagnose(run_probes(recording, compat, timeout=60), compat)
    recording.write(tmp_path / "bundle", lambda name: name.startswith(("LD_", "CUDA_", "VIRTUAL_", "PATH")))
    replayed = diagnose(run_probes(RecordedSystem(tmp_path / "bundle"), compat), compat)
    assert replayed.prediction == live.prediction
    assert [finding.code for finding in replayed.findings] == [finding.code for finding in live.findings]
    assert replayed.verdict == live.verdict


def test_recording_cannot_read_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    host = {
        "schema_version": 1,
        "commands": {"x": {"stdout_file": "../secret"}},
        "links": {"/a": "/../../secret"},
    }
    (bundle / "host.json").write_text(json.dumps(host), encoding="utf-8")
    system = RecordedSystem(bundle)
    for path in ("/../secret", "/a", "/etc/../../secret"):
        with pytest.raises(OSError, match="No such file"):
            system.read_text(path)
    with pytest.raises(OSError, match="No such file"):
        system.run(["x"], timeout=1)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (CommandResult((), None, failure=Failure.TIMEOUT, seconds=4.6), "did not answer within 5 s"),
        (CommandResult((), None, failure=Failure.OS_ERROR, detail="no"), "could not be run (no)"),
        (CommandResult((), None, failure=Failure.NOT_FOUND), f"could not be run ({Failure.NOT_FOUND.value})"),
        (CommandResult((), -9), "was ended by signal 9"),
        (CommandResult((), 0), "exited with status 0"),
    ],
)
def test_end_of_a_command_is_described(result: CommandResult, text: str) -> None:
    assert result.describe_outcome() == text
