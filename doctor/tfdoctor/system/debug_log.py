"""The lines that `--debug` writes to standard error: which files and commands were looked at, and how long it took."""

from __future__ import annotations

import sys
import time

__all__ = ["enable", "write"]

_start_time: float | None = None
"""The time at which the log was enabled. None while it is disabled."""


def enable() -> None:
    """Enable the log."""
    global _start_time  # noqa: PLW0603 - one log for the process
    _start_time = time.monotonic()


def write(kind: str, text: str, seconds: float | None = None) -> None:
    """Write a line with the time since the start, and how long it took in seconds. Do nothing if the log is disabled."""
    if _start_time is not None:
        from tfdoctor.core.text import clean_line

        duration = f" ({seconds:.3f} s)" if seconds is not None else ""
        elapsed = time.monotonic() - _start_time
        sys.stderr.write(f"{elapsed:8.3f} s  {kind:8}{clean_line(text, limit=300)}{duration}\n")
