"""Exceptions that reach the user, and the exit codes of every command (see CONTRIBUTING.md).

An `Error` is the user's to read: one sentence that says what is wrong, and where there is one, a hint
that says what to type next. Anything else that escapes is a defect of tfdoctor.
"""

from __future__ import annotations

import enum
import shlex
import sys


class ExitCode(enum.IntEnum):
    """What the shell gets. The numbers are a contract: scripts rely on them."""

    OK = 0
    """Done; no finding at or above `--fail-on`."""
    FOUND = 1
    """Done; such a finding exists, or no plan does."""
    USAGE = 2
    """The request is wrong: unknown option, file not there or not readable, not a version."""
    IMPOSSIBLE = 3
    """Could not be done: no engine, network, permission, time limit."""
    INTERRUPTED = 130
    """Ctrl-C; everything that was started has been stopped."""


class Error(Exception):
    """A failure told to the user in a sentence, without a traceback."""

    exit_code = ExitCode.IMPOSSIBLE
    kind = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(Error):
    """The request itself is wrong; nothing was looked at."""

    exit_code = ExitCode.USAGE
    kind = "usage"


def install_hint(package: str) -> str:
    """Return the command that installs a package of an extra into the environment that runs tfdoctor."""
    from importlib.util import find_spec

    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:  # uv's environments have none
        return f"uv pip install --python {python} {package}"
    return f"{python} -m pip install {package}"
