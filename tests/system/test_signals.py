"""Termination signals stop the programs and leave the block; ignored signals stay ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tfdoctor.system import signals


class Programs:
    """Programs that note that they were stopped."""

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture(autouse=True)
def forget_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test stop the programs of later tests."""
    monkeypatch.setattr(signals, "stop_all", lambda: None)
    monkeypatch.setattr(signals, "_received", [])


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGTERM, signals.TerminationError), (signal.SIGINT, KeyboardInterrupt)],
)
def test_signal_stops_the_programs_and_leaves_the_block(
    number: signal.Signals, error: type[BaseException]
) -> None:
    programs = Programs()
    handlers = signal.getsignal(number)
    with (
        signals.handle_termination_signals() as received,
        pytest.raises(error) as caught,
        signals.stop_on_signal(programs),
    ):
        os.kill(os.getpid(), number)
    assert received == [number]
    assert programs.is_stopped
    assert isinstance(caught.value, signals.TerminationError) is (number != signal.SIGINT)
    assert signal.getsignal(number) is handlers


def test_dropped_exception_is_raised_again() -> None:
    """CPython drops an exception that is raised in a callback."""
    with pytest.raises(signals.TerminationError) as caught, signals.stop_on_signal(Programs()):
        signals._received[:] = [signal.SIGHUP, signal.SIGTERM]
    assert caught.value.number == signal.SIGHUP
    with pytest.raises(signals.TerminationError), signals.stop_on_signal(Programs()):
        pytest.fail("the block is not entered")


@pytest.mark.parametrize(
    ("has_signal", "error", "is_reported"),
    [(False, KeyboardInterrupt(), True), (True, ValueError(), True), (True, KeyboardInterrupt(), False)],
)
def test_only_exceptions_of_signals_are_not_reported(
    monkeypatch: pytest.MonkeyPatch, has_signal: bool, error: BaseException, is_reported: bool
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    previous = sys.unraisablehook
    with signals.handle_termination_signals() as received:
        received.extend([signal.SIGTERM] * has_signal)
        sys.unraisablehook(SimpleNamespace(exc_value=error))  # type: ignore[arg-type]
    assert bool(reported) is is_reported
    assert sys.unraisablehook == previous


def test_ignored_signal_stays_ignored() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        for block in (signals.handle_termination_signals, signals.use_default_signals):
            with block():
                assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
                assert (
                    signal.getsignal(signal.SIGTERM) is not previous or block is signals.use_default_signals
                )
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_default_signals_raise_only_for_an_interrupt() -> None:
    with signals.handle_termination_signals(), signals.use_default_signals():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals.use_default_signals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)


def test_handlers_are_left_alone_outside_the_main_thread() -> None:
    handlers: list[object] = []

    def run() -> None:
        with signals.handle_termination_signals(), signals.use_default_signals():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [before]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -9), (0, 128)]
)
def test_process_ends_with_the_signal(number: int, status: int) -> None:
    code = f"""
import resource, signal, sys
from tfdoctor.system.signals import end_with_signal
if {int(number)}:
    signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])
    signal.signal(15, lambda *_: None)
sys.stderr.write("end")
end_with_signal({int(number)})
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (completed.returncode, completed.stderr) == (status, b"end")
