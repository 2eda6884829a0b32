"""Access a machine: its files, environment variables and commands.

`LiveSystem` is this machine. `RecordedSystem` is a recording, written by a `RecordingSystem` or by the author of a
test. Probes take a `System` and work with any of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.system.elf import ElfError, ElfFile, ElfProblem
    from tfdoctor.system.live import LiveSystem
    from tfdoctor.system.recorded import RecordedSystem
    from tfdoctor.system.recording import RecordingSystem
    from tfdoctor.system.result import CommandResult, Failure

__all__ = [
    "INTERPRETER_PATHS",
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

MODULE_BY_NAME = {
    "CommandResult": "result",
    "ElfError": "elf",
    "ElfFile": "elf",
    "ElfProblem": "elf",
    "Failure": "result",
    "LiveSystem": "live",
    "RecordedSystem": "recorded",
    "RecordingSystem": "recording",
}
"""The module of each class."""
INTERPRETER_PATHS = ("bin/python", "bin/python3", "python.exe", "Scripts/python.exe")
"""The paths of an interpreter in the folder of an environment."""


class System(Protocol):
    """The operations that a probe may use on a machine. Paths are absolute POSIX paths of that machine."""

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables with which the process was started."""
        ...

    @property
    def cwd(self) -> str:
        """The working directory. An empty entry of LD_LIBRARY_PATH refers to it."""
        ...

    @property
    def platform(self) -> Mapping[str, str]:
        """`system` ("Linux", "Windows", "Darwin"), `machine` ("x86_64"), `release` of the kernel, and `uid`."""
        ...

    @property
    def own_python(self) -> str | None:
        """The interpreter that runs tfdoctor on that machine; None if there is none."""
        ...

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        """Return at most `limit` bytes of a file as text. Undecodable bytes are replaced.

        Raise OSError if the file cannot be read.
        """
        ...

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        """Return at most `limit` bytes of a file. Raise OSError if it cannot be read."""
        ...

    def read_elf(self, path: str) -> ElfFile:
        """Return the dynamic section of an ELF object.

        Raise OSError if the file cannot be read, or ElfError if the loader would reject it.
        """
        ...

    def find_unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        """Return the symbols that the object at `path` needs and none of the objects at `providers` defines."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a path exists. A dangling symbolic link counts as missing."""
        ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory. Raise OSError if it cannot be listed."""
        ...

    def realpath(self, path: str) -> str:
        """Return the path with its symbolic links resolved as far as they exist."""
        ...

    def which(self, name: str) -> str | None:
        """Return the path of a command on PATH; None if there is no such command."""
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
        """Run a command without a shell and without standard input. Never raise an exception.

        After `timeout` seconds the whole process group is killed. The variables in `env` are added to the
        environment, and those in `unset` are removed. `key` identifies the command in a recording if its
        arguments contain paths that differ between machines. If it is "", the arguments identify the command.
        """
        ...

    def stop(self) -> None:
        """Kill all running commands, and prevent or kill later ones."""
        ...


def __getattr__(name: str) -> object:
    """Import a class on first use, because `--help` needs none of them, and few commands need the recording classes."""
    module = MODULE_BY_NAME.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"tfdoctor.system.{module}"), name)
