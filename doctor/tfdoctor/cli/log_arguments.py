"""The log arguments of `diagnose`, and notes on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfdoctor.core.errors import UsageError
from tfdoctor.verification.running.streams import STDIN

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["select_logs", "write_note"]


def select_logs(files: Sequence[str], command: str) -> list[str]:
    """Return the named logs, or standard input if there are none.

    `command` is for the error message. Raise UsageError if standard input would be read but is closed, or if no log is
    named and standard input is a terminal.
    """
    if not files and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError(
            "no log to read.", hint=f"Name a file, or pipe one: `python train.py 2>&1 | tfdoctor {command}`."
        )
    names = list(files) or [STDIN]
    if STDIN in names and sys.stdin is None:
        raise UsageError("standard input is closed.")
    return names


def write_note(text: str) -> None:
    """Write a note to standard error."""
    sys.stderr.write(f"tfdoctor: {text}\n")
