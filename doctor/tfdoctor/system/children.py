"""Run programs with a time limit, and kill them when tfdoctor ends.

Each program runs in a new session, so that its child processes are killed with it. Its output is read from
pipes, because there may be no writable folder. The first few MiB of the output are stored, and the rest is
discarded. Neither endless output nor a child process that holds a pipe open therefore costs memory or time.
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

from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

__all__ = [
    "MAX_OUTPUT_BYTES",
    "TERMINATION_SIGNALS",
    "ChildResult",
    "Children",
    "drop_working_folder",
    "hold_signals",
    "isolate_module_command",
    "run_program",
    "stop_all",
]

MAX_OUTPUT_BYTES = 4 << 20
"""Number of bytes of each output stream that are stored. The rest is discarded."""
TERMINATION_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
"""The signals that end tfdoctor and that this platform can handle."""
_POLL_S = 0.05
"""Interval for checking whether a program has ended. Its pipes do not show that: another process can hold them open."""
_READ_BYTES = 1 << 16
_MAX_PIPE_BYTES = 1 << 20
"""Maximum capacity of a pipe, and so of the bytes that are read after the program has ended."""
_START_WAIT_S = 2.0
"""Time that `stop` waits for programs that other threads are starting."""
_RUN_MODULE = (
    "import sys; sys.path[:1] = [p for p in sys.path[:1] if p]; del sys.argv[0]; import runpy; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""Code that runs a module as `python -m` does, without the working directory ("") at the start of sys.path."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """The output of a program and how it ended."""

    returncode: int | None
    """The exit status; -N if signal N ended it; None if it was killed at its time limit."""
    stdout: bytes
    stderr: bytes


@contextlib.contextmanager
def hold_signals() -> Iterator[list[int]]:
    """Delay signals with a Python handler until the end of the block. Yield the list of received ones.

    Without this delay, a signal during Popen could leave a child process that nobody kills. Outside the main thread
    nothing is delayed, because Python handles signals in the main thread.
    """
    received: list[int] = []
    previous_handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in TERMINATION_SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                previous_handlers[number] = handler
                signal.signal(number, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        for first_number in received[:1]:  # only the first signal counts
            previous_handlers[first_number](first_number, None)


class Children:
    """Programs that are killed together. It uses no locks, because signal handlers call `stop`."""

    def __init__(self) -> None:
        self._running_processes: set[subprocess.Popen[bytes]] = set()
        self._starting_tokens: set[object] = set()
        self._is_stopped = False
        _ALL_CHILDREN.add(self)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str],
        cwd: str | None = None,
        on_output: Callable[[bytes], None] | None = None,
        stdin: IO[bytes] | None = None,
    ) -> ChildResult:
        """Run a program to its end, or kill its process group after `timeout` seconds.

        `on_output` is called with each piece of standard output as it arrives, except on Windows. An exception
        that it raises ends the program. `stdin` is an open file that becomes the standard input; None means no
        standard input.

        Raise OSError or ValueError if the program cannot be started.
        """
        deadline = time.monotonic() + timeout
        with _open_output_files() as (out, err):
            process = self._start(argv, out, err, env, cwd, stdin)
            reader = _OutputPipes(process, on_output) if out is None else _OutputFiles(out, err)
            try:
                if self._is_stopped:
                    _kill(process)
                ended = reader.wait(process, deadline)
                if not ended:
                    _kill(process)
                return ChildResult(process.returncode if ended else None, *reader.get_output())
            except BaseException:  # also on Ctrl-C: no program may outlive tfdoctor
                _kill(process)
                raise
            finally:
                self._running_processes.discard(process)
                reader.close()

    def _start(
        self,
        argv: Sequence[str],
        out: Any,
        err: Any,
        env: Mapping[str, str],
        cwd: str | None,
        stdin_file: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a program. `out` and `err` are open files, or None for pipes.

        Raise InterruptedError if `stop` was called.
        """
        token = object()
        with hold_signals():
            self._starting_tokens.add(token)
            try:
                if self._is_stopped:
                    raise InterruptedError(4, "tfdoctor is ending")  # EINTR
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL if stdin_file is None else stdin_file,
                    stdout=subprocess.PIPE if out is None else out,
                    stderr=subprocess.PIPE if err is None else err,
                    env=drop_working_folder(env),
                    cwd=cwd,
                    start_new_session=True,
                )
                self._running_processes.add(process)
            finally:
                self._starting_tokens.discard(token)
        return process

    def stop(self) -> None:
        """Kill all running programs, and prevent new ones from being started."""
        self._is_stopped = True
        deadline = time.monotonic() + _START_WAIT_S
        while self._starting_tokens and time.monotonic() < deadline:
            time.sleep(0.002)
        for process in list(self._running_processes):
            _kill(process)


