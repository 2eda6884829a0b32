"""The programs that tfdoctor starts: what they print, for how long they may run, and that none outlives it.

Each has a session of its own, so that whatever it starts itself is ended with it. What it prints comes through pipes:
there may be no folder to write to. Of that a few MiB are kept and the rest is read and dropped, so that neither a
program that never stops printing nor a child of it that keeps the pipe open takes our memory or our time.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
import weakref
from typing import IO, TYPE_CHECKING, Any

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

__all__ = [
    "ENDING",
    "MAX_OUTPUT",
    "Children",
    "Ran",
    "drop_working_folder",
    "hold_signals",
    "isolate",
    "run",
    "stop_all",
]

MAX_OUTPUT = 4 << 20
"""Bytes of each of a program's streams that are kept."""
ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
"""The signals that ask us to end, and that can be heard."""
_POLL_S = 0.05
"""Seconds between two looks whether a program has ended whose pipes somebody else keeps open."""
_READ_BYTES = 1 << 16
_IN_A_PIPE = 1 << 20
"""Bytes that a pipe holds at most: what is read from one after the end of its program."""
_START_WAIT_S = 2.0
"""Seconds that `stop` waits for a program that another thread is just starting."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended."""

    returncode: int | None
    """The exit status; -N where signal N ended it; None where it was killed at its time limit."""
    stdout: bytes
    stderr: bytes


@contextlib.contextmanager
def hold_signals() -> Iterator[list[int]]:
    """Signals that Python handles wait until the block is over; the list has those that came.

    Without it a signal within Popen would leave a child that nobody knows. In other threads there is nothing to do:
    Python handles signals in the main one.
    """
    came: list[int] = []
    before: dict[int, Callable[[int, FrameType | None], Any]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)
        for first in came[:1]:
            before[first](first, None)


class Children:
    """Programs that are ended together. No locks: `stop` is called by handlers of signals, too."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._starting: set[object] = set()
        self._stopped = False
        _EVERYBODY.add(self)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str],
        cwd: str | None = None,
        heard: Callable[[bytes], None] | None = None,
        given: IO[bytes] | None = None,
    ) -> Ran:
        """Run it to its end; its whole group is killed after `timeout` seconds.

        `heard` is told what it writes to standard output, piece by piece as it comes; on Windows it is told nothing.
        What it raises ends the program. `given`: an open file that is its standard input; else it has none.

        Raises OSError or ValueError where it cannot be started.
        """
        deadline = time.monotonic() + timeout
        with _streams() as (out, err):
            process = self._start(argv, out, err, env, cwd, given)
            reader = _Pipes(process, heard) if out is None else _Files(out, err)
            try:
                if self._stopped:
                    _kill(process)
                ended = reader.wait(process, deadline)
                if not ended:
                    _kill(process)
                return Ran(process.returncode if ended else None, *reader.texts())
            except BaseException:  # Ctrl-C: nothing that we started may outlive us
                _kill(process)
                raise
            finally:
                self._running.discard(process)
                reader.close()

    def _start(
        self, argv: Sequence[str], out: Any, err: Any, env: Mapping[str, str], cwd: str | None, given: Any
    ) -> subprocess.Popen[bytes]:
        this = object()
        with hold_signals():
            self._starting.add(this)
            try:
                if self._stopped:
                    raise InterruptedError(4, "tfdoctor is ending")
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL if given is None else given,
                    stdout=subprocess.PIPE if out is None else out,
                    stderr=subprocess.PIPE if err is None else err,
                    env=drop_working_folder(env),
                    cwd=cwd,
                    start_new_session=True,
                )
                self._running.add(process)
            finally:
                self._starting.discard(this)
        return process

    def stop(self) -> None:
        """Kill every one of them; none is started from now on."""
        self._stopped = True
        until = time.monotonic() + _START_WAIT_S
        while self._starting and time.monotonic() < until:
            time.sleep(0.002)
        for process in list(self._running):
            _kill(process)


_EVERYBODY: weakref.WeakSet[Children] = weakref.WeakSet()
_OURS = Children()


_RUN_MODULE = (
    "import sys; sys.path[:1] = [p for p in sys.path[:1] if p]; del sys.argv[0]; import runpy; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def isolate(command: Sequence[str]) -> Sequence[str]:
    """Return `python -m MODULE …` as a command that imports nothing from the working folder, in every Python."""
    return (command[0], "-c", _RUN_MODULE, *command[2:]) if command[1:2] == ("-m",) else command


def drop_working_folder(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without the entries by which a child would execute files of the working folder.

    These are relative entries of PATH, and of LD_LIBRARY_PATH the working folder itself, most often an empty entry by
    accident. A folder below it that LD_LIBRARY_PATH names stays: an import may need its libraries.
    """
    env = dict(env)
    if os.name != "posix":
        return env
    if "PATH" in env:
        entries = env["PATH"].split(":")
        env["PATH"] = ":".join(one for one in entries if one.startswith("/") and not one.startswith("/proc/"))
    if libraries := env.get("LD_LIBRARY_PATH"):
        kept = [one for one in re.split("[:;]", libraries) if not _is_working_folder(one)]
        env["LD_LIBRARY_PATH"] = ":".join(kept)
        if not kept:
            del env["LD_LIBRARY_PATH"]
    return env


