"""Discard what is written to a stream that nobody reads."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["discard_output"]


def discard_output(stream: TextIO) -> None:
    """Discard the buffered text of a broken stream, because flushing it would fail when Python exits."""
    with contextlib.suppress(OSError, ValueError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream.fileno())
        os.close(null_device)
        stream.flush()
