"""Scarce resources: no writable folder, few open files, little memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from faults.harness import HEALTHY, run_in_shell, write_program
from tfdoctor.system import Failure, LiveSystem
from tfdoctor.system.children import MAX_OUTPUT_BYTES, Children

if TYPE_CHECKING:
    from pathlib import Path

NO_TEMPORARY_FOLDER = """\
import sys, tempfile
tempfile._candidate_tempdir_list = lambda: ["/nowhere"]
sys.argv[0] = "tfdoctor"
from tfdoctor.__main__ import run
run()
"""


def test_no_temporary_folder() -> None:
    """Run without any temporary folder, as in a container with a read-only root."""
    command = [
        sys.executable,
        "-c",
        NO_TEMPORARY_FOLDER,
        "check",
        "--json",
        "--python",
        sys.executable,
        "--fail-on",
        "never",
    ]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    answer = json.loads(result.stdout)
    assert answer["outcomes"]["crashed"] == 0
    assert "known" in answer["facts"]["python"], answer["facts"]["python"]
    assert b"temporary" not in result.stdout


def can_unshare() -> bool:
    command = ["unshare", "-m", "true"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not can_unshare(), reason="needs a mount namespace")
def test_read_only_root() -> None:
    script = (
        "mount --make-rprivate / && awk '{print $5}' /proc/self/mountinfo | grep -v -e ^/proc -e ^/sys -e ^/dev$ | "
        "while read at; do mount -o remount,bind,ro $at 2>/dev/null; done; "
        "! touch /tmp/x /var/tmp/x /dev/shm/x 2>/dev/null || exit 99; "
        f"exec {sys.executable} -m tfdoctor check --json --python {sys.executable} --fail-on never"
    )
    result = subprocess.run(
        [shutil.which("unshare") or "", "-m", "sh", "-c", script],
        capture_output=True,
        timeout=120,
        check=False,
    )
    if result.returncode == 99 or not result.stdout:
        pytest.skip("the mounts could not be made read-only")
    answer = json.loads(result.stdout)
    assert answer["outcomes"]["crashed"] == 0
    assert "known" in answer["facts"]["python"]


@pytest.mark.parametrize("limit", [20000, 40000, 60000, 100000, 400000])
def test_little_memory(limit: int) -> None:
    result = run_in_shell(f"ulimit -v {limit}; DOCTOR check --fail-on never")
    if b"tfdoctor" not in result.stderr + result.stdout:
        pytest.skip("Python itself does not start")
    assert result.returncode in (0, 3), result
    assert b"Traceback" not in result.stderr


@pytest.mark.parametrize("limit", [5, 6, 8, 12, 20])
@pytest.mark.few(2)
def test_few_open_files(limit: int) -> None:
    result = run_in_shell(f"ulimit -n {limit}; DOCTOR check --fail-on never")
    if b"Failed to import the site module" in result.stderr or b"loading shared libraries" in result.stderr:
        pytest.skip("Python itself does not start")
    assert b"Traceback" not in result.stderr
    assert result.returncode in (0, 3), result
    # A file that cannot be opened is not reported as missing.
    assert result.returncode == 3 or b"Too many open files" not in result.stdout


def test_recording_needs_few_open_files() -> None:
    assert run_in_shell(f"ulimit -n 16; DOCTOR check --from {HEALTHY}").returncode == 0


# ---------------------------------------------------------------- output of programs


def make_live_system() -> LiveSystem:
    return LiveSystem()


def test_run_returns_both_streams_and_the_status(tmp_path: Path) -> None:
    script = write_program(tmp_path / "one", "echo out; echo err >&2; exit 7")
    result = make_live_system().run([str(script)], timeout=20)
    assert (result.returncode, result.stdout, result.stderr, result.failure) == (7, "out\n", "err\n", None)


def test_long_output_is_truncated(tmp_path: Path) -> None:
    script = write_program(tmp_path / "one", "head -c 30000000 /dev/zero | tr '\\0' x; echo end >&2; exit 3")
    result = make_live_system().run([str(script)], timeout=60)
    assert (result.returncode, len(result.stdout), result.stderr) == (3, MAX_OUTPUT_BYTES, "end\n")


def test_endless_output_ends_at_the_timeout(tmp_path: Path) -> None:
    script = write_program(tmp_path / "one", "yes & yes >&2")
    result = make_live_system().run([str(script)], timeout=1)
    assert result.failure is Failure.TIMEOUT
    assert 0 < len(result.stdout) <= MAX_OUTPUT_BYTES  # less if the machine is busy
    assert result.seconds < 10


@pytest.mark.parametrize(
    "body", ["sleep 60 & echo $!", "(while :; do sleep 60; done) & echo $!", "yes >&2 & echo $!"]
)
def test_grandchild_with_open_pipes_does_not_block(tmp_path: Path, body: str) -> None:
    start = time.monotonic()
    result = make_live_system().run([str(write_program(tmp_path / "one", body))], timeout=30)
    assert time.monotonic() - start < 10
    assert result.returncode == 0
    pid = int(result.stdout)
    os.killpg(os.getpgid(pid), 9)


def test_program_that_closes_its_streams_is_awaited(tmp_path: Path) -> None:
    script = write_program(tmp_path / "one", "exec >&- 2>&-; sleep 0.3; exit 4")
    assert make_live_system().run([str(script)], timeout=20).returncode == 4
    slow = write_program(tmp_path / "slow", "exec >&- 2>&-; sleep 60")
    assert make_live_system().run([str(slow)], timeout=0.5).failure is Failure.TIMEOUT


def test_no_child_starts_after_stop() -> None:
    children = Children()
    children.stop()
    with pytest.raises(InterruptedError):
        children.run(["true"], timeout=5, env={})
