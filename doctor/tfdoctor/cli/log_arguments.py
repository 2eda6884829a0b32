"""Which logs a command reads, and what it says while it does: what diagnose and placement take alike."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfdoctor.errors import UsageError
from tfdoctor.running.streams import STDIN

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["list_logs", "note"]


def list_logs(files: Sequence[str], command: str) -> list[str]:
    """Return the logs that were named, else standard input.

    Raises UsageError if nothing can come from there.
    """
    if not files and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError(
            "no log to read.", hint=f"Name a file, or pipe one: `python train.py 2>&1 | tfdoctor {command}`."
        )
    names = list(files) or [STDIN]
    if STDIN in names and sys.stdin is None:
        raise UsageError("standard input is closed.")
    return names


def note(text: str) -> None:
    """A sentence beside the answer."""
    sys.stderr.write(f"tfdoctor: {text}\n")
