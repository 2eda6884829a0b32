"""Find and run the installers that change a Python environment: uv, or pip in the environment.

The last lines of their output explain a failure. The user's pip settings, such as an index or a certificate, are passed
to uv, because it does not read pip's configuration.
"""

from __future__ import annotations

import collections
import configparser
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.errors import Error
from tfdoctor.core.text import clean_line
from tfdoctor.system import children
from tfdoctor.system.children import hold_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "InstallFailedError",
    "Installer",
    "can_run",
    "find_installer",
    "find_uv",
    "list_uv_options",
    "make_child_environment",
    "run_installer",
    "run_installers",
]

VERSION_TIMEOUT_S = 60.0
"""The time limit in seconds for a short test command, such as `pip --version`."""
KILL_DELAY_S, TERM_DELAY_S = 10.0, 4.0
"""The seconds after SIGINT until a program that still runs receives SIGKILL, and until it receives SIGTERM."""
_MAX_OUTPUT_LINES = 60
"""The number of output lines that are stored: the last ones."""
_MAX_LINE_BYTES = 4000
"""The number of bytes after which an output line is cut."""
_REMOVED_VARIABLES = (
    "CONDA_PREFIX",
    "PIP_DRY_RUN",
    "PIP_IGNORE_INSTALLED",
    "PIP_NO_DEPS",
    "PIP_PREFIX",
    "PIP_PYTHON",
    "PIP_REPORT",
    "PIP_REQUIREMENT",
    "PIP_REQUIRE_HASHES",
    "PIP_ROOT",
    "PIP_TARGET",
    "PIP_UPGRADE",
    "PIP_USER",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "UV_BREAK_SYSTEM_PACKAGES",
    "UV_EXCLUDE_NEWER",
    "UV_NO_VERIFY_HASHES",
    "UV_PROJECT",
    "UV_PYTHON",
    "UV_REQUIRE_HASHES",
    "UV_SYSTEM_PYTHON",
    "UV_WORKING_DIR",
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
)
"""Variables that would make an installer use another environment or install something else."""
_UV_INDEX_VARIABLES = (
    "UV_INDEX",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
)
"""uv's variables for indexes: if one is set, pip's settings for indexes are not passed to uv."""
_PATH_VARIABLES = frozenset(
    {"SSL_CERT_DIR", "SSL_CERT_FILE", "SSL_CLIENT_CERT", "UV_CACHE_DIR", "UV_CONFIG_FILE", "UV_FIND_LINKS"}
)
"""Variables that can contain relative paths."""
_PASSED_SETTINGS = (
    "cert",
    "client-cert",
    "extra-index-url",
    "find-links",
    "index-url",
    "no-index",
    "proxy",
    "trusted-host",
)
"""The pip settings that are passed to uv."""
_MAX_CONFIG_BYTES = 1_000_000
"""The largest size in bytes of a pip configuration file that is read."""
_DRAIN_TIMEOUT_S = 1.0
"""The time in seconds for which output is read after a program ended, because a child process may keep it open."""
# The user name and password in a URL.
_CREDENTIALS = re.compile(r"(https?://)[^/@\s]{1,500}@")
# Messages of pip and uv. The error numbers 28 and 122 are ENOSPC and EDQUOT, and 13 is EACCES.
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|[Ee]rrno 28\b|os error (?:28|122)\b")
_HASH_MISMATCH = re.compile(
    r"DO NOT MATCH THE HASHES|Hash mismatch|hash-mismatch|hashes? (?:do|does) not match", re.IGNORECASE
)
_TLS_ERROR = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|invalid peer certificate|UnknownIssuer|SSLError|certificate verify failed"
)
_PROXY_ERROR = re.compile(
    r"ProxyError|Cannot connect to proxy|Tunnel connection failed|407 Proxy|proxy connect", re.IGNORECASE
)
_UNAUTHORIZED = re.compile(
    r"\b40[13] (?:Client Error|Unauthorized|Forbidden)|status client error \(40[13]|HTTP error 40[13]"
)
_NETWORK_ERROR = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Failed to establish a new connection|"
    r"NewConnectionError|ConnectTimeout|ReadTimeout|[Rr]ead timed out|Max retries exceeded|"
    r"Connection (?:refused|reset|broken)|"
    r"Network is unreachable|No route to host|dns error|tcp connect error|client error \(Connect\)|operation timed out|"
    r"error sending request|IncompleteRead|ConnectionResetError|"
    r"error decoding response body|Network connectivity is disabled|network was disabled"
)
_NOT_FOUND = re.compile(
    r"No matching distribution found|Could not find a version|not found in the package registry|"
    r"404 (?:Client Error|Not Found)|HTTP error 404|there (?:is|are) no versions? of|was not found in the provided"
)
_CONFLICT = re.compile(
    r"ResolutionImpossible|conflicting dependencies|No solution found|requirements are unsatisfiable"
)
_PERMISSION_DENIED = re.compile(r"Permission denied|[Ee]rrno 13\b|os error 13\b|Read-only file system")
_EXTERNALLY_MANAGED = re.compile(r"externally[- ]managed")
# The pattern, the reason and the hint for each known failure. The first match counts, so causes come before their
# effects: if pip cannot reach the index, its last message is that it found no distribution.
_REASONS = (
    (_DISK_FULL, "the disk is full", "Free some space, or name a folder on another file system."),
    (
        _HASH_MISMATCH,
        "a file is not the one that was locked",
        "The index (or something between) serves another file under this name. It was not installed.",
    ),
    (
        _TLS_ERROR,
        "the index's certificate is not trusted",
        "Behind a company's proxy: put its certificate authority into SSL_CERT_FILE and PIP_CERT.",
    ),
    (_PROXY_ERROR, "the proxy does not let it through", "See HTTPS_PROXY and NO_PROXY."),
    (
        _UNAUTHORIZED,
        "the index wants a name and password, or refuses them",
        "Put them into ~/.netrc, pip.conf, or UV_DEFAULT_INDEX; never onto a command line.",
    ),
    (
        _NETWORK_ERROR,
        "the network or the package index cannot be reached",
        "See the network, HTTPS_PROXY, or take another index.",
    ),
    (_NOT_FOUND, "the package index does not have it", "Is it a mirror that lacks files? Try another index."),
    (
        _CONFLICT,
        "the requirements conflict with each other",
        "Loosen the pins that are named above: TensorFlow's own packages have fixed versions.",
    ),
    (
        _EXTERNALLY_MANAGED,
        "the system forbids changing this Python (PEP 668)",
        "It belongs to the system; use a virtual environment.",
    ),
    (_PERMISSION_DENIED, "permission denied", "The folder belongs to somebody else, or is read-only."),
)
# uv's message about a file that is missing in its cache.
_MISSING_CACHE_FILE = re.compile(r"failed to \w+ \w+ `[^`]*/archive-v\d+/[^`]*`: No such file or directory")
_IRRELEVANT_LINE = re.compile(
    r"^(?:\[notice\]|WARNING: (?:There was an error checking|You are using pip)|hint:|note:)"
)
_ERROR_WORDS = re.compile(r"(?i)\b(?:error|failed|fatal|cause|cannot|could not|×)\b")


