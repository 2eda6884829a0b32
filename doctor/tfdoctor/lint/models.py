"""Data types of `lint`: its target, findings and corrections."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfdoctor.findings import Severity

__all__ = ["Fix", "LintProblem", "LintResult", "LintTarget", "Unreadable"]


@dataclass(frozen=True, slots=True)
class Fix:
    """A replacement of the text between two positions. Lines and columns count from 1; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    old: str = ""
    """The text to replace, within one line."""
    safe: bool = True


@dataclass(frozen=True, slots=True)
class LintProblem:
    """One finding in a file."""

    name: str
    """One of `codes.KINDS`, or a cluster finding."""
    message: str
    line: int
    column: int
    path: str = ""
    cell: int | None = None
    """The number of the notebook cell, from 1, text cells included; None: not a notebook.

    `line` counts from the start of the cell.
    """
    fix: Fix | None = None
    source: str = ""
    """The text of the line."""
    code: str = ""
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file, or a part of one, that could not be checked."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class LintTarget:
    """The TensorFlow and the machine that code is checked for."""

    tf: tuple[int, int] | None = None
    """The major and minor version; None: unknown, checked as TensorFlow 2."""
    gpus: int | None = None
    """The number of GPUs on the target machine; None: unknown."""

    @property
    def old(self) -> bool:
        """Whether the target is TensorFlow 1."""
        return self.tf is not None and self.tf[0] < 2


@dataclass(frozen=True, slots=True)
class LintResult:
    """The findings in all files."""

    files: int
    problems: tuple[LintProblem, ...]
    unreadable: tuple[Unreadable, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    """The text of each file with a fix, by path."""
