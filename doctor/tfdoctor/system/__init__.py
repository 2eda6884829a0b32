"""The only door to the world: files, environment, commands.

`LiveSystem` is this machine, `RecordedSystem` a folder that was written by a `RecordingSystem` (or by hand,
for a test). Probes take a `System` and cannot tell which one they have.
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
    """What probes may ask of a machine. Paths are absolute POSIX paths as that machine names them."""

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables, as they were when the process started."""
        ...

    @property
    def cwd(self) -> str:
        """The working directory: empty entries of LD_LIBRARY_PATH mean it."""
        ...

    @property
    def platform(self) -> Mapping[str, str]:
        """`system` ("Linux", "Windows", "Darwin"), `machine` ("x86_64"), `release` (the kernel's), `uid`."""
        ...

    @property
    def own_python(self) -> str | None:
        """A Python of tfdoctor's own on that machine; None where there is none but those that are looked at."""
        ...

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        """At most `limit` bytes of a file, undecodable bytes replaced. Raises OSError."""
        ...

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        """At most `limit` bytes of a file. Raises OSError."""
        ...

    def read_elf(self, path: str) -> ElfFile:
        """Return the dynamic section of an ELF object.

        Raises OSError, or ElfError with what glibc would object to.
        """
        ...

    def unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        """Return the symbols that the object at `path` needs and none of the objects at `providers` defines."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether the path leads to something (a dangling symbolic link does not)."""
        ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. Raises OSError."""
        ...

    def realpath(self, path: str) -> str:
        """Return the path with every symbolic link resolved, as far as it leads."""
        ...

    def which(self, name: str) -> str | None:
        """Return where the command is on PATH."""
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
        """Run a command without a shell and with no standard input; never raises.

        `timeout` is in seconds; the whole process group is killed at its end. `env` is added to, and `unset`
        removed from, the environment. `key` names the command in a recording where its arguments contain
        paths that differ from machine to machine.
        """
        ...

    def stop(self) -> None:
        """Kill every command that still runs, and any that is started from now on: the user wants to leave."""
        ...


def __getattr__(name: str) -> object:
    """Recordings are seldom needed, and bring archives with them."""
    module = {"RecordedSystem": "recorded", "RecordingSystem": "recording"}.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"tfdoctor.system.{module}"), name)
