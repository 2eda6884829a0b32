"""Exceptions that users see, and the exit codes of all commands (see docs/maintaining.md).

An `Error` contains a sentence about the problem, and may contain a hint about what to do next. Any other exception that
reaches the user is a bug in tfdoctor.
"""

from __future__ import annotations

import enum
import shlex
import sys


class ExitCode(enum.IntEnum):
    """The exit status of a command. The numbers must not change, because scripts rely on them."""

    OK = 0
    """Completed; no finding at or above `--fail-on`."""
    FOUND = 1
    """Completed; there is a finding at or above `--fail-on`, or no plan was found."""
    USAGE = 2
    """The request is invalid: an unknown option, a missing or unreadable file, an invalid version."""
    IMPOSSIBLE = 3
    """The command could not be completed: no engine, no network, no permission, or a time limit."""
    INTERRUPTED = 130
    """The user pressed Ctrl-C. All child processes have been stopped."""


class Error(Exception):
    """A failure that is reported as a sentence, without a traceback."""

    exit_code = ExitCode.IMPOSSIBLE
    kind = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(Error):
    """The request is invalid. Nothing was examined."""

    exit_code = ExitCode.USAGE
    kind = "usage"


def make_install_command(package: str) -> str:
    """Return the command that installs an optional dependency into the environment of tfdoctor."""
    from importlib.util import find_spec

    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:  # environments that uv creates have no pip
        return f"uv pip install --python {python} {package}"
    return f"{python} -m pip install {package}"
