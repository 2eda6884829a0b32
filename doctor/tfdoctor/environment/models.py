"""What a repair is, and what came of it, as frozen dataclasses."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.findings import Finding, Observation, Remedy, Report
    from tfdoctor.steps import Step

__all__ = ["Done", "Environment", "Left", "Mending", "Status", "Way"]


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment that repairs may change."""

    prefix: str
    """`sys.prefix`: everything that is changed lies below it."""
    python: str
    kind: str | None
    """"venv", "conda", or None: nothing is activated."""
    refusal: str = ""
    """Why nothing here is changed, as a sentence; empty where it may be."""
    inherited: frozenset[str] = frozenset()
    """Variables that come from the caller's shell: no script of the environment's activation names them."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to mend one finding."""

    finding: Finding
    remedy: Remedy

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.remedy.steps

    @property
    def key(self) -> tuple[str, tuple[Step, ...]]:
        """What tells it from others: the same way is not tried twice."""
        return self.finding.code, self.remedy.steps


class Status(str, enum.Enum):
    """What came of a way."""

    PLANNED = "planned"
    MENDED = "mended"
    ROLLED_BACK = "rolled-back"
    """It did not make things better, and was taken back."""
    FAILED = "failed"
    """It could not be carried out, and what it had begun was taken back."""


@dataclass(frozen=True, slots=True)
class Done:
    """A way that was planned or tried."""

    way: Way
    status: Status
    commands: tuple[str, ...]
    """What was done, as a person would type it."""
    detail: str = ""
    changes: int = 0
    """Files and links that are different now."""

    @property
    def ok(self) -> bool:
        """Whether it helped and stays."""
        return self.status is Status.MENDED


@dataclass(frozen=True, slots=True)
class Left:
    """A finding that is not mended here."""

    finding: Finding
    why: str


@dataclass(frozen=True, slots=True)
class Mending:
    """The whole run."""

    environment: Environment
    done: tuple[Done, ...]
    left: tuple[Left, ...]
    before: Report
    after: Report
    recovered: tuple[str, ...] = ()
    """What an earlier run that was killed had left, and what became of it."""
    observed: Observation | None = None
    activated: bool = False
    """Whether the environment was examined as its activation sets it up."""

    @property
    def mended(self) -> int:
        return sum(one.ok for one in self.done)
