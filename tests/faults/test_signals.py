"""A terminating signal ends all processes that a command started, then the command itself by the same signal."""

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
from faults.harness import HEALTHY, is_alive, start_tfdoctor, wait_for, write_program

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")

END_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
PROBING_COMMANDS = [
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
    """Return a folder whose bin/nvidia-smi hangs in a child and ignores signals; its file `pids` lists both processes."""
    pids = tmp_path / "pids"
    write_program(
        tmp_path / "bin/nvidia-smi",
        f"trap '' INT TERM HUP QUIT\nsleep 300 & echo $$ $! >>{pids}\nwhile :; do wait; done",
    )
    yield tmp_path
    for pid in read_pids(pids):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def read_pids(pids: Path) -> list[int]:
    return [int(pid) for pid in pids.read_text(encoding="ascii").split()] if pids.exists() else []


def run_until_signal(words: str, number: signal.Signals, folder: Path) -> tuple[int, bytes, bytes]:
    """Send the signal while the command probes the machine; return its exit status and both streams.

    Fail if a process that it started is left.
    """
    (folder / "log").write_text("nothing\n", encoding="ascii")
    replacements = {
        "BUNDLE": folder / "b.tar.gz",
        "LOG": folder / "log",
        "ENV": folder / "env",
        "PYTHON": sys.executable,
        "HEALTHY": HEALTHY,
    }
    args = [str(replacements.get(argument, argument)) for argument in words.split()]
    with start_tfdoctor(*args, env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}) as process:
        try:
            assert wait_for(lambda: len(read_pids(folder / "pids")) >= 2), process.communicate(timeout=1)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert wait_for(lambda: not any(is_alive(pid) for pid in read_pids(folder / "pids")), 3)
    assert not list(folder.glob(".tfdoctor-*"))
    return process.returncode, out, err


@pytest.mark.parametrize("number", END_SIGNALS, ids=lambda number: number.name)
def test_check_ends_by_the_signal_and_leaves_no_process(number: signal.Signals, hanging: Path) -> None:
    status, out, err = run_until_signal("check", number, hanging)
    assert out == b""
    assert (status, err) == ((130, b"Interrupted.\n") if number == signal.SIGINT else (-number, b""))


@pytest.mark.few(2)
@pytest.mark.parametrize("words", PROBING_COMMANDS[1:])
def test_every_probing_command_ends_by_the_signal(words: str, hanging: Path) -> None:
    status, _, err = run_until_signal(words, signal.SIGTERM, hanging)
    assert status == -signal.SIGTERM
    assert b"Traceback" not in err


def test_ignored_signal_stays_ignored(hanging: Path) -> None:
    """Keep ignoring SIGHUP, as under `nohup`."""
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


IMPORT_HOOK = """
import sys
class Told:
    def find_spec(self, name, *_):
        if name == "tfdoctor.cli":
            open({seen!r}, "w").close()
sys.meta_path.insert(0, Told())
"""


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2, 0.5])
def test_early_interrupt_prints_no_traceback(moment: float, tmp_path: Path) -> None:
    """Print no traceback for an early Ctrl-C, once tfdoctor's own modules are loaded.

    Python itself needs some hundredths of a second before that. A late Ctrl-C may end tfdoctor by the signal:
    it restores its handlers before it exits.
    """
    import_mark = tmp_path / "seen"
    # This sitecustomize writes the file `seen` when the first of those modules is imported.
    (tmp_path / "sitecustomize.py").write_text(IMPORT_HOOK.format(seen=str(import_mark)), encoding="utf-8")
    package_folder = Path(tfdoctor.__file__).parents[
        1
    ]  # named there, tfdoctor does not restart without PYTHONPATH
    with start_tfdoctor(
        "check", "--from", str(HEALTHY), env={"PYTHONPATH": f"{tmp_path}:{package_folder}"}
    ) as process:
        assert wait_for(import_mark.exists)
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (130, 0, -signal.SIGINT)
    assert err in (b"", b"Interrupted.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_error_caused_by_a_signal_is_not_reported(number: signal.Signals) -> None:
    """Report no error that the signal itself causes.

    For example, a condition of threading releases a lock that it does not hold if a signal arrives in between.
    """
    code = (
        "import os, sys\n"
        "from tfdoctor.cli import startup\n"
        "def between_two_steps(words):\n"
        "    try:\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "        while True: pass\n"
        "    finally:\n"
        "        raise RuntimeError('release unlocked lock')\n"
        "startup.parse_check = between_two_steps\n"
        "sys.argv = ['tfdoctor', 'check']\n"
        "startup.run()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    message = b"Interrupted.\n" if number == signal.SIGINT else b""
    assert (result.returncode, result.stderr) == ((130 if number == signal.SIGINT else -number), message)
