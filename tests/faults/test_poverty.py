"""Little room: nowhere to write, few open files, little memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from faults.harness import HEALTHY, program, shell
from tfdoctor.system import Failure, LiveSystem
from tfdoctor.system.children import MAX_OUTPUT, Children

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = """\
import sys, tempfile
tempfile._candidate_tempdir_list = lambda: ["/nowhere"]
sys.argv[0] = "tfdoctor"
from tfdoctor.__main__ import run
run()
"""


def test_nowhere_to_write() -> None:
    """As in a container with a read-only root: no temporary folder at all."""
    command = [
        sys.executable,
        "-c",
        NOWHERE,
        "check",
        "--json",
        "--python",
        sys.executable,
        "--fail-on",
        "never",
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    facts = json.loads(done.stdout)
    assert facts["outcomes"]["crashed"] == 0
    assert "known" in facts["facts"]["python"], facts["facts"]["python"]
    assert b"temporary" not in done.stdout


def can_unshare() -> bool:
    command = ["unshare", "-m", "true"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not can_unshare(), reason="needs a mount namespace")
def test_a_read_only_root() -> None:
    read_only = (
        "mount --make-rprivate / && awk '{print $5}' /proc/self/mountinfo | grep -v -e ^/proc -e ^/sys -e ^/dev$ | "
        "while read at; do mount -o remount,bind,ro $at 2>/dev/null; done; "
        "! touch /tmp/x /var/tmp/x /dev/shm/x 2>/dev/null || exit 99; "
        f"exec {sys.executable} -m tfdoctor check --json --python {sys.executable} --fail-on never"
    )
    done = subprocess.run(
        [shutil.which("unshare") or "", "-m", "sh", "-c", read_only],
        capture_output=True,
        timeout=120,
        check=False,
    )
    if done.returncode == 99 or not done.stdout:
        pytest.skip("the mounts could not be made read-only")
    facts = json.loads(done.stdout)
    assert facts["outcomes"]["crashed"] == 0
    assert "known" in facts["facts"]["python"]


@pytest.mark.parametrize("limit", [20000, 40000, 60000, 100000, 400000])
def test_little_memory(limit: int) -> None:
    done = shell(f"ulimit -v {limit}; DOCTOR check --fail-on never")
    if b"tfdoctor" not in done.stderr + done.stdout:
        pytest.skip("Python itself does not start")
    assert done.returncode in (0, 3), done
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("limit", [5, 6, 8, 12, 20])
@pytest.mark.few(2)
def test_few_files(limit: int) -> None:
    done = shell(f"ulimit -n {limit}; DOCTOR check --fail-on never")
    if b"Failed to import the site module" in done.stderr or b"loading shared libraries" in done.stderr:
        pytest.skip("Python itself does not start")
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 3), done
    # What could not be opened is not taken for what is not there.
    assert done.returncode == 3 or b"Too many open files" not in done.stdout


def test_a_recording_needs_few_files() -> None:
    assert shell(f"ulimit -n 16; DOCTOR check --facts {HEALTHY}").returncode == 0


# ---------------------------------------------------------------- what programs print


def live() -> LiveSystem:
    return LiveSystem()


def test_both_streams_and_the_status(tmp_path: Path) -> None:
    one = program(tmp_path / "one", "echo out; echo err >&2; exit 7")
    done = live().run([str(one)], timeout=20)
    assert (done.returncode, done.stdout, done.stderr, done.failure) == (7, "out\n", "err\n", None)


def test_output_has_a_limit_and_disturbs_nobody(tmp_path: Path) -> None:
    one = program(tmp_path / "one", "head -c 30000000 /dev/zero | tr '\\0' x; echo end >&2; exit 3")
    done = live().run([str(one)], timeout=60)
    assert (done.returncode, len(done.stdout), done.stderr) == (3, MAX_OUTPUT, "end\n")


def test_one_that_never_stops_printing_ends_at_its_time(tmp_path: Path) -> None:
    one = program(tmp_path / "one", "yes & yes >&2")
    done = live().run([str(one)], timeout=1)
    assert done.failure is Failure.TIMEOUT
    assert 0 < len(done.stdout) <= MAX_OUTPUT  # less where the machine is busy
    assert done.seconds < 10


@pytest.mark.parametrize(
    "body", ["sleep 60 & echo $!", "(while :; do sleep 60; done) & echo $!", "yes >&2 & echo $!"]
)
def test_a_grandchild_that_keeps_the_pipes_open_does_not_hold_us(tmp_path: Path, body: str) -> None:
    began = time.monotonic()
    done = live().run([str(program(tmp_path / "one", body))], timeout=30)
    assert time.monotonic() - began < 10
    assert done.returncode == 0
    pid = int(done.stdout)
    os.killpg(os.getpgid(pid), 9)


def test_one_that_closes_its_streams_is_waited_for(tmp_path: Path) -> None:
    one = program(tmp_path / "one", "exec >&- 2>&-; sleep 0.3; exit 4")
    assert live().run([str(one)], timeout=20).returncode == 4
    slow = program(tmp_path / "slow", "exec >&- 2>&-; sleep 60")
    assert live().run([str(slow)], timeout=0.5).failure is Failure.TIMEOUT


def test_nothing_starts_once_it_was_stopped() -> None:
    children = Children()
    children.stop()
    with pytest.raises(InterruptedError):
        children.run(["true"], timeout=5, env={})
