"""Define the result of a command."""

from __future__ import annotations

import enum

from tfdoctor.core.records import dataclass


class Failure(str, enum.Enum):
    """The reason why a command has no exit status."""

    NOT_FOUND = "not-found"
    PERMISSION = "permission"
    TIMEOUT = "timeout"
    OS_ERROR = "os-error"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The output of a command, at most a few MiB, and how the command ended."""

    argv: tuple[str, ...]
    returncode: int | None
    """The exit status; -N if signal N ended it; None if `failure` is set."""
    stdout: str = ""
    stderr: str = ""
    failure: Failure | None = None
    """The reason why there is no exit status; None if there is one."""
    detail: str = ""
    """The error message of the operating system; "" if there is none."""
    seconds: float = 0.0
    """The run time of the command in seconds."""

    @property
    def ok(self) -> bool:
        return self.returncode == 0

    @property
    def command(self) -> str:
        """The arguments joined by spaces. They are not quoted, so use this only for display."""
        return " ".join(self.argv)

    def describe_outcome(self) -> str:
        """Describe how the command ended, such as "exited with status 9" or "did not answer within 5 s"."""
        if self.failure is Failure.TIMEOUT:
            return f"did not answer within {self.seconds:.0f} s"
        if self.failure is not None:
            return f"could not be run ({self.detail or self.failure.value})"
        if self.returncode is not None and self.returncode < 0:
            return f"was ended by signal {-self.returncode}"
        return f"exited with status {self.returncode}"
