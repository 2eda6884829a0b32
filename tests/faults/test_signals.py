"""A signal that asks a command to end ends all that it started, and then the command, by that very signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tfdoctor
from faults.harness import HEALTHY, alive, program, start, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
LOOKING = [
    "check",
    "check --against HEALTHY",
    "check --deep",
    "recommend",
    "report",
    "capture -o BUNDLE",
    "diagnose --host LOG",
    "fix --dry-run",
    "fix --yes",
    "build --dry-run",
    "install --dry-run --into ENV",
    "verify --python PYTHON",
]


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A folder for PATH whose nvidia-smi hangs in a child, deaf to what it is asked; `pids` has who they are."""
    pids = tmp_path / "pids"
    program(
        tmp_path / "bin/nvidia-smi",
        f"trap '' INT TERM HUP QUIT\nsleep 300 & echo $$ $! >>{pids}\nwhile :; do wait; done",
    )
    yield tmp_path
    for pid in read_pids(pids):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def read_pids(pids: Path) -> list[int]:
    return [int(word) for word in pids.read_text(encoding="ascii").split()] if pids.exists() else []


def run_until_signal(words: str, number: signal.Signals, folder: Path) -> tuple[int, bytes, bytes]:
    """Stop the command while it looks; nobody is left. Its exit status, and what it said."""
    (folder / "log").write_text("nothing\n", encoding="ascii")
    places = {
        "BUNDLE": folder / "b.tar.gz",
        "LOG": folder / "log",
        "ENV": folder / "env",
        "PYTHON": sys.executable,
        "HEALTHY": HEALTHY,
    }
    args = [str(places.get(word, word)) for word in words.split()]
    with start(*args, env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}) as process:
        try:
            assert wait_for(lambda: len(read_pids(folder / "pids")) >= 2), process.communicate(timeout=1)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert wait_for(lambda: not any(alive(pid) for pid in read_pids(folder / "pids")), 3)
    assert not list(folder.glob(".tfdoctor-*"))
    return process.returncode, out, err


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_check_dies_by_the_signal_and_leaves_nobody(number: signal.Signals, hanging: Path) -> None:
    status, out, err = run_until_signal("check", number, hanging)
    assert out == b""
    assert (status, err) == ((130, b"Interrupted.\n") if number == signal.SIGINT else (-number, b""))


@pytest.mark.few(5)
@pytest.mark.parametrize("words", LOOKING[1:])
def test_every_command_that_looks_does(words: str, hanging: Path) -> None:
    status, _, err = run_until_signal(words, signal.SIGTERM, hanging)
    assert status == -signal.SIGTERM
    assert b"Traceback" not in err


def test_a_signal_that_is_ignored_stays_ignored(hanging: Path) -> None:
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        command = [sys.executable, "-m", "tfdoctor", "check", "--timeout", "2", "--fail-on", "never"]
        with subprocess.Popen(
            command,
            env={**os.environ, "PATH": f"{hanging / 'bin'}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert wait_for(lambda: len(read_pids(hanging / "pids")) >= 2)
            process.send_signal(signal.SIGHUP)
            out, _ = process.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode in (0, 3)
    assert out


HOOK = """
import sys
class Told:
    def find_spec(self, name, *_):
        if name == "tfdoctor.cli":
            open({seen!r}, "w").close()
sys.meta_path.insert(0, Told())
"""


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2, 0.5])
def test_in_the_first_moments_it_is_quiet(moment: float, tmp_path: Path) -> None:
    """From when its own modules are loaded. (Python itself cannot be helped: it needs some hundredths of a second.)

    Nor when it leaves: it takes its handlers back before it ends, so that a late Ctrl-C ends it by the signal itself.
    """
    seen = tmp_path / "seen"
    # What stands first in the folder of the working directory tells when the first of them is asked for.
    (tmp_path / "sitecustomize.py").write_text(HOOK.format(seen=str(seen)), encoding="utf-8")
    home = Path(tfdoctor.__file__).parents[1]  # named there, it does not start once more without PYTHONPATH
    with start("check", "--facts", str(HEALTHY), env={"PYTHONPATH": f"{tmp_path}:{home}"}) as process:
        assert wait_for(seen.exists)
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (130, 0, -signal.SIGINT)
    assert err in (b"", b"Interrupted.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_signal_breaks_on_its_way_is_no_defect(number: signal.Signals) -> None:
    """As in threading, whose condition gives back a lock that it does not hold where a signal came in between."""
    code = (
        "import os, sys\n"
        "from tfdoctor.cli import startup\n"
        "def between_two_steps(words):\n"
        "    try:\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "        while True: pass\n"
        "    finally:\n"
        "        raise RuntimeError('release unlocked lock')\n"
        "startup.plain = between_two_steps\n"
        "sys.argv = ['tfdoctor', 'check']\n"
        "startup.run()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    told = b"Interrupted.\n" if number == signal.SIGINT else b""
    assert (ran.returncode, ran.stderr) == ((130 if number == signal.SIGINT else -number), told)
