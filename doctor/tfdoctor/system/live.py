"""This machine."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tfdoctor.system.elf import ElfFile, read_elf
from tfdoctor.system.result import CommandResult, Failure
from tfdoctor.system.symbols import unresolved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_OUTPUT = 4 << 20
"""Bytes of a command's output that are kept; the rest is dropped, the command is not disturbed."""


class LiveSystem:
    """The machine that tfdoctor runs on; with `root`, the one whose file system is mounted there."""

    def __init__(self, root: str = "/", env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        self._root = root.rstrip("/")
        self._env = dict(os.environ if env is None else env)
        self._cwd = cwd or _current_directory()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    @property
    def env(self) -> Mapping[str, str]:
        return self._env

    @property
    def cwd(self) -> str:
        return self._cwd

    @property
    def platform(self) -> Mapping[str, str]:
        uname = platform.uname()
        user = str(os.geteuid()) if hasattr(os, "geteuid") else ""
        return {"system": uname.system, "machine": uname.machine, "release": uname.release, "uid": user}

    @property
    def own_python(self) -> str | None:
        return sys.executable or None

    def _at(self, path: str) -> str:
        return f"{self._root}{path}" if self._root else path

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        # O_NONBLOCK: a FIFO in the place of a file must not hang the doctor.
        descriptor = os.open(self._at(path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(limit)

    def read_elf(self, path: str) -> ElfFile:
        if not Path(self._at(path)).is_file():
            with contextlib.suppress(IsADirectoryError):
                os.stat(self._at(path))  # noqa: PTH116 - for its error
            raise IsADirectoryError(21, "Is a directory", path)
        return read_elf(self._at(path), self.platform["machine"])

    def unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        try:
            return unresolved(self._at(path), [self._at(provider) for provider in providers])
        except OSError:
            return ()

    def exists(self, path: str) -> bool:
        return os.path.exists(self._at(path))  # noqa: PTH110 - never raises, unlike Path.exists before 3.14

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(self._at(path))  # noqa: PTH112

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(self._at(path)))  # noqa: PTH208

    def realpath(self, path: str) -> str:
        resolved = os.path.realpath(self._at(path))
        if self._root and resolved.startswith(self._root):
            return resolved[len(self._root) :] or "/"
        return resolved

    def which(self, name: str) -> str | None:
        return shutil.which(name, path=self._env.get("PATH", os.defpath))

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",  # noqa: ARG002 - a recording's
    ) -> CommandResult:
        environment = {name: value for name, value in self._env.items() if name not in unset}
        environment.update(env or {})
        started = time.monotonic()

        def ended(returncode: int | None, **more: object) -> CommandResult:
            return CommandResult(tuple(argv), returncode, seconds=time.monotonic() - started, **more)  # type: ignore[arg-type]

        # Files, not pipes: a grandchild that keeps a pipe open cannot hold us, and output has no limit to fill.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=environment,
                    cwd=self._cwd if Path(self._cwd).is_dir() else None,
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                return ended(None, failure=Failure.NOT_FOUND, detail=error.strerror or "")
            except PermissionError as error:
                return ended(None, failure=Failure.PERMISSION, detail=error.strerror or "")
            except (OSError, ValueError) as error:
                return ended(None, failure=Failure.OS_ERROR, detail=str(error))
            self._running.add(process)
            try:
                if self._stopped:
                    _kill(process)
                returncode = process.wait(timeout)
            except subprocess.TimeoutExpired:
                _kill(process)
                return ended(None, failure=Failure.TIMEOUT, stdout=_text(out), stderr=_text(err))
            except BaseException:  # Ctrl-C: nothing that we started may outlive us
                _kill(process)
                raise
            finally:
                self._running.discard(process)
            return ended(returncode, stdout=_text(out), stderr=_text(err))

    def stop(self) -> None:
        self._stopped = True
        for process in list(self._running):
            _kill(process)


def _current_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - not resolved
    except OSError:  # removed under our feet
        return "/"


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(MAX_OUTPUT).decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole process group; a process stuck in the driver (state D) is left to the kernel."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
