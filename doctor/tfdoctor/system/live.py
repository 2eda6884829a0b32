"""Access the machine that tfdoctor runs on."""

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

from tfdoctor.core.errors import Error
from tfdoctor.system import debug_log
from tfdoctor.system.children import Children, drop_working_folder
from tfdoctor.system.elf import ElfError, ElfFile, ElfProblem, read_elf
from tfdoctor.system.result import CommandResult, Failure
from tfdoctor.system.symbols import list_unresolved_symbols

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


T = TypeVar("T")
_TOO_MANY_FILES_ERRORS = (errno.EMFILE, errno.ENFILE)
_RETRY_S = 2.0
"""Time to wait for other threads to close files before a lack of file descriptors is reported."""
_MIN_ADDRESS_SPACE = 512 << 20
"""Required address space. With less, a thread may fail to start, and `threading` would wait for it forever."""


def _retry_when_out_of_files(operation: Callable[[], T]) -> T:
    """Return the result of `operation`. If too many files are open, retry it for `_RETRY_S` seconds.

    Raise Error if that does not help: a lack of file descriptors must not look like a fact about the machine.
    """
    deadline = time.monotonic() + _RETRY_S
    while True:
        try:
            return operation()
        except OSError as error:
            if error.errno not in _TOO_MANY_FILES_ERRORS:
                raise
            if time.monotonic() > deadline:
                raise Error(
                    "no more files can be opened here: this machine could not be looked at.",
                    hint="See `ulimit -n`; 64 are enough.",
                ) from error
        time.sleep(0.02)


