"""Find the Python that runs TensorFlow below a started program, such as a shell script, `uv run` or `mpirun`. Linux only."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PythonWatch"]

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 2.0
"""The delay before the next look at the processes grows to this number of seconds."""
MAX_PROCESSES = 2000
MAX_MAPS_BYTES = 8 << 20
_TENSORFLOW_LIBRARY = re.compile(
    rb" (/[^\n]{0,400})/lib(?:64)?/(python3\.\d{1,2})/(?:site|dist)-packages/tensorflow[^\n/]{0,40}/[^\n]{1,300}\.so"
)
"""A line of /proc/PID/maps: the prefix and the version of the Python whose TensorFlow is loaded."""


class PythonWatch:
    """Looks in the background at the processes below this one, until one of them has loaded TensorFlow."""

    def __init__(self, replaced: Mapping[str, str | None]) -> None:
        """Prepare the watch. `replaced` has the values of the variables that tfdoctor changed for the program."""
        self.python: str | None = None
        """The interpreter of that process, or None if none was seen."""
        self.env: dict[str, str] = {}
        """The environment variables with which that process was started, without the changes of tfdoctor."""
        self._replaced = replaced
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def _watch(self) -> None:
        delay = FIRST_DELAY_S
        while not self._stop.wait(delay):
            if any(self._has_tensorflow(process) for process in _iter_descendants()):
                return
            delay = min(1.2 * delay, MAX_DELAY_S)

    def _has_tensorflow(self, process: Path) -> bool:
        """Return whether a process of this mount namespace has loaded TensorFlow, and remember its Python."""
        try:
            # In another mount namespace, such as that of a container, the paths mean other files.
            if (process / "ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
                return False
            with (process / "maps").open("rb") as file:
                library = _TENSORFLOW_LIBRARY.search(file.read(MAX_MAPS_BYTES))
            if library is None:
                return False
            python = os.fsdecode(library[1] + b"/bin/" + library[2])
            # The packages of a user or of Debian's Python lie under another prefix than the interpreter.
            self.python = python if os.access(python, os.X_OK) else str((process / "exe").readlink())
            variables = os.fsdecode((process / "environ").read_bytes()).split("\0")
        except OSError:  # it has ended, or belongs to another user
            return False
        pairs = (entry.partition("=") for entry in variables if "=" in entry)
        env = {name: value for name, _, value in pairs} | dict(self._replaced)
        self.env = {name: value for name, value in env.items() if value is not None}
        return True


def _iter_descendants() -> Iterator[Path]:
    """Yield the folders in /proc of the processes below this one."""
    pending = [Path("/proc/self")]
    for _ in range(MAX_PROCESSES):
        if not pending:
            return
        process = pending.pop()
        try:
            children = [
                Path("/proc", pid)
                for task in (process / "task").iterdir()
                for pid in (task / "children").read_text(encoding="ascii").split()
            ]
        except OSError:
            continue
        yield from children
        pending += children
