"""Handle termination signals.

A termination signal is handled like Ctrl-C. All programs that tfdoctor started are killed, and an exception is
raised so that the code can clean up. Finally the process ends itself with the same signal, so that its parent
can see it.
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
    "end_with_signal",
    "handle_termination_signals",
    "stop_on_signal",
    "use_default_signals",
]


class TerminationError(KeyboardInterrupt):
    """A termination signal other than Ctrl-C. It is a KeyboardInterrupt, so that the same code cleans up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stoppable(Protocol):
    """An object that runs programs and can kill them."""

    def stop(self) -> None:
        """Kill all running programs."""
        ...


_received: list[int] = []
"""The numbers of the termination signals that were received."""


@contextlib.contextmanager
def handle_termination_signals() -> Iterator[list[int]]:
    """Handle termination signals while a command runs. Yield the list of the received signals."""
    _received.clear()
    previous_hook = sys.unraisablehook

    def report_unless_signal(unraisable: sys.UnraisableHookArgs) -> None:
        """Report an exception that CPython dropped, unless a signal caused it."""
        if not (_received and isinstance(unraisable.exc_value, KeyboardInterrupt)):
            previous_hook(unraisable)

    # CPython prints the traceback of an exception that it drops. If a signal caused the exception, that is
    # unnecessary, because `_raise_dropped` raises it again.
    sys.unraisablehook = report_unless_signal
    try:
        with _use_handler(_end_command):
            yield _received
    finally:
        sys.unraisablehook = previous_hook


def _end_command(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    stop_all()
    _raise_exception(number, frame)


@contextlib.contextmanager
def stop_on_signal(system: Stoppable) -> Iterator[None]:
    """On a termination signal, stop `system`, kill all programs of tfdoctor, and leave the block.

    CPython drops a KeyboardInterrupt in some callbacks. Such a Ctrl-C would be lost, and the probes would run to
    their time limits. It is therefore raised again at the start and at the end of the block.
    """

    def stop_and_end(number: int, frame: FrameType | None) -> None:
        system.stop()
        _end_command(number, frame)

    with _use_handler(stop_and_end):
        _raise_dropped()
        yield
        _raise_dropped()


def _raise_dropped() -> None:
    """Raise the exception of the first received signal again, because CPython may have dropped it."""
    if _received:
        _raise_exception(_received[0], None)


def _raise_exception(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        signal.default_int_handler(number, frame)
    raise TerminationError(number)


@contextlib.contextmanager
def _use_handler(handler: Callable[[int, FrameType | None], None] | int) -> Iterator[None]:
    """Install a handler for the termination signals, except for ignored ones.

    Signals are ignored under `nohup` and in background processes, for example.
    """
    previous_handlers = {}
    if threading.current_thread() is threading.main_thread():
        previous_handlers = {number: signal.getsignal(number) for number in TERMINATION_SIGNALS}
    handled_signals = [
        number
        for number, previous in previous_handlers.items()
        if previous is not signal.SIG_IGN and previous is not None
    ]
    try:
        for number in handled_signals:
            signal.signal(number, handler)
        yield
    finally:
        for number in handled_signals:
            signal.signal(number, previous_handlers[number])


@contextlib.contextmanager
def use_default_signals() -> Iterator[None]:
    """Use Python's default handlers: Ctrl-C raises KeyboardInterrupt, other signals end the process."""
    with _use_handler(signal.SIG_DFL):
        if threading.current_thread() is threading.main_thread() and (
            signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        ):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


def end_with_signal(number: int) -> NoReturn:
    """End the process with a signal, so that its parent can see it, and without a core dump."""
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
    # Most signals do not end PID 1 of a container. A shell reports a signal as 128 plus its number.
    os._exit(128 + number)