def _is_working_folder(entry: str) -> bool:
    """Return whether an entry of a search path means the working folder without naming it by its full path."""
    if entry.startswith("/") and not entry.startswith("/proc/"):
        return False
    return os.path.realpath(entry or ".") == os.path.realpath(".")


def run(argv: Sequence[str], *, timeout: float, env: Mapping[str, str], cwd: str | None = None) -> Ran:
    """Return `Children.run` for whoever has no children of his own to end."""
    return _OURS.run(argv, timeout=timeout, env=env, cwd=cwd)


def stop_all() -> None:
    """Kill every program that still runs: we are about to end."""
    for children in list(_EVERYBODY):
        children.stop()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole process group; a process stuck in the driver (state D) is left to the kernel."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)


# ---------------------------------------------------------------- what they print


@contextlib.contextmanager
def _streams() -> Iterator[tuple[IO[bytes] | None, IO[bytes] | None]]:
    """Files where pipes cannot be watched (Windows, which always has a folder for them), else nothing: pipes."""
    if hasattr(select, "poll"):
        yield None, None
        return
    import tempfile

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        yield out, err


class _Files:
    """Output that goes into files."""

    def __init__(self, out: IO[bytes], err: IO[bytes] | None) -> None:
        self._files = [stream for stream in (out, err) if stream is not None]

    def wait(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def texts(self) -> list[bytes]:
        for stream in self._files:
            stream.seek(0)
        return [stream.read(MAX_OUTPUT) for stream in self._files]

    def close(self) -> None:
        """Whoever opened them does."""


class _Pipes:
    """Output that comes through pipes."""

    def __init__(
        self, process: subprocess.Popen[bytes], heard: Callable[[bytes], None] | None = None
    ) -> None:
        self._heard = heard
        self._out = process.stdout.fileno() if process.stdout is not None else -1
        self._streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        self._kept = {stream.fileno(): bytearray() for stream in self._streams}
        self._poll = select.poll()
        self._open = set(self._kept)
        for number in self._kept:
            os.set_blocking(number, False)
            self._poll.register(number, select.POLLIN)

    def wait(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Read until the program has ended; False where it has not by the deadline."""
        while self._open:
            if process.poll() is not None:  # what it wrote is in the pipes by now
                self._drain()
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                self._drain()
                return False
            for number, _ in self._poll.poll(min(_POLL_S, left) * 1000):
                self._read(number)
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, number: int) -> int:
        """Return bytes that were read; 0 where there are none, now or ever."""
        try:
            data = os.read(number, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._poll.unregister(number)
            self._open.discard(number)
            return 0
        if self._heard is not None and number == self._out:
            self._heard(data)
        kept = self._kept[number]
        kept += data[: MAX_OUTPUT - len(kept)]
        return len(data)

    def _drain(self) -> None:
        for number in list(self._open):
            left = _IN_A_PIPE
            while left > 0 and (count := self._read(number)):
                left -= count

    def texts(self) -> list[bytes]:
        return [bytes(kept) for kept in self._kept.values()]

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
