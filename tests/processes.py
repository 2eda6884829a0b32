"""What runs on this machine, without procps: a bare Debian has none."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def processes_with(word: str) -> Sequence[int]:
    """The processes that have a word on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def processes_of(folder: Path) -> Sequence[int]:
    """The processes, beside this one, that name a folder on their command line or in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if str(folder).encode() in told:
                    found.append(int(entry.name))
    return found


def processes_stay(folder: Path, *, beside: Collection[int] = (), seconds: float = 10.0) -> set[int]:
    """Those that are still there, beside these: what was killed may take a moment."""
    until = time.monotonic() + seconds
    while (found := set(processes_of(folder)).difference(beside)) and time.monotonic() < until:
        time.sleep(0.1)
    return found
