"""What `lint` finds, and what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfdoctor.findings import Severity

__all__ = ["Fix", "LintAnswer", "LintProblem", "LintTarget", "Unreadable"]


@dataclass(frozen=True, slots=True)
class Fix:
    """The text that stands between two places instead; lines and columns from 1, the end is not part of it."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    old: str = ""
    """The text that stands there: within one line."""
    safe: bool = True


@dataclass(frozen=True, slots=True)
class LintProblem:
    """One thing that is wrong with a file."""

    name: str
    """One of `kinds.KINDS`."""
    message: str
    line: int
    column: int
    path: str = ""
    cell: int | None = None
    """The cell of a notebook, from 1, cells of text counted, too; `line` is the cell's."""
    fix: Fix | None = None
    source: str = ""
    """The line itself."""
    code: str = ""
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file, or a part of one, that could not be judged."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class LintTarget:
    """What code is judged against."""

    tf: tuple[int, int] | None = None
    """The release's first two numbers; None: not known, and judged as TensorFlow 2."""
    gpus: int | None = None
    """GPUs of the machine that the code is to run on; None: not known."""

    @property
    def old(self) -> bool:
        """TensorFlow 1."""
        return self.tf is not None and self.tf[0] < 2


@dataclass(frozen=True, slots=True)
class LintAnswer:
    """All files."""

    files: int
    problems: tuple[LintProblem, ...]
    unreadable: tuple[Unreadable, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    """Path → text, of files that have a fix."""
