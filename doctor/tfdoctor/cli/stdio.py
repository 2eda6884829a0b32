"""Standard streams that stay usable: if they were closed at the start, or if nobody reads their other end."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["discard_output", "may_be_loader", "standard_streams"]


class _SafeStream:
    """Standard error without errors: a failure to write there must not stop an installation, for example."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            discard_output(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            discard_output(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Make all three standard streams usable, and flush standard error at the end.

    A closed stream is None in `sys`, and its number would be given to the next file. Standard input and output are
    opened so that their use fails as on a closed stream, standard error so that it takes everything.
    """
    stderr = sys.stderr
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, flags)  # takes the lowest free number: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open for good
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if stderr is None:
        stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = cast("TextIO", _SafeStream(stderr))
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = stderr


def discard_output(stream: TextIO) -> None:
    """Discard what a broken stream still holds; otherwise Python fails at its exit."""
    with contextlib.suppress(OSError, ValueError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream.fileno())
        os.close(null_device)
        stream.flush()


def may_be_loader() -> bool:
    """Return whether LD_LIBRARY_PATH or LD_PRELOAD may be the reason why a module cannot be loaded.

    False if tfdoctor was already restarted without them.
    """
    return "TFDOCTOR_LOADER" not in os.environ and any(
        name in os.environ for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")
    )