_ALL_CHILDREN: weakref.WeakSet[Children] = weakref.WeakSet()
_DEFAULT_CHILDREN = Children()


def isolate_module_command(command: Sequence[str]) -> Sequence[str]:
    """Return a `python -m MODULE …` command that does not import modules from the working directory.

    Any other command is returned unchanged.
    """
    return (command[0], "-c", _RUN_MODULE, *command[2:]) if command[1:2] == ("-m",) else command


def drop_working_folder(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without entries that let a child execute files of the working directory.

    These are the empty and the relative entries of PATH and LD_LIBRARY_PATH, and those in /proc, which may lead there.
    """
    env = dict(env)
    if os.name != "posix":
        return env
    for name, separators in (("PATH", ":"), ("LD_LIBRARY_PATH", "[:;]")):
        if env.get(name):
            entries = re.split(separators, env[name])
            env[name] = ":".join(
                entry for entry in entries if entry.startswith("/") and not entry.startswith("/proc/")
            )
            if not env[name] and name == "LD_LIBRARY_PATH":
                del env[name]
    return env


def run_program(
    argv: Sequence[str], *, timeout: float, env: Mapping[str, str], cwd: str | None = None
) -> ChildResult:
    """Run a program as `Children.run` does, for callers without a `Children` object."""
    return _DEFAULT_CHILDREN.run(argv, timeout=timeout, env=env, cwd=cwd)


def stop_all() -> None:
    """Kill every running program of every `Children` object."""
    for children in list(_ALL_CHILDREN):
        children.stop()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process group. Wait at most a second, because a process can be stuck in the driver (state D)."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)


# ---------------------------------------------------------------- output


@contextlib.contextmanager
def _open_output_files() -> Iterator[tuple[IO[bytes] | None, IO[bytes] | None]]:
    """Yield two files for the output on Windows, where pipes cannot be polled, and (None, None) elsewhere."""
    if hasattr(select, "poll"):
        yield None, None
        return
    import tempfile

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        yield out, err


class _OutputFiles:
    """Output that is written to temporary files."""

    def __init__(self, out: IO[bytes], err: IO[bytes] | None) -> None:
        self._files = [stream for stream in (out, err) if stream is not None]

    def wait(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Wait for the program to end. Return False if it is still running at the deadline."""
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def get_output(self) -> list[bytes]:
        """Return the first MAX_OUTPUT_BYTES bytes of each stream."""
        for stream in self._files:
            stream.seek(0)
        return [stream.read(MAX_OUTPUT_BYTES) for stream in self._files]

    def close(self) -> None:
        """Do nothing: `_open_output_files` closes the files."""


class _OutputPipes:
    """Output that is read from pipes while the program runs."""

    def __init__(
        self, process: subprocess.Popen[bytes], on_output: Callable[[bytes], None] | None = None
    ) -> None:
        self._on_output = on_output
        self._stdout_descriptor = process.stdout.fileno() if process.stdout is not None else -1
        self._streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        self._buffers = {stream.fileno(): bytearray() for stream in self._streams}
        self._poll = select.poll()
        self._open_descriptors = set(self._buffers)
        for descriptor in self._buffers:
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Read until the program has ended. Return False if it is still running at the deadline."""
        while self._open_descriptors:
            if process.poll() is not None:  # all of its output is in the pipes now
                self._drain()
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                self._drain()
                return False
            for descriptor, _ in self._poll.poll(min(_POLL_S, remaining) * 1000):
                self._read(descriptor)
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, descriptor: int) -> int:
        """Read from a pipe, and return the number of bytes: 0 if no data is available or the pipe is closed."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._poll.unregister(descriptor)
            self._open_descriptors.discard(descriptor)
            return 0
        if self._on_output is not None and descriptor == self._stdout_descriptor:
            self._on_output(data)
        buffer = self._buffers[descriptor]
        buffer += data[: MAX_OUTPUT_BYTES - len(buffer)]
        return len(data)

    def _drain(self) -> None:
        """Read the remaining output from the pipes."""
        for descriptor in list(self._open_descriptors):
            remaining = _MAX_PIPE_BYTES
            while remaining > 0 and (count := self._read(descriptor)):
                remaining -= count

    def get_output(self) -> list[bytes]:
        """Return the first MAX_OUTPUT_BYTES bytes of each stream."""
        return [bytes(buffer) for buffer in self._buffers.values()]

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
