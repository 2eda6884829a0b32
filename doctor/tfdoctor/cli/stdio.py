"""Keep the standard streams usable if they were closed at the start, or if their reader has exited."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

from tfdoctor.core.output import discard_output

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["can_loader_variables_break_imports", "discard_output", "ensure_standard_streams"]


class _SafeStream:
    """Standard error that ignores write errors, because they must not stop, for example, an installation."""

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
def ensure_standard_streams() -> Iterator[None]:
    """Make all three standard streams usable, and flush standard error at the end.

    A closed stream is None in `sys`, and the next file that is opened would get its file descriptor. Closed streams are
    therefore opened on the null device: standard input and output in the wrong mode, so that using them fails, and
    standard error for writing, so that its text is discarded.
    """
    stderr = sys.stderr
    for descriptor, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, flags)  # gets the lowest free descriptor, which is this one
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


def can_loader_variables_break_imports() -> bool:
    """Return whether LD_LIBRARY_PATH or LD_PRELOAD could be the reason why a module cannot be loaded.

    The result is False if tfdoctor was already restarted without these variables.
    """
    return "TFDOCTOR_LOADER" not in os.environ and any(
        name in os.environ for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")
    )
