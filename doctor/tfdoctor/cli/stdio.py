"""The standard streams while a command ends: closed from the start, or where nobody reads what it writes."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["give_up", "may_be_loader", "standard_streams"]


class _Aside:
    """Standard error. What cannot be told there must not end what is being done, an installation for example."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            give_up(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            give_up(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Three streams that can be used, whatever we were started with.

    One that is closed has no object in `sys`, and would give its number to the next file. Standard input and output
    are opened so that using them fails as on a closed one, standard error so that it takes everything.
    """
    before = sys.stderr
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, flags)  # takes the lowest free number: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor, for good
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if before is None:
        before = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = cast("TextIO", _Aside(before))
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = before


def give_up(stream: TextIO) -> None:
    """What is still to be written to a stream that takes nothing goes nowhere: else Python fails at its end."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        stream.flush()


def may_be_loader() -> bool:
    """Return whether LD_LIBRARY_PATH or LD_PRELOAD may be why a module does not load.

    No start without them was tried.
    """
    return "TFDOCTOR_LOADER" not in os.environ and any(
        name in os.environ for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")
    )
