"""This machine."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import sys
import threading
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tfdoctor.errors import Error
from tfdoctor.system.children import Children, drop_working_folder
from tfdoctor.system.elf import ElfError, ElfFile, ElfProblem, read_elf
from tfdoctor.system.result import CommandResult, Failure
from tfdoctor.system.symbols import find_unresolved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


T = TypeVar("T")
_NO_MORE = (errno.EMFILE, errno.ENFILE)
_RETRY_S = 2.0
"""Seconds that other threads have to close a file of theirs."""
_ADDRESS_SPACE = 512 << 20
"""Bytes. With less some thread of ours cannot start, and threading waits for one for ever that failed as it began."""


def _patiently(look: Callable[[], T]) -> T:
    """Return what `look` gives.

    That no more files can be opened says nothing of what was looked for: raises Error.
    """
    until = time.monotonic() + _RETRY_S
    while True:
        try:
            return look()
        except OSError as error:
            if error.errno not in _NO_MORE:
                raise
            if time.monotonic() > until:
                raise Error(
                    "no more files can be opened here: this machine could not be looked at.",
                    hint="See `ulimit -n`; 64 are enough.",
                ) from error
        time.sleep(0.02)


def _enough_address_space() -> None:
    """Raises Error where this process may have too little of it to look at a machine."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ADDRESS_SPACE:
        msg = f"this process may use {limit >> 20} MiB of address space: too little to look at this machine."
        raise Error(msg, hint="See `ulimit -v`; 1 GiB is enough for tfdoctor, and TensorFlow needs far more.")


