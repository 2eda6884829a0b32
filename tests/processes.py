"""The processes on this machine, found without procps, which a minimal Debian lacks."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def find_processes_by_word(text: str) -> Sequence[int]:
    """Return the ids of the processes with a text on their command line."""
    ids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    ids.append(int(entry.name))
    return ids


def find_processes_of(folder: Path) -> Sequence[int]:
    """Return the ids of other processes that name a folder.

    The folder may be on their command line or in their environment.
    """
    ids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                content = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if str(folder).encode() in content:
                    ids.append(int(entry.name))
    return ids


def wait_for_processes(folder: Path, *, beside: Collection[int] = (), seconds: float = 10.0) -> set[int]:
    """Wait until no process names a folder, and return the ids that are left after `seconds`.

    beside: processes to ignore. A killed process may take a moment to end.
    """
    deadline = time.monotonic() + seconds
    while (ids := set(find_processes_of(folder)).difference(beside)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return ids
