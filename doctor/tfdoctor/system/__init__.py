"""Access to a machine: its files, environment variables and commands.

`LiveSystem` is this machine; `RecordedSystem` is a recording that a `RecordingSystem` wrote, or that a test
wrote by hand. Probes take a `System` and work with any of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from tfdoctor.system.elf import ElfError, ElfFile, ElfProblem
from tfdoctor.system.live import LiveSystem
from tfdoctor.system.result import CommandResult, Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.system.recorded import RecordedSystem
    from tfdoctor.system.recording import RecordingSystem

__all__ = [
    "CommandResult",
    "ElfError",
    "ElfFile",
    "ElfProblem",
    "Failure",
    "LiveSystem",
    "RecordedSystem",
    "RecordingSystem",
    "System",
]


class System(Protocol):
    """The operations that probes may use on a machine. Paths are absolute POSIX paths of that machine."""

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables, as they were when the process started."""
        ...

    @property
    def cwd(self) -> str:
        """The working directory, which an empty entry of LD_LIBRARY_PATH refers to."""
        ...

    @property
    def platform(self) -> Mapping[str, str]:
        """Values for `system` ("Linux", "Windows", "Darwin"), `machine` ("x86_64"), `release` (kernel) and `uid`."""
        ...

    @property
    def own_python(self) -> str | None:
        """The interpreter that runs tfdoctor on that machine; None if there is none."""
        ...

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        """Return at most `limit` bytes of a file as text, undecodable bytes replaced. Raises OSError."""
        ...

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        """Return at most `limit` bytes of a file. Raises OSError."""
        ...

    def read_elf(self, path: str) -> ElfFile:
        """Return the dynamic section of an ELF object.

        Raises OSError if the file cannot be read, ElfError if the loader would reject it.
        """
        ...

    def find_unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        """Return the symbols that the object at `path` needs and none of the objects at `providers` defines."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a path exists; a dangling symbolic link does not."""
        ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. Raises OSError."""
        ...

    def realpath(self, path: str) -> str:
        """Return the path with every symbolic link resolved that can be resolved."""
        ...

    def which(self, name: str) -> str | None:
        """Return the path of a command that is on PATH; None if it is not."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",
    ) -> CommandResult:
        """Run a command without a shell and without standard input; never raises.

        `timeout` is in seconds; after it the whole process group is killed. The variables of `env` are added
        to the environment and those of `unset` removed. `key` identifies the command in a recording if its
        arguments contain paths that differ between machines.
        """
        ...

    def stop(self) -> None:
        """Kill every running command, and any that is started later, because the user wants to quit."""
        ...


def __getattr__(name: str) -> object:
    """Import the recording classes on first use: few commands need them, and they import the archive modules."""
    module = {"RecordedSystem": "recorded", "RecordingSystem": "recording"}.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"tfdoctor.system.{module}"), name)