def _get_start_variables() -> dict[str, str]:
    """Return the variables that this process was started with; none if the system does not tell."""
    try:
        raw = Path("/proc/self/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if equals and name}


def get_process_variables() -> dict[str, str]:
    """Return the variables that hold in this very process: as they are now, but what the loader has read at the
    start.
    """
    env, before = dict(os.environ), _get_start_variables()
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if before else ():
        env.pop(name, None)
        if name in before:
            env[name] = before[name]
    return env


def _find_start_changes() -> dict[str, tuple[str | None, str | None]]:
    """Return what this Python's own start (sitecustomize, .pth files) made of the variables: name → (before, after).

    Empty where the system does not tell what a process was started with.
    """
    before = _get_start_variables()
    names = before.keys() | os.environ.keys() if before else set()
    return {
        name: (before.get(name), os.environ.get(name))
        for name in names
        if before.get(name) != os.environ.get(name)
    }


_OWN_START = _find_start_changes()


def get_original_variables() -> dict[str, str]:
    """Return the variables that this process was started with, without what its own Python's start has made of them.

    tfdoctor is often installed in the very environment that is examined: what is set there is set for it, too.
    """
    env = dict(os.environ)
    for line in env.pop(
        "TFDOCTOR_LOADER", ""
    ).splitlines():  # `__main__` left these out for tfdoctor's own sake
        name, _, text = line.partition("=")
        env[name] = text
    for name, (before, after) in _OWN_START.items():
        if env.get(name) != after:
            continue  # changed since, on purpose
        if before is None:
            env.pop(name, None)
        else:
            env[name] = before
    return env


class Begun:
    """Something that a thread of its own does, whose result is asked for later, or never."""

    def __init__(self, work: Callable[[], CommandResult]) -> None:
        self._work = work
        self._ended: list[CommandResult | BaseException] = []
        self._thread = threading.Thread(target=self._do, name="begun", daemon=True)
        self._thread.start()

    def _do(self) -> None:
        try:
            self._ended.append(self._work())
        except BaseException as error:  # whoever asks gets it
            self._ended.append(error)

    def result(self) -> CommandResult:
        """Return its result, or its exception, once it has ended."""
        self._thread.join()
        ended = self._ended[0]
        if isinstance(ended, BaseException):
            raise ended
        return ended


def _words(argv: Sequence[str], env: Mapping[str, str] | None, unset: Sequence[str]) -> object:
    return tuple(argv), tuple(sorted((env or {}).items())), tuple(unset)


class LiveSystem:
    """The machine that tfdoctor runs on; with `root`, the one whose file system is mounted there."""

    def __init__(self, root: str = "/", env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        """Raises Error where this process has too little address space to look at anything."""
        _enough_address_space()
        self._root = root.rstrip("/")
        self._env = get_original_variables() if env is None else dict(env)
        self._cwd = cwd or _current_directory()
        self._children = Children()
        self._begun: dict[object, Begun] = {}

    @property
    def env(self) -> Mapping[str, str]:
        return self._env

    @property
    def cwd(self) -> str:
        return self._cwd

    @cached_property
    def platform(self) -> Mapping[str, str]:
        if hasattr(os, "uname"):
            system, _, release, _, machine = os.uname()
        else:
            import platform  # slow to load

            system, _, release, _, machine, *_ = platform.uname()
        user = str(os.geteuid()) if hasattr(os, "geteuid") else ""
        return {"system": system, "machine": machine, "release": release, "uid": user}

    @property
    def own_python(self) -> str | None:
        return sys.executable or None

    def _locate(self, path: str) -> str:
        return f"{self._root}{path}" if self._root else path

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        # O_NONBLOCK: a FIFO in the place of a file must not hang the doctor.
        descriptor = _patiently(
            lambda: os.open(self._locate(path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        )
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(limit)

    def read_elf(self, path: str) -> ElfFile:
        mode = os.stat(self._locate(path)).st_mode  # noqa: PTH116 - the error is the loader's, too
        if stat.S_ISFIFO(mode):
            raise ElfError(ElfProblem.PIPE)
        if stat.S_ISSOCK(mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise ElfError(ElfProblem.BAD_MAGIC, "a device")
        if not stat.S_ISREG(mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return _patiently(lambda: read_elf(self._locate(path), self.platform["machine"]))

    def unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        try:
            there = [self._locate(provider) for provider in providers]
            return _patiently(lambda: find_unresolved(self._locate(path), there))
        except OSError:
            return ()

    def exists(self, path: str) -> bool:
        return os.path.exists(self._locate(path))  # noqa: PTH110 - never raises, unlike Path.exists before 3.14

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(self._locate(path))  # noqa: PTH112

    def listdir(self, path: str) -> list[str]:
        return sorted(_patiently(lambda: os.listdir(self._locate(path))))  # noqa: PTH208

    def realpath(self, path: str) -> str:
        resolved = os.path.realpath(self._locate(path))
        if self._root and resolved.startswith(self._root):
            return resolved[len(self._root) :] or "/"
        return resolved

    def which(self, name: str) -> str | None:
        return shutil.which(name, path=drop_working_folder(self._env).get("PATH", os.defpath))

    def begin(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",  # noqa: ARG002 - a recording's
    ) -> None:
        """Start what `run` will be asked for in the same words; it then waits for that."""
        begun = Begun(lambda: self._run(argv, timeout, env, unset))
        self._begun[_words(argv, env, unset)] = begun

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",  # noqa: ARG002 - a recording's
    ) -> CommandResult:
        begun = self._begun.pop(_words(argv, env, unset), None) if self._begun else None
        return begun.result() if begun is not None else self._run(argv, timeout, env, unset)

    def follow(
        self,
        argv: Sequence[str],
        heard: Callable[[bytes], None],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
    ) -> CommandResult:
        """As `run`; `heard` is told its standard output as it comes, all of it, also where it is cut short."""
        return self._run(argv, timeout, env, unset, heard)

    def _run(
        self,
        argv: Sequence[str],
        timeout: float,
        env: Mapping[str, str] | None,
        unset: Sequence[str],
        heard: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        environment = {name: value for name, value in self._env.items() if name not in unset}
        environment.update(env or {})
        started = time.monotonic()

        def make_result(returncode: int | None, **more: object) -> CommandResult:
            return CommandResult(tuple(argv), returncode, seconds=time.monotonic() - started, **more)  # type: ignore[arg-type]

        cwd = self._cwd if Path(self._cwd).is_dir() else None
        try:
            ran = _patiently(
                lambda: self._children.run(argv, timeout=timeout, env=environment, cwd=cwd, heard=heard)
            )
        except FileNotFoundError as error:
            return make_result(None, failure=Failure.NOT_FOUND, detail=error.strerror or "")
        except PermissionError as error:
            return make_result(None, failure=Failure.PERMISSION, detail=error.strerror or "")
        except (OSError, ValueError) as error:
            return make_result(None, failure=Failure.OS_ERROR, detail=str(error))
        failure = Failure.TIMEOUT if ran.returncode is None else None
        return make_result(
            ran.returncode, failure=failure, stdout=_text(ran.stdout), stderr=_text(ran.stderr)
        )

    def stop(self) -> None:
        self._begun.clear()
        self._children.stop()


def _current_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - not resolved
    except OSError:  # removed under our feet
        return "/"


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")