def _check_address_space() -> None:
    """Raise Error if the address space limit of this process is too low."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _MIN_ADDRESS_SPACE:
        msg = f"this process may use {limit >> 20} MiB of address space: too little to look at this machine."
        raise Error(msg, hint="See `ulimit -v`; 1 GiB is enough for tfdoctor, and TensorFlow needs far more.")


def _get_start_variables() -> dict[str, str]:
    """Return the environment variables that this process was started with; {} if they cannot be read."""
    try:
        content = Path("/proc/self/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in content.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if equals and name}


def get_process_variables() -> dict[str, str]:
    """Return the environment variables that are in effect in this process.

    These are the current ones, except that LD_LIBRARY_PATH and LD_PRELOAD are those from the start of the process,
    when the loader read them.
    """
    env, start_variables = dict(os.environ), _get_start_variables()
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if start_variables else ():
        env.pop(name, None)
        if name in start_variables:
            env[name] = start_variables[name]
    return env


def _find_start_changes() -> dict[str, tuple[str | None, str | None]]:
    """Return (value before, value after) of each variable that sitecustomize or a .pth file changed.

    Return {} if the initial environment cannot be read.
    """
    start_variables = _get_start_variables()
    names = start_variables.keys() | os.environ.keys() if start_variables else set()
    return {
        name: (start_variables.get(name), os.environ.get(name))
        for name in names
        if start_variables.get(name) != os.environ.get(name)
    }


_START_CHANGES = _find_start_changes()


def get_original_variables() -> dict[str, str]:
    """Return the current variables without the changes that this Python's startup made.

    tfdoctor is often installed in the environment that it checks, whose startup makes the same changes again in
    every child process.
    """
    env = dict(os.environ)
    for line in env.pop("TFDOCTOR_LOADER", "").splitlines():  # `__main__` removed these for tfdoctor itself
        name, _, value = line.partition("=")
        env[name] = value
    for name, (before, after) in _START_CHANGES.items():
        if env.get(name) != after:
            continue  # changed later, deliberately
        if before is None:
            env.pop(name, None)
        else:
            env[name] = before
    return env


class BackgroundCommand:
    """A command that runs in a background thread. `result` waits for it to end."""

    def __init__(self, run_command: Callable[[], CommandResult]) -> None:
        self._run_command = run_command
        self._outcomes: list[CommandResult | BaseException] = []
        self._thread = threading.Thread(target=self._run_in_thread, name="begun", daemon=True)
        self._thread.start()

    def _run_in_thread(self) -> None:
        try:
            self._outcomes.append(self._run_command())
        except BaseException as error:  # `result` raises it
            self._outcomes.append(error)

    def result(self) -> CommandResult:
        """Wait for the command to end, and return its result or raise its exception."""
        self._thread.join()
        outcome = self._outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def _make_command_key(argv: Sequence[str], env: Mapping[str, str] | None, unset: Sequence[str]) -> object:
    """Return a key that identifies a command by its arguments and variables."""
    return tuple(argv), tuple(sorted((env or {}).items())), tuple(unset)


class LiveSystem:
    """The machine that tfdoctor runs on, or the machine whose file system is mounted at `root`."""

    def __init__(self, root: str = "/", env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        """Use the variables of this process if `env` is None, and its working directory if `cwd` is None.

        Raise Error if this process has too little address space.
        """
        _check_address_space()
        self._root = root.rstrip("/")
        self._env = get_original_variables() if env is None else dict(env)
        self._cwd = cwd or _current_directory()
        self._children = Children()
        self._started_commands: dict[object, BackgroundCommand] = {}

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
        user_id = str(os.geteuid()) if hasattr(os, "geteuid") else ""
        return {"system": system, "machine": machine, "release": release, "uid": user_id}

    @property
    def own_python(self) -> str | None:
        return sys.executable or None

    def _locate(self, path: str) -> str:
        """Return the path on this machine, which is below `root`."""
        debug_log.write("file", path)
        return f"{self._root}{path}" if self._root else path

    def read_text(self, path: str, *, limit: int = 1 << 20) -> str:
        return self.read_bytes(path, limit=limit).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int = 16 << 20) -> bytes:
        # O_NONBLOCK: reading a FIFO must not hang.
        descriptor = _retry_when_out_of_files(
            lambda: os.open(self._locate(path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        )
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(limit)

    def read_elf(self, path: str) -> ElfFile:
        mode = os.stat(self._locate(path)).st_mode  # noqa: PTH116 - the loader gets the same error
        if stat.S_ISFIFO(mode):
            raise ElfError(ElfProblem.NAMED_PIPE)
        if stat.S_ISSOCK(mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise ElfError(ElfProblem.BAD_MAGIC, "a device")
        if not stat.S_ISREG(mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return _retry_when_out_of_files(lambda: read_elf(self._locate(path), self.platform["machine"]))

    def find_unresolved_symbols(self, path: str, providers: Sequence[str]) -> tuple[str, ...]:
        try:
            provider_paths = [self._locate(provider) for provider in providers]
            return _retry_when_out_of_files(
                lambda: list_unresolved_symbols(self._locate(path), provider_paths)
            )
        except OSError:
            return ()

    def exists(self, path: str) -> bool:
        return os.path.exists(self._locate(path))  # noqa: PTH110 - never raises, unlike Path.exists before 3.14

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(self._locate(path))  # noqa: PTH112

    def listdir(self, path: str) -> list[str]:
        return sorted(_retry_when_out_of_files(lambda: os.listdir(self._locate(path))))  # noqa: PTH208

    def realpath(self, path: str) -> str:
        resolved = os.path.realpath(self._locate(path))
        if self._root and resolved.startswith(self._root):
            return resolved[len(self._root) :] or "/"
        return resolved

    def which(self, name: str) -> str | None:
        return shutil.which(name, path=drop_working_folder(self._env).get("PATH", os.defpath))

    def start_in_background(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",  # noqa: ARG002 - a recording's
    ) -> None:
        """Start a command early. A later `run` with the same arguments waits for its result."""
        background_command = BackgroundCommand(lambda: self._run(argv, timeout, env, unset))
        self._started_commands[_make_command_key(argv, env, unset)] = background_command

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        key: str = "",  # noqa: ARG002 - a recording's
    ) -> CommandResult:
        background_command = (
            self._started_commands.pop(_make_command_key(argv, env, unset), None)
            if self._started_commands
            else None
        )
        return (
            background_command.result()
            if background_command is not None
            else self._run(argv, timeout, env, unset)
        )

    def run_streaming(
        self,
        argv: Sequence[str],
        on_output: Callable[[bytes], None],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
    ) -> CommandResult:
        """Run a command as `run` does. `on_output` gets all of its standard output, as it arrives."""
        return self._run(argv, timeout, env, unset, on_output)

    def _run(
        self,
        argv: Sequence[str],
        timeout: float,
        env: Mapping[str, str] | None,
        unset: Sequence[str],
        on_output: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        """Run a command, and return its output or the reason why it could not be run."""
        environment = {name: value for name, value in self._env.items() if name not in unset}
        environment.update(env or {})
        started = time.monotonic()

        def make_result(returncode: int | None, **fields: object) -> CommandResult:
            seconds = time.monotonic() - started
            debug_log.write("command", " ".join(argv), seconds)
            return CommandResult(tuple(argv), returncode, seconds=seconds, **fields)  # type: ignore[arg-type]

        cwd = self._cwd if Path(self._cwd).is_dir() else None
        try:
            child_result = _retry_when_out_of_files(
                lambda: self._children.run(
                    argv, timeout=timeout, env=environment, cwd=cwd, on_output=on_output
                )
            )
        except FileNotFoundError as error:
            return make_result(None, failure=Failure.NOT_FOUND, detail=error.strerror or "")
        except PermissionError as error:
            return make_result(None, failure=Failure.PERMISSION, detail=error.strerror or "")
        except (OSError, ValueError) as error:
            return make_result(None, failure=Failure.OS_ERROR, detail=str(error))
        failure = Failure.TIMEOUT if child_result.returncode is None else None
        return make_result(
            child_result.returncode,
            failure=failure,
            stdout=_decode(child_result.stdout),
            stderr=_decode(child_result.stderr),
        )

    def stop(self) -> None:
        self._started_commands.clear()
        self._children.stop()


def _current_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - not resolved
    except OSError:  # the working directory was removed
        return "/"


def _decode(output: bytes) -> str:
    return output.decode("utf-8", "replace")
