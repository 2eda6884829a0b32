"""Signal handling: how tfdoctor ends early.

A termination signal is handled like Ctrl-C: every program that tfdoctor started is killed, the exception
cleans up, and finally the process ends itself with the same signal, so that its parent sees it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn, Protocol

from tfdoctor.system.children import TERMINATION_SIGNALS, stop_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = [
    "Stoppable",
    "TerminationError",
    "die",
    "handle_ending_signals",
    "stop_on_signal",
    "use_default_signals",
]


class TerminationError(KeyboardInterrupt):
    """A termination signal other than that of Ctrl-C. Code that cleans up after Ctrl-C handles it too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stoppable(Protocol):
    """An object that runs programs and can kill them."""

    def stop(self) -> None:
        """Kill all of them."""
        ...


_received: list[int] = []
"""The numbers of the termination signals that were received."""


@contextlib.contextmanager
def handle_ending_signals() -> Iterator[list[int]]:
    """Handle termination signals while a command runs; yield the list of those received."""
    _received.clear()
    report = sys.unraisablehook

    def report_others(dropped: sys.UnraisableHookArgs) -> None:
        """Report a dropped exception, unless a received signal raised it."""
        if not (_received and isinstance(dropped.exc_value, KeyboardInterrupt)):
            report(dropped)

    # CPython prints a traceback of a dropped exception; `_raise_dropped` raises it again.
    sys.unraisablehook = report_others
    try:
        with _use_handler(_end_command):
            yield _received
    finally:
        sys.unraisablehook = report


def _end_command(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    stop_all()
    _raise(number, frame)


@contextlib.contextmanager
def stop_on_signal(system: Stoppable) -> Iterator[None]:
    """On a termination signal, kill every program that tfdoctor runs and leave the block.

    CPython drops a KeyboardInterrupt that is raised in one of its own callbacks. Such a Ctrl-C would be lost,
    and the probes would run to their time limits; therefore it is raised again at the start and at the end of
    the block.
    """

    def end(number: int, frame: FrameType | None) -> None:
        system.stop()
        _end_command(number, frame)

    with _use_handler(end):
        _raise_dropped()
        yield
        _raise_dropped()


def _raise_dropped() -> None:
    """Raise the exception of a signal that was received, in case CPython dropped it."""
    if _received:
        _raise(_received[0], None)


def _raise(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        signal.default_int_handler(number, frame)
    raise TerminationError(number)


@contextlib.contextmanager
def _use_handler(handler: Callable[[int, FrameType | None], None] | int) -> Iterator[None]:
    """Install a handler for the termination signals that are not ignored (as with `nohup` or in the background)."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in TERMINATION_SIGNALS}
    handled = [
        number
        for number, previous in before.items()
        if previous is not signal.SIG_IGN and previous is not None
    ]
    try:
        for number in handled:
            signal.signal(number, handler)
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


@contextlib.contextmanager
def use_default_signals() -> Iterator[None]:
    """Give signals their default behaviour: Ctrl-C raises KeyboardInterrupt, the others end the process."""
    with _use_handler(signal.SIG_DFL):
        if threading.current_thread() is threading.main_thread() and (
            signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        ):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


def die(number: int) -> NoReturn:
    """End the process with this signal and without a core dump, so that its parent sees the signal."""
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
    os._exit(128 + number)  # PID 1 of a container: most signals do not end it
