"""The parts of the passthrough; tests/cli/test_run.py runs whole programs, because it needs a process without threads."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

if sys.platform == "win32":
    pytest.skip("POSIX", allow_module_level=True)

from tfdoctor.verification.running import passthrough
from tfdoctor.verification.running.passthrough import Passthrough, hold_signals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Forwarder(Passthrough):
    """A Passthrough that records what it forwards and which signals it sends."""

    def __init__(self, *argv: str, mask: set[signal.Signals] | None = None) -> None:
        self.tapped: list[tuple[int, bytes]] = []
        super().__init__(
            argv or ("true",),
            {"PATH": os.environ["PATH"]},
            mask or set(),
            lambda *call: self.tapped.append(call),
        )

    def close(self) -> None:
        for descriptor in (self._wake_read, self._wake_write, self._end_read, self._end_write):
            os.close(descriptor)


@pytest.fixture
def forwarder() -> Iterator[Forwarder]:
    made = Forwarder()
    yield made
    made.close()


def test_script_without_interpreter_line(tmp_path: Path) -> None:
    for name, content in (("script", b"echo\n"), ("late", b"x" * 256 + b"\0"), ("binary", b"\x01\0\x02")):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
        program = Forwarder(str(tmp_path / name))
        assert program._find_script() == (str(tmp_path / name) if name != "binary" else None)
        program.close()
    program = Forwarder("no-such-program")
    assert program._find_script() is None
    program.close()


def test_line_between_lines_of_the_program(forwarder: Forwarder, capfd: pytest.CaptureFixture[str]) -> None:
    forwarder.write_line("first")
    assert not forwarder.has_open_line
    assert forwarder._write_output(2, b"abc")
    assert forwarder.has_open_line
    forwarder.write_line("notice")
    assert forwarder._write_output(1, b"out\n")
    assert capfd.readouterr().err == "first\nabc"
    assert forwarder._write_output(2, b"de")
    assert forwarder._write_output(2, b"f\n")
    assert capfd.readouterr().err == "def\nnotice\n"
    assert forwarder._write_output(2, b"g\n")
    assert capfd.readouterr().err == "g\n"
    assert forwarder.tapped[0] == (2, b"abc")
    with forwarder._write_locks[2]:  # the output is blocked
        forwarder.write_line("dropped")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("terminal", "raw", "last", "written"),
    [
        (2, False, {1: b"x", 2: b"\n"}, "x\n"),
        (2, False, {1: b"\n", 2: b"x"}, "\r\nx\n"),
        (2, True, {1: b"\n", 2: b"x"}, "\r\nx\r\n"),
        (1, False, {1: b"x", 2: b"\n"}, "\r\nx\n"),
        (1, True, {1: b"\n", 2: b"x"}, "x\r\n"),
    ],
)
def test_line_at_a_terminal(
    forwarder: Forwarder,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    terminal: int,
    raw: bool,
    last: dict[int, bytes],
    written: str,
) -> None:
    monkeypatch.setattr(os, "isatty", lambda number: number == 2)
    forwarder._terminal, forwarder._last_byte = terminal, dict(last)
    forwarder._original_modes = [1] if raw else []
    assert forwarder.has_open_line is written.startswith("\r")
    forwarder.write_line("x")
    assert capfdbinary.readouterr().err == written.encode()
    assert not forwarder.has_open_line
    monkeypatch.setattr(os, "isatty", lambda _: False)
    forwarder._terminal, forwarder._last_byte = 1, {1: b"x", 2: b"\n"}
    assert not forwarder.has_open_line  # standard error is a file


@pytest.mark.parametrize(
    ("number", "failures"),
    [
        (errno.EPIPE, []),
        (errno.EIO, []),
        (
            errno.ENOSPC,
            ["standard output: No space left on device", "standard error: No space left on device"],
        ),
    ],
)
def test_stream_that_cannot_be_written(
    forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch, number: int, failures: list[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(passthrough, "_write_all", fail)
    assert not forwarder._write_output(1, b"x")
    assert not forwarder._write_output(2, b"x")
    assert (forwarder.failures, forwarder.tapped) == (failures, [])


def test_stream_is_copied_until_its_end_or_the_linger_time(
    forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(passthrough, "LINGER_S", 0.05)
    monkeypatch.setattr(passthrough, "MAX_LINGER_BYTES", 6)
    monkeypatch.setattr(passthrough, "COPY_BYTES", 3)
    read_end, write_end = os.pipe()
    os.write(write_end, b"all of it")
    os.close(write_end)
    forwarder._copy_stream(read_end, 1)
    assert capfd.readouterr().out == "all of it"
    os.write(forwarder._end_write, b"x")  # the program has ended, but another process keeps the stream open
    for content, copied in ((b"", ""), (b"abc", "abc"), (b"abcdefghi", "abcdef")):
        read_end, write_end = os.pipe()
        os.write(write_end, content)
        forwarder._copy_stream(read_end, 1)
        assert capfd.readouterr().out == copied
        with pytest.raises(OSError, match="Broken pipe"):  # as without tfdoctor
            os.write(write_end, b"x")
        os.close(write_end)


@pytest.mark.parametrize(
    ("leader", "number", "code", "sent"),
    [
        (0, signal.SIGINT, 0, True),
        (0, signal.SIGINT, -6, True),
        (0, signal.SIGINT, 1, False),  # the terminal sent it to the program as well
        (5, signal.SIGINT, 1, True),
        (0, signal.SIGTERM, 0, True),
        (0, signal.SIGWINCH, 0, False),
        (5, signal.SIGWINCH, 0, False),
        (0, signal.SIGCONT, 0, False),
        (5, signal.SIGCONT, 0, True),
    ],
)
def test_signals_that_are_forwarded(
    forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch, leader: int, number: int, code: int, sent: bool
) -> None:
    numbers: list[int] = []
    monkeypatch.setattr(forwarder, "_send_signal", numbers.append)
    monkeypatch.setattr(forwarder, "_enter_raw_mode", lambda: None)
    forwarder._leader_pid = leader
    assert forwarder._handle_signal(number, code) is None
    assert numbers == [number] * sent
    forwarder._pty, forwarder._terminal = 998, 999  # a size that cannot be copied is ignored
    numbers.clear()
    forwarder._handle_signal(signal.SIGWINCH, 0)
    assert numbers == [signal.SIGWINCH] * (not leader)
    forwarder._pty = -1
    assert forwarder._handle_signal(signal.SIGCHLD, 0) is None


def test_receivers_of_signals(forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *call: calls.append(("kill", *call)))
    monkeypatch.setattr(os, "killpg", lambda *call: calls.append(("killpg", *call)))
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: 8)
    forwarder._program_pid = 7
    for leader, number, expected in (
        (0, signal.SIGCONT, [("kill", 7, signal.SIGCONT)]),
        (5, signal.SIGCONT, [("killpg", 7, signal.SIGCONT)]),
        (0, signal.SIGHUP, [("kill", 7, signal.SIGHUP)]),
        (5, signal.SIGHUP, [("kill", 7, signal.SIGHUP), ("killpg", 8, signal.SIGHUP)]),
        (5, signal.SIGTERM, [("kill", 7, signal.SIGTERM)]),
    ):
        forwarder._leader_pid = leader
        calls.clear()
        forwarder._send_signal(number)
        assert calls == expected


def test_full_non_blocking_descriptor_is_awaited() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write_end, bytes(65536))
    child = os.fork()
    if child == 0:
        os.close(write_end)
        while os.read(read_end, 1 << 20):
            pass
        os._exit(0)
    passthrough._write_all(write_end, b"x" * 1_000_000)
    os.close(write_end)
    assert os.waitpid(child, 0)[1] == 0
    os.close(read_end)


def test_signals_are_held_and_ignored_ones_stay_ignored() -> None:
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGCHLD)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with hold_signals() as mask:
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            assert {signal.SIGTERM, signal.SIGUSR2, signal.SIGWINCH, signal.SIGTTOU} <= blocked
            assert signal.SIGUSR1 not in blocked
            assert signal.SIGTERM not in mask
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.signal(signal.SIGUSR1, before[0])
        signal.signal(signal.SIGCHLD, before[1])


def test_dead_parent_is_recognized() -> None:
    assert passthrough._is_orphan(os.getppid() + 1)
    assert not passthrough._is_orphan(os.getppid())
