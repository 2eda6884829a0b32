"""Exceptions that users see, and the exit codes of all commands (see CONTRIBUTING.md).

An `Error` has one sentence that says what is wrong, and sometimes a hint that says what to type next. Any
other exception that escapes is a defect of tfdoctor.
"""

from __future__ import annotations

import enum
import shlex
import sys


class ExitCode(enum.IntEnum):
    """The exit status of a command. The numbers are permanent: scripts rely on them."""

    OK = 0
    """Completed; no finding at or above `--fail-on`."""
    FOUND = 1
    """Completed; there is such a finding, or no plan."""
    USAGE = 2
    """The request is wrong: unknown option, file missing or not readable, not a version."""
    IMPOSSIBLE = 3
    """The command could not be carried out: no engine, network, permission, or a time limit."""
    INTERRUPTED = 130
    """The user pressed Ctrl-C; all child processes have been stopped."""


class Error(Exception):
    """A failure that is reported as a sentence, without a traceback."""

    exit_code = ExitCode.IMPOSSIBLE
    kind = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(Error):
    """The request itself is wrong; nothing was examined."""

    exit_code = ExitCode.USAGE
    kind = "usage"


def install_hint(package: str) -> str:
    """Return the command that installs a package of an extra into the environment of tfdoctor."""
    from importlib.util import find_spec

    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:  # environments that uv creates have no pip
        return f"uv pip install --python {python} {package}"
    return f"{python} -m pip install {package}"
