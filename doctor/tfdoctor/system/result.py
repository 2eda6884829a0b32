"""How a command ended."""

from __future__ import annotations

import enum

from tfdoctor.records import dataclass


class Failure(str, enum.Enum):
    """Why a command gave no exit status of its own."""

    NOT_FOUND = "not-found"
    PERMISSION = "permission"
    TIMEOUT = "timeout"
    OS_ERROR = "os-error"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command printed (at most a few MiB of it) and how it ended."""

    argv: tuple[str, ...]
    returncode: int | None
    """The exit status; -N where signal N ended it; None where `failure` says why there is none."""
    stdout: str = ""
    stderr: str = ""
    failure: Failure | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.returncode == 0

    @property
    def command(self) -> str:
        """The command line as a person would type it (for evidence, not for a shell)."""
        return " ".join(self.argv)

    def describe_end(self) -> str:
        """Return the end as half a sentence: "exited with status 9", "did not answer within 5 s"."""
        if self.failure is Failure.TIMEOUT:
            return f"did not answer within {self.seconds:.0f} s"
        if self.failure is not None:
            return f"could not be run ({self.detail or self.failure.value})"
        if self.returncode is not None and self.returncode < 0:
            return f"was ended by signal {-self.returncode}"
        return f"exited with status {self.returncode}"