@dataclass(frozen=True, slots=True)
class Installer:
    """A program that installs packages into one environment."""

    name: str
    """`"uv"` or `"pip"`."""
    interpreter_path: str
    """The environment's interpreter."""
    base_command: tuple[str, ...]
    """The start of each command: `("/…/uv", "pip")`, or the interpreter with `-m pip`."""
    install_options: tuple[str, ...] = ()
    """Options of every install command: pip's settings for which uv has no variable (see `list_uv_options`)."""
    setup_command: tuple[str, ...] = ()
    """The command that installs pip first; empty if pip is installed."""

    def make_install_command(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Return the install command. `arguments` are options and requirements that both uv and pip accept."""
        return (*self.base_command, "install", *self._target_options, *self.install_options, *arguments)

    def make_uninstall_command(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the command that uninstalls packages."""
        yes_option = () if self.name == "uv" else ("-y",)
        return (*self.base_command, "uninstall", *self._target_options, *yes_option, *names)

    @property
    def _target_options(self) -> tuple[str, ...]:
        return ("--python", self.interpreter_path) if self.name == "uv" else ()


class InstallFailedError(Error):
    """An installer failed, or none was found."""

    kind = "install"

    def __init__(
        self, message: str, *, hint: str = "", output: Iterable[str] = (), has_no_solution: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.output: tuple[str, ...] = tuple(output)
        """The last lines of the installer's output, without control characters and passwords."""
        self.has_no_solution = has_no_solution
        """Whether the resolver ran and found no solution."""


# ---------------------------------------------------------------- finding an installer


def find_uv(env: Mapping[str, str]) -> str | None:
    """Return the path of uv; None if uv is not on PATH or does not run, like a shim without the program."""
    path = shutil.which("uv", path=children.drop_working_folder(env).get("PATH"))
    return path if path is not None and can_run((path, "--version"), env) else None


def find_installer(python: str, *, prefer: str | None = None, env: Mapping[str, str]) -> Installer:
    """Return uv if it is on PATH and supports the Python, else the environment's pip.

    If pip is missing but ensurepip is not, `setup_command` of the result installs pip. If `prefer` is `"uv"` or `"pip"`,
    only that installer is accepted. Raise InstallFailedError if no installer is found.
    """
    if prefer in (None, "uv"):
        uv = find_uv(env)
        # `uv pip list` queries the interpreter, so it fails for a version that uv does not support (2.7).
        if uv is not None and can_run((uv, "pip", "list", "--quiet", "--offline", "--python", python), env):
            return Installer(
                name="uv",
                interpreter_path=python,
                base_command=(uv, "pip"),
                install_options=list_uv_options(env),
            )
        if prefer == "uv":
            raise InstallFailedError(
                "uv is not on PATH, or does not run."
                if uv is None
                else f"uv cannot install into {clean_line(python)}.",
                hint="--installer pip, or get uv: pip install uv",
            )
    if can_run((python, "-m", "pip", "--version"), env):
        return Installer(name="pip", interpreter_path=python, base_command=(python, "-m", "pip"))
    ensurepip_command = (python, "-m", "ensurepip")
    if can_run((*ensurepip_command, "--version"), env):
        return Installer(
            name="pip",
            interpreter_path=python,
            base_command=(python, "-m", "pip"),
            setup_command=ensurepip_command,
        )
    msg = f"{clean_line(python)} has no pip, and there is no uv on PATH that works for it."
    raise InstallFailedError(msg, hint=f"Get pip: {clean_line(python)} -m ensurepip, or uv: pip install uv")


def can_run(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a command runs and exits with status 0 within the time limit."""
    try:
        completed = children.run_program(
            children.isolate_module_command(command),
            env=make_child_environment(env),
            timeout=VERSION_TIMEOUT_S,
            cwd=choose_folder(command),
        )
    except (OSError, ValueError):
        return False
    return completed.returncode == 0


def choose_folder(command: Sequence[str]) -> str | None:
    """Return the folder in which a command of an installer must run; None means the working folder.

    uv reads uv.toml and pyproject.toml of its folder and of all folders above it. They can name another package index,
    a folder of wheels or another target, and the working folder is often somebody else's project. Only the
    administrator can write files in the root folder. The settings of the user and of the machine remain in force.
    """
    return Path(command[0]).anchor or None if Path(command[0]).stem == "uv" else None


# ---------------------------------------------------------------- environment variables


def make_child_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for an installer.

    Variables that would make it use another environment are removed. uv gets pip's settings as variables, so that the
    password of an index never appears on a command line.
    """
    child_env = {
        name: value
        for name, value in env.items()
        if name not in _REMOVED_VARIABLES and not name.startswith("CONDA_")
    }
    child_env |= {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_USER": "0",  # overrides `user = true` in a pip.conf
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "10000",  # uv would wrap its messages at the width of the user's terminal
    }
    # Without retries pip reports a package as missing if the network fails.
    if child_env.get("PIP_RETRIES") == "0":
        child_env["PIP_RETRIES"] = "1"
    for name, value in _make_uv_variables(child_env).items():
        child_env.setdefault(name, value)
    for name in (
        _PATH_VARIABLES & child_env.keys()
    ):  # uv does not run in the working folder (see `choose_folder`)
        child_env[name] = ",".join(
            entry if "://" in entry or not entry else str(Path(entry).absolute())
            for entry in child_env[name].split(",")
        )
    return child_env


def list_uv_options(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return uv's options for pip settings without a uv variable; empty if an index is set for uv."""
    if any(env.get(name) for name in _UV_INDEX_VARIABLES):
        return ()
    value = _load_pip_settings(env).get("no-index", "").strip().lower()
    return ("--no-index",) if value in ("1", "true", "yes", "on") else ()


def _make_uv_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings as variables for uv, without the indexes if the user set an index for uv."""
    settings = _load_pip_settings(env)
    variables: dict[str, str] = {}
    if not any(env.get(name) for name in _UV_INDEX_VARIABLES):
        if settings.get("index-url"):
            variables["UV_DEFAULT_INDEX"] = settings["index-url"].split()[0]
        if settings.get("extra-index-url"):
            variables["UV_INDEX"] = " ".join(settings["extra-index-url"].split())
            variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # search all indexes, like pip
        if settings.get("find-links"):
            variables["UV_FIND_LINKS"] = ",".join(settings["find-links"].split())
    if settings.get("trusted-host"):
        variables["UV_INSECURE_HOST"] = " ".join(settings["trusted-host"].split())
    if settings.get("cert"):
        variables["SSL_CERT_FILE"] = settings["cert"].strip()
    if settings.get("client-cert"):
        variables["SSL_CLIENT_CERT"] = settings["client-cert"].strip()
    if settings.get("proxy"):
        variables["ALL_PROXY"] = settings["proxy"].strip()
    return variables


def _load_pip_settings(env: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings by name, from its configuration files and environment variables.

    Later files override earlier ones, and variables override files. Only the names in `_PASSED_SETTINGS` are returned.
    """
    settings: dict[str, str] = {}
    for path in _list_pip_config_files(env):
        parser = configparser.RawConfigParser()
        try:
            if path.stat().st_size > _MAX_CONFIG_BYTES:
                continue
            parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, configparser.Error):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                values = {name.replace("_", "-"): value for name, value in parser.items(section) if value}
                settings |= {name: values[name] for name in _PASSED_SETTINGS if name in values}
    for name in _PASSED_SETTINGS:
        value = env.get(f"PIP_{name.replace('-', '_').upper()}")
        if value:
            settings[name] = value
    return settings


def _list_pip_config_files(env: Mapping[str, str]) -> list[Path]:
    """Return the paths of pip's configuration files. Each file overrides those before it."""
    if env.get("PIP_CONFIG_FILE") == os.devnull:
        return []
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - may not be a path at all
    system_files = [
        Path(folder) / "pip/pip.conf"
        for folder in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
        if folder
    ]
    files = [
        *reversed(system_files),
        Path("/etc/pip.conf"),
        Path(home, ".pip/pip.conf"),
        Path(env.get("XDG_CONFIG_HOME") or f"{home}/.config", "pip/pip.conf"),
    ]
    if env.get("PIP_CONFIG_FILE"):
        files.append(Path(env["PIP_CONFIG_FILE"]))
    return files


# ---------------------------------------------------------------- running an installer


def run_installer(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    on_line: Callable[[str], None] | None,
    inherits_stderr: bool = False,
    pass_fds: Sequence[int] = (),
) -> None:
    """Run an installer to its end. Raise InstallFailedError if it fails.

    Each output line is passed to `on_line`. With `inherits_stderr` the installer writes directly to standard error, and its
    output is not recorded. The file descriptors in `pass_fds` stay open in the installer, so that it holds a lock until
    it ends, even if this process is killed.

    The installer runs in its own session, so that Ctrl-C reaches only this process. An exception in this process stops
    the installer and its children.
    """
    run_installers([command], env=env, on_line=on_line, inherits_stderr=inherits_stderr, pass_fds=pass_fds)


def run_installers(
    commands: Sequence[Sequence[str]],
    *,
    env: Mapping[str, str],
    on_line: Callable[[str], None] | None,
    inherits_stderr: bool = False,
    pass_fds: Sequence[int] = (),
) -> None:
    """Run independent installers at the same time, with the parameters of `run_installer`.

    If one installer fails, the others are stopped, and InstallFailedError is raised. If files are missing in uv's cache,
    all installers run once more without the cache. uv does not notice missing files of wheels from an index that is a folder,
    and `--refresh` does not help (measured with uv 0.13.9). With `inherits_stderr` the output is unknown, so there is no retry.
    """
    processes: list[_RunningInstaller] = []
    try:
        for command in commands:
            with hold_signals():  # Ctrl-C during Popen would leave a child that is not in the list
                processes.append(
                    _RunningInstaller.start(command, env, inherits_stderr=inherits_stderr, pass_fds=pass_fds)
                )
        for child in _wait_for_all(processes, on_line):
            child.check()
    except BaseException as error:
        _stop_all(processes)
        if env.get("UV_NO_CACHE") or not _is_cache_damaged(error):
            raise
    else:
        return
    finally:
        for child in processes:
            if child.process.stdout is not None:
                child.process.stdout.close()
    if on_line is not None:
        on_line("uv's cache is damaged; once more without it (`uv cache clean` empties it).")
    env = {**env, "UV_NO_CACHE": "1"}
    run_installers(commands, env=env, on_line=on_line, inherits_stderr=inherits_stderr, pass_fds=pass_fds)


@dataclass(slots=True)
class _RunningInstaller:
    """A running installer."""

    name: str
    """The name of the program, for messages."""
    process: subprocess.Popen[bytes]
    lines: collections.deque[str]
    """The last output lines."""
    partial_line: bytes = b""
    """The output after the last line break."""
    end_time: float = 0.0
    """The time at which the end of the process was noticed although its output was still open; 0 before that."""

    @classmethod
    def start(
        cls, command: Sequence[str], env: Mapping[str, str], *, inherits_stderr: bool, pass_fds: Sequence[int]
    ) -> _RunningInstaller:
        """Start an installer. Raise InstallFailedError if that fails."""
        name = _find_program_name(command)
        stderr_fd = sys.stderr.fileno() if inherits_stderr else None
        try:
            process = subprocess.Popen(
                children.isolate_module_command(command),
                env=children.drop_working_folder(make_child_environment(env)),
                stdin=subprocess.DEVNULL,
                stdout=stderr_fd if inherits_stderr else subprocess.PIPE,
                stderr=stderr_fd if inherits_stderr else subprocess.STDOUT,
                cwd=choose_folder(command),
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        except OSError as error:
            msg = f"{name} could not be started: {error.strerror or error}."
            raise InstallFailedError(msg, hint=clean_line(str(command[0]))) from error
        return cls(name, process, collections.deque(maxlen=_MAX_OUTPUT_LINES))

    def check(self) -> None:
        """Raise InstallFailedError if the installer failed."""
        if self.process.returncode:
            raise _make_failure_error(self.name, self.process.returncode, tuple(self.lines))

    def process_output(self, chunk: bytes, on_line: Callable[[str], None] | None) -> None:
        """Store the complete lines of output, and pass them to `on_line`. An empty chunk ends the output."""
        *complete_lines, self.partial_line = re.split(rb"[\r\n]+", self.partial_line + chunk)
        self.partial_line = self.partial_line[:_MAX_LINE_BYTES]
        if not chunk:
            complete_lines.append(self.partial_line)
            self.partial_line = b""
        for line in complete_lines:
            text = _strip_credentials(
                clean_line(line[:_MAX_LINE_BYTES].decode("utf-8", "replace"), limit=_MAX_LINE_BYTES)
            )
            if text:
                self.lines.append(text)
                if on_line is not None:
                    on_line(text)


def _wait_for_all(
    processes: Sequence[_RunningInstaller], on_line: Callable[[str], None] | None
) -> Iterator[_RunningInstaller]:
    """Yield each process when it ends. Meanwhile, read the output of all processes."""
    unfinished = list(processes)
    while unfinished:
        pipes = {
            child.process.stdout.fileno(): child for child in unfinished if child.process.stdout is not None
        }
        if pipes:
            ready, _, _ = select.select(list(pipes), [], [], 0.5)
        else:
            time.sleep(0.1)
            ready = []
        for pipe in ready:
            chunk = os.read(pipe, 65536)
            pipes[pipe].process_output(chunk, on_line)
            if not chunk:
                pipes[pipe].process.wait()
                _kill_group(pipes[pipe].process.pid)  # a killed program may have left child processes
                unfinished.remove(pipes[pipe])
                yield pipes[pipe]
        # Only if no output was ready: a process that has ended may still have unread output.
        for child in [] if ready else list(unfinished):
            if child.process.poll() is None:
                continue
            child.end_time = child.end_time or time.monotonic()
            if child.process.stdout is None or time.monotonic() - child.end_time > _DRAIN_TIMEOUT_S:
                child.process_output(b"", on_line)
                _kill_group(child.process.pid)
                unfinished.remove(child)
                yield child


def _find_program_name(command: Sequence[str]) -> str:
    """Return `"pip"` for `python -m pip …`, else the file name of the program."""
    arguments = list(command)
    if "-m" in arguments[:4]:
        return arguments[arguments.index("-m") + 1]
    return clean_line(Path(arguments[0]).name)


def _strip_credentials(text: str) -> str:
    """Return a line without the user names and passwords in URLs."""
    return _CREDENTIALS.sub(r"\1", text)


def _stop_all(processes: Sequence[_RunningInstaller]) -> None:
    """Stop processes and their children with SIGINT, SIGTERM and SIGKILL, and wait until they end."""
    alive = [child for child in processes if child.process.poll() is None]
    with hold_signals() as interrupts:
        # SIGTERM follows because a process may ignore SIGINT, for example as a background job. Ctrl-C skips the wait.
        for signal_number, seconds in (
            (signal.SIGINT, TERM_DELAY_S),
            (signal.SIGTERM, KILL_DELAY_S - TERM_DELAY_S),
        ):
            _signal_groups([child for child in alive if child.process.poll() is None], signal_number)
            deadline = time.monotonic() + seconds
            while (
                not interrupts
                and time.monotonic() < deadline
                and any(child.process.poll() is None for child in alive)
            ):
                _discard_output(alive)
        # The whole process group is killed: a build that ignores SIGINT must not go on changing the environment.
        _signal_groups(alive, signal.SIGKILL)
        for child in processes:
            child.process.wait()
        deadline = time.monotonic() + KILL_DELAY_S
        while time.monotonic() < deadline and any(_kill_group(child.process.pid) for child in alive):
            time.sleep(0.02)


def _kill_group(group: int) -> bool:
    """Kill a process group, and return whether it still had a process.

    Call it until it returns False: this process cannot wait for processes that are not its children.
    """
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        return False
    return True


def _signal_groups(processes: Sequence[_RunningInstaller], number: signal.Signals) -> None:
    for child in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, number)


def _discard_output(processes: Sequence[_RunningInstaller]) -> None:
    """Read and discard output for a moment, so that the processes do not block on a full pipe."""
    pipes = [child.process.stdout.fileno() for child in processes if child.process.stdout is not None]
    ready, _, _ = select.select(pipes, [], [], 0.05)
    if not any(os.read(pipe, 65536) for pipe in ready):
        time.sleep(0.02)


# ---------------------------------------------------------------- reasons for failures


def _make_failure_error(name: str, status: int, lines: tuple[str, ...]) -> InstallFailedError:
    """Return the error for a failed installer, with the first of `_REASONS` that its output matches.

    `status` is the exit status, or minus the number of the signal that ended the installer.
    """
    text = "\n".join(lines)
    for pattern, reason, hint in _REASONS:
        match = pattern.search(text)
        if match is not None:
            msg = f"{name} failed: {reason}."
            has_no_solution = pattern in (_NOT_FOUND, _CONFLICT)
            return InstallFailedError(msg, hint=hint, output=lines, has_no_solution=has_no_solution)
    if status < 0:
        msg = f"{name} was ended by {_format_signal(-status)}."
        hint = "It may have been short of memory." if -status == signal.SIGKILL else ""
        return InstallFailedError(msg, hint=hint, output=lines)
    error_lines = [line for line in lines if _ERROR_WORDS.search(line) and not _IRRELEVANT_LINE.search(line)]
    message = error_lines[-1] if error_lines else (lines[-1] if lines else "it said nothing")
    msg = f"{name} failed (status {status}): {clean_line(message, limit=300)}"
    return InstallFailedError(msg, output=lines)


def _is_cache_damaged(error: BaseException) -> bool:
    """Return whether an installer failed because files are missing in uv's cache."""
    return isinstance(error, InstallFailedError) and any(
        _MISSING_CACHE_FILE.search(line) for line in error.output
    )


def _format_signal(number: int) -> str:
    """Return the name of a signal: `"SIGKILL"`, or `"signal 99"` if the signal has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
