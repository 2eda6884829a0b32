"""How tfdoctor ends before its time by a signal.

A signal that asks us to end is handled like Ctrl-C: every program that we started is killed, what is half done is
tidied up by the exception, and at the end we die by that very signal, so that whoever started us sees it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn, Protocol

from tfdoctor.system.children import ENDING, stop_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["EndedError", "Stoppable", "as_ever", "die", "handle_ending_signals", "stop_on_signal"]


class EndedError(KeyboardInterrupt):
    """A signal other than Ctrl-C's asks us to end. Whoever tidies up after Ctrl-C does after this, too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stoppable(Protocol):
    """What runs things that can be ended."""

    def stop(self) -> None:
        """End all of them."""
        ...


_came: list[int] = []
"""The signals that asked this command to end."""


@contextlib.contextmanager
def handle_ending_signals() -> Iterator[list[int]]:
    """A whole command: the signals that ask it to end are heard from here on; the list has those that came."""
    _came.clear()
    report = sys.unraisablehook

    def report_others(dropped: sys.UnraisableHookArgs) -> None:
        if not (_came and isinstance(dropped.exc_value, KeyboardInterrupt)):
            report(dropped)

    sys.unraisablehook = (
        report_others  # CPython prints a traceback of what it drops; `_raise_dropped` raises it again
    )
    try:
        with _use_handler(_end):
            yield _came
    finally:
        sys.unraisablehook = report


def _end(number: int, frame: FrameType | None) -> None:
    _came.append(number)
    stop_all()
    _raise(number, frame)


@contextlib.contextmanager
def stop_on_signal(system: Stoppable) -> Iterator[None]:
    """A signal that asks us to end kills everything that `system`, or anybody here, runs, and ends the block.

    CPython drops a KeyboardInterrupt that is raised within one of its own callbacks: without this such a Ctrl-C
    would be lost, and the probes run on to their deadlines.
    """

    def end(number: int, frame: FrameType | None) -> None:
        system.stop()
        _end(number, frame)

    with _use_handler(end):
        _raise_dropped()
        yield
        _raise_dropped()


def _raise_dropped() -> None:
    """A signal whose exception was dropped."""
    if _came:
        _raise(_came[0], None)


def _raise(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        signal.default_int_handler(number, frame)
    raise EndedError(number)


@contextlib.contextmanager
def _use_handler(handler: Callable[[int, FrameType | None], None] | int) -> Iterator[None]:
    """With this handler for all of them but those that are ignored (`nohup`, a shell's background)."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in ENDING}
    ours = [number for number, known in before.items() if known is not signal.SIG_IGN and known is not None]
    try:
        for number in ours:
            signal.signal(number, handler)
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


@contextlib.contextmanager
def as_ever() -> Iterator[None]:
    """Signals do what they do to any program, Ctrl-C what it does to Python."""
    with _use_handler(signal.SIG_DFL):
        if threading.current_thread() is threading.main_thread() and (
            signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        ):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


def die(number: int) -> NoReturn:
    """End by this signal, without a core of our own: whoever waits for us sees what it would have seen."""
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(128 + number)  # as the first process of a container, which most signals do not end
