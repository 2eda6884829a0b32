"""The programs that change what is installed in a Python environment: uv, or the environment's own pip.

Only here are they found, given their words and run. What they print is kept in part, to say why one failed; what a
user has set for pip (an index, a certificate) counts for uv as well, which does not read it by itself.
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

from tfdoctor.errors import Error
from tfdoctor.system import children
from tfdoctor.system.children import hold_signals
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "InstallFailedError",
    "Installer",
    "child_environment",
    "find_installer",
    "find_uv",
    "run_installer",
    "run_installers",
    "runs",
    "uv_options",
]

VERSION_TIMEOUT_S = 60.0
"""Seconds that a program may take to say its version."""
GRACE, POLITE = 10.0, 4.0
"""Seconds between asking a program to stop and killing it, and telling it to."""
_MAX_KEPT_LINES = 60
"""Last lines that are kept of what a program prints."""
_MAX_LINE_BYTES = 4000
"""Bytes of a line that are kept."""
_UNSET = (
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
"""Variables that would lead an installer into another environment, or have it install something else."""


@dataclass(frozen=True, slots=True)
class Installer:
    """A program that installs into one environment."""

    name: str
    """`"uv"` or `"pip"`."""
    python: str
    """The environment's interpreter."""
    program: tuple[str, ...]
    """`("/…/uv", "pip")`, or the interpreter with `-m pip`."""
    options: tuple[str, ...] = ()
    """What `install` is always given: pip's settings for which uv has no variable (`uv_options`)."""
    before: tuple[str, ...] = ()
    """The command that makes the pip where there is none yet; typed by people, too (advice/user_permissions.py)."""

    def install(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the command that installs; `words` are options and requirements that both programs know."""
        return (*self.program, "install", *self._target_options, *self.options, *words)

    def uninstall(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the command that removes projects."""
        yes = () if self.name == "uv" else ("-y",)
        return (*self.program, "uninstall", *self._target_options, *yes, *names)

    @property
    def _target_options(self) -> tuple[str, ...]:
        return ("--python", self.python) if self.name == "uv" else ()


class InstallFailedError(Error):
    """An installer ended with an error, or there is none."""

    kind = "install"

    def __init__(
        self, message: str, *, hint: str = "", output: Iterable[str] = (), unsolved: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.output: tuple[str, ...] = tuple(output)
        """Its last lines, safe to print."""
        self.unsolved = unsolved  # it looked, and what is required cannot be had


# ---------------------------------------------------------------- finding one


def find_uv(env: Mapping[str, str]) -> str | None:
    """uv's path where it is on PATH and runs; a name there that does not work (a shim without a program) is none."""
    found = shutil.which("uv", path=children.drop_working_folder(env).get("PATH"))
    return found if found is not None and runs((found, "--version"), env) else None


def find_installer(python: str, *, prefer: str | None = None, env: Mapping[str, str]) -> Installer:
    """uv where it is on PATH and works for that Python, else the environment's pip, which may have to be made first.

    prefer: `"uv"` or `"pip"` alone. Raises InstallFailedError where there is neither.
    """
    if prefer in (None, "uv"):
        uv = find_uv(env)
        # `pip list` has uv ask the interpreter, as installing does: one that it cannot use (2.7) shows here.
        if uv is not None and runs((uv, "pip", "list", "--quiet", "--offline", "--python", python), env):
            return Installer("uv", python, (uv, "pip"), options=uv_options(env))
        if prefer == "uv":
            raise InstallFailedError(
                "uv is not on PATH, or does not run."
                if uv is None
                else f"uv cannot install into {clean_line(python)}.",
                hint="--installer pip, or get uv: pip install uv",
            )
    if runs((python, "-m", "pip", "--version"), env):
        return Installer("pip", python, (python, "-m", "pip"))
    make = (python, "-m", "ensurepip")
    if runs((*make, "--version"), env):
        return Installer("pip", python, (python, "-m", "pip"), before=make)
    msg = f"{clean_line(python)} has no pip, and there is no uv on PATH that works for it."
    raise InstallFailedError(msg, hint=f"Get pip: {clean_line(python)} -m ensurepip, or uv: pip install uv")


def runs(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a program answers."""
    try:
        ran = children.run(children.isolate(command), env=child_environment(env), timeout=VERSION_TIMEOUT_S)
    except (OSError, ValueError):
        return False
    return ran.returncode == 0


# ---------------------------------------------------------------- their environment


def child_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an installer runs with.

    Without what leads elsewhere; what is set for pip alone is handed on to uv, in variables, so that no password of
    an index is ever on a command line.
    """
    child = {name: text for name, text in env.items() if name not in _UNSET and not name.startswith("CONDA_")}
    child |= {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_USER": "0",  # `user = true` in a pip.conf
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "10000",  # the width of the user's terminal would break uv's sentences
    }
    if (
        child.get("PIP_RETRIES") == "0"
    ):  # with none pip says of a network that fails that a package is not there
        child["PIP_RETRIES"] = "1"
    for name, text in _make_uv_variables(child).items():
        child.setdefault(name, text)
    return child


def uv_options(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what uv has to be told on its command line because pip was told it in its settings."""
    if any(env.get(name) for name in _INDEX_OF_UV):
        return ()
    switched = _settings_of_pip(env).get("no-index", "").strip().lower()
    return ("--no-index",) if switched in ("1", "true", "yes", "on") else ()


_INDEX_OF_UV = (
    "UV_INDEX",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
)


def _make_uv_variables(env: Mapping[str, str]) -> dict[str, str]:
    """pip's settings as uv's variables; of its indexes nothing where uv has its own."""
    said = _settings_of_pip(env)
    found: dict[str, str] = {}
    if not any(env.get(name) for name in _INDEX_OF_UV):
        if said.get("index-url"):
            found["UV_DEFAULT_INDEX"] = said["index-url"].split()[0]
        if said.get("extra-index-url"):
            found["UV_INDEX"] = " ".join(said["extra-index-url"].split())
            found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip's own: all indexes are one
        if said.get("find-links"):
            found["UV_FIND_LINKS"] = ",".join(said["find-links"].split())
    if said.get("trusted-host"):
        found["UV_INSECURE_HOST"] = " ".join(said["trusted-host"].split())
    if said.get("cert"):
        found["SSL_CERT_FILE"] = said["cert"].strip()
    if said.get("client-cert"):
        found["SSL_CLIENT_CERT"] = said["client-cert"].strip()
    if said.get("proxy"):
        found["ALL_PROXY"] = said["proxy"].strip()
    return found


_SETTINGS = (
    "cert",
    "client-cert",
    "extra-index-url",
    "find-links",
    "index-url",
    "no-index",
    "proxy",
    "trusted-host",
)


def _settings_of_pip(env: Mapping[str, str]) -> dict[str, str]:
    """Return what pip would read of `_SETTINGS`: its files in their order, the later ones stronger, then its
    variables.
    """
    said: dict[str, str] = {}
    for path in _files_of_pip(env):
        parser = configparser.RawConfigParser()
        try:
            if path.stat().st_size > 1_000_000:
                continue
            parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, configparser.Error):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                rows = {name.replace("_", "-"): text for name, text in parser.items(section) if text}
                said |= {name: rows[name] for name in _SETTINGS if name in rows}
    for name in _SETTINGS:
        text = env.get(f"PIP_{name.replace('-', '_').upper()}")
        if text:
            said[name] = text
    return said


def _files_of_pip(env: Mapping[str, str]) -> list[Path]:
    if env.get("PIP_CONFIG_FILE") == os.devnull:
        return []
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - may not be a path at all
    system = [
        Path(one) / "pip/pip.conf" for one in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if one
    ]
    found = [
        *reversed(system),
        Path("/etc/pip.conf"),
        Path(home, ".pip/pip.conf"),
        Path(env.get("XDG_CONFIG_HOME") or f"{home}/.config", "pip/pip.conf"),
    ]
    if env.get("PIP_CONFIG_FILE"):
        found.append(Path(env["PIP_CONFIG_FILE"]))
    return found


# ---------------------------------------------------------------- running one


def run_installer(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    on_line: Callable[[str], None] | None,
    inherit: bool = False,
    pass_fds: Sequence[int] = (),
) -> None:
    """Run an installer to its end.

    Its lines go to `on_line` as they come; with `inherit` it draws on our standard error itself, and nothing is kept
    of what it says. It has a session of its own: Ctrl-C reaches us alone, and whatever exception ends this first ends
    the program and its children. `pass_fds` stay open in it: a lock that is held so lasts until it has ended, even
    where we are killed. Raises InstallFailedError.
    """
    run_installers([command], env=env, on_line=on_line, inherit=inherit, pass_fds=pass_fds)


def run_installers(
    commands: Sequence[Sequence[str]],
    *,
    env: Mapping[str, str],
    on_line: Callable[[str], None] | None,
    inherit: bool = False,
    pass_fds: Sequence[int] = (),
) -> None:
    """`run_installer` for several that do not meet, side by side; where one fails the others are stopped.

    Where uv's cache lacks what it says it holds (something cleaned it), they run once more without the cache: uv does
    not notice for wheels of an index that is a folder, and `--refresh` does not help (measured with uv 0.13.9). With
    `inherit` nothing is known of what they said: they run once.
    """
    running: list[_Process] = []
    try:
        for command in commands:
            with hold_signals():  # a Ctrl-C within Popen would leave a child that nobody knows
                running.append(_Process.start(command, env, inherit=inherit, pass_fds=pass_fds))
        for one in _wait_for_all(running, on_line):
            one.check()
    except BaseException as error:
        _stop(running)
        if env.get("UV_NO_CACHE") or not _cache_lost(error):
            raise
    else:
        return
    finally:
        for one in running:
            if one.process.stdout is not None:
                one.process.stdout.close()
    if on_line is not None:
        on_line("uv's cache is damaged; once more without it (`uv cache clean` empties it).")
    env = {**env, "UV_NO_CACHE": "1"}
    run_installers(commands, env=env, on_line=on_line, inherit=inherit, pass_fds=pass_fds)


@dataclass(slots=True)
class _Process:
    """A program at work."""

    name: str
    process: subprocess.Popen[bytes]
    lines: collections.deque[str]
    rest: bytes = b""
    """The beginning of a line that has not ended yet."""
    ended: float = 0.0
    """When it was first seen to have ended with its output still open."""

    @classmethod
    def start(
        cls, command: Sequence[str], env: Mapping[str, str], *, inherit: bool, pass_fds: Sequence[int]
    ) -> _Process:
        name = _name_of(command)
        teller = sys.stderr.fileno() if inherit else None
        try:
            process = subprocess.Popen(
                children.isolate(command),
                env=children.drop_working_folder(child_environment(env)),
                stdin=subprocess.DEVNULL,
                stdout=teller if inherit else subprocess.PIPE,
                stderr=teller if inherit else subprocess.STDOUT,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        except OSError as error:
            msg = f"{name} could not be started: {error.strerror or error}."
            raise InstallFailedError(msg, hint=clean_line(str(command[0]))) from error
        return cls(name, process, collections.deque(maxlen=_MAX_KEPT_LINES))

    def check(self) -> None:
        """Raises InstallFailedError where it failed."""
        if self.process.returncode:
            raise _failure(self.name, self.process.returncode, tuple(self.lines))

    def take(self, chunk: bytes, on_line: Callable[[str], None] | None) -> None:
        """What it printed; an empty chunk is its end."""
        *whole, self.rest = re.split(rb"[\r\n]+", self.rest + chunk)
        self.rest = self.rest[:_MAX_LINE_BYTES]
        if not chunk:
            whole.append(self.rest)
            self.rest = b""
        for line in whole:
            text = _hide(clean_line(line[:_MAX_LINE_BYTES].decode("utf-8", "replace"), limit=_MAX_LINE_BYTES))
            if text:
                self.lines.append(text)
                if on_line is not None:
                    on_line(text)


_DRAIN_TIMEOUT_S = 1.0
"""Seconds that a program's output is read on after its end: a process that it left behind may hold it open."""


def _wait_for_all(running: Sequence[_Process], on_line: Callable[[str], None] | None) -> Iterator[_Process]:
    """Yield each as it ends; all are read meanwhile."""
    left = list(running)
    while left:
        pipes = {one.process.stdout.fileno(): one for one in left if one.process.stdout is not None}
        if pipes:
            ready, _, _ = select.select(list(pipes), [], [], 0.5)
        else:
            time.sleep(0.1)
            ready = []
        for pipe in ready:
            chunk = os.read(pipe, 65536)
            pipes[pipe].take(chunk, on_line)
            if not chunk:
                pipes[pipe].process.wait()
                _kill_group(pipes[pipe].process.pid)  # children of one that was itself killed
                left.remove(pipes[pipe])
                yield pipes[pipe]
        for one in [] if ready else list(left):
            if one.process.poll() is None:
                continue
            one.ended = one.ended or time.monotonic()
            if one.process.stdout is None or time.monotonic() - one.ended > _DRAIN_TIMEOUT_S:
                one.take(b"", on_line)
                _kill_group(one.process.pid)
                left.remove(one)
                yield one


def _name_of(command: Sequence[str]) -> str:
    """Return `"pip"` for `python -m pip …`, else the program's own name."""
    words = list(command)
    if "-m" in words[:4]:
        return words[words.index("-m") + 1]
    return clean_line(Path(words[0]).name)


_NAMED = re.compile(r"(https?://)[^/@\s]{1,500}@")


def _hide(text: str) -> str:
    """Return a line without the name and password of an address."""
    return _NAMED.sub(r"\1", text)


def _stop(running: Sequence[_Process]) -> None:
    """End them and their children: asked first, then made to; does not return before they are gone."""
    alive = [one for one in running if one.process.poll() is None]
    with hold_signals() as came:
        # One that was started where Ctrl-C is ignored (a job in the background) hears the second. A second Ctrl-C
        # ends the patience.
        for number, seconds in ((signal.SIGINT, POLITE), (signal.SIGTERM, GRACE - POLITE)):
            _signal_groups([one for one in alive if one.process.poll() is None], number)
            until = time.monotonic() + seconds
            while not came and time.monotonic() < until and any(one.process.poll() is None for one in alive):
                _drain(alive)
        # Also their children: a build that does not hear SIGINT must not go on changing the environment.
        _signal_groups(alive, signal.SIGKILL)
        for one in running:
            one.process.wait()
        until = time.monotonic() + GRACE
        while time.monotonic() < until and any(_kill_group(one.process.pid) for one in alive):
            time.sleep(0.02)


def _kill_group(group: int) -> bool:
    """Return whether a process of the group was there to be killed: children are not ours to wait for, and take a
    moment to die.
    """
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        return False
    return True


def _signal_groups(running: Sequence[_Process], number: signal.Signals) -> None:
    for one in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(one.process.pid, number)


def _drain(running: Sequence[_Process]) -> None:
    """Take away what they still print, so that they do not wait for a reader."""
    pipes = [one.process.stdout.fileno() for one in running if one.process.stdout is not None]
    ready, _, _ = select.select(pipes, [], [], 0.05)
    if not any(os.read(pipe, 65536) for pipe in ready):
        time.sleep(0.02)


# ---------------------------------------------------------------- why it failed


_DISK = re.compile(r"No space left on device|Disk quota exceeded|[Ee]rrno 28\b|os error (?:28|122)\b")
_HASH = re.compile(
    r"DO NOT MATCH THE HASHES|Hash mismatch|hash-mismatch|hashes? (?:do|does) not match", re.IGNORECASE
)
_TLS = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|invalid peer certificate|UnknownIssuer|SSLError|certificate verify failed"
)
_PROXY = re.compile(
    r"ProxyError|Cannot connect to proxy|Tunnel connection failed|407 Proxy|proxy connect", re.IGNORECASE
)
_ASKED = re.compile(
    r"\b40[13] (?:Client Error|Unauthorized|Forbidden)|status client error \(40[13]|HTTP error 40[13]"
)
_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Failed to establish a new connection|"
    r"NewConnectionError|ConnectTimeout|ReadTimeout|[Rr]ead timed out|Max retries exceeded|"
    r"Connection (?:refused|reset|broken)|"
    r"Network is unreachable|No route to host|dns error|tcp connect error|client error \(Connect\)|operation timed out|"
    r"error sending request|IncompleteRead|ConnectionResetError|"
    r"error decoding response body|Network connectivity is disabled|network was disabled"
)
_NOT_THERE = re.compile(
    r"No matching distribution found|Could not find a version|not found in the package registry|"
    r"404 (?:Client Error|Not Found)|HTTP error 404|there (?:is|are) no versions? of|was not found in the provided"
)
_CONFLICT = re.compile(
    r"ResolutionImpossible|conflicting dependencies|No solution found|requirements are unsatisfiable"
)
_DENIED = re.compile(r"Permission denied|[Ee]rrno 13\b|os error 13\b|Read-only file system")
_MANAGED = re.compile(r"externally[- ]managed")

_REASONS = (
    # What says why by itself before what also follows from something else: a pip that reaches no index says at its
    # end that it found no distribution.
    (_DISK, "the disk is full", "Free some space, or name a folder on another file system."),
    (
        _HASH,
        "a file is not the one that was locked",
        "The index (or something between) serves another file under this name. It was not installed.",
    ),
    (
        _TLS,
        "the index's certificate is not trusted",
        "Behind a company's proxy: put its certificate authority into SSL_CERT_FILE and PIP_CERT.",
    ),
    (_PROXY, "the proxy does not let it through", "See HTTPS_PROXY and NO_PROXY."),
    (
        _ASKED,
        "the index wants a name and password, or refuses them",
        "Put them into ~/.netrc, pip.conf, or UV_DEFAULT_INDEX; never onto a command line.",
    ),
    (
        _NETWORK,
        "the network or the package index cannot be reached",
        "See the network, HTTPS_PROXY, or take another index.",
    ),
    (_NOT_THERE, "the package index does not have it", "Is it a mirror that lacks files? Try another index."),
    (
        _CONFLICT,
        "the requirements conflict with each other",
        "Loosen the pins that are named above: TensorFlow's own packages have fixed versions.",
    ),
    (
        _MANAGED,
        "the system forbids changing this Python (PEP 668)",
        "It belongs to the system; use a virtual environment.",
    ),
    (_DENIED, "permission denied", "The folder belongs to somebody else, or is read-only."),
)
_CACHE_LOST = re.compile(r"failed to \w+ \w+ `[^`]*/archive-v\d+/[^`]*`: No such file or directory")
_NOISE = re.compile(r"^(?:\[notice\]|WARNING: (?:There was an error checking|You are using pip)|hint:|note:)")
_TELLS = re.compile(r"(?i)\b(?:error|failed|fatal|cause|cannot|could not|×)\b")


def _failure(name: str, status: int, lines: tuple[str, ...]) -> InstallFailedError:
    text = "\n".join(lines)
    for pattern, what, hint in _REASONS:
        match = pattern.search(text)
        if match is not None:
            msg = f"{name} failed: {what}."
            unsolved = pattern in (_NOT_THERE, _CONFLICT)
            return InstallFailedError(msg, hint=hint, output=lines, unsolved=unsolved)
    if status < 0:
        msg = f"{name} was ended by {_signal(-status)}."
        hint = "It may have been short of memory." if -status == signal.SIGKILL else ""
        return InstallFailedError(msg, hint=hint, output=lines)
    told = [line for line in lines if _TELLS.search(line) and not _NOISE.search(line)]
    last = told[-1] if told else (lines[-1] if lines else "it said nothing")
    msg = f"{name} failed (status {status}): {clean_line(last, limit=300)}"
    return InstallFailedError(msg, output=lines)


def _cache_lost(error: BaseException) -> bool:
    return isinstance(error, InstallFailedError) and any(_CACHE_LOST.search(line) for line in error.output)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
