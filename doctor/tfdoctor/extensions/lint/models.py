"""The data types of `lint`: its target, findings and fixes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfdoctor.core.findings import Severity

__all__ = ["Fix", "LintProblem", "LintResult", "LintTarget", "UnreadableFile"]


@dataclass(frozen=True, slots=True)
class Fix:
    """A replacement of the text between two positions. Both are counted from 1, and the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    new_text: str
    """The new text."""
    old_text: str = ""
    """The text that is replaced, within one line."""
    is_safe: bool = True
    """Whether the fix is certain, so that --fix applies it."""


@dataclass(frozen=True, slots=True)
class LintProblem:
    """One finding in a file."""

    kind_name: str
    """The name of one of `codes.KINDS`, "cluster-address", "cluster-task", or the name of a rule about an image."""
    message: str
    line: int
    """The line number, from 1. In a notebook, lines are counted from the beginning of the cell."""
    column: int
    """The column in characters, from 1."""
    path: str = ""
    cell_number: int | None = None
    """The number of the notebook cell, from 1, with text cells included. None if it is not a notebook."""
    fix: Fix | None = None
    source: str = ""
    """The text of the line."""
    code: str = ""
    """The code of the kind: "TFD711"."""
    severity: Severity = Severity.ERROR
    service: str | None = None
    """The service of a compose file, "" for a dev container. None if the problem is not about a container's start."""


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file, or a part of one, that could not be checked."""

    path: str
    reason: str
    is_read: bool = False
    """Whether the text was read, but not understood."""


@dataclass(frozen=True, slots=True)
class LintTarget:
    """The TensorFlow and the machine that code is checked for."""

    tf_version: tuple[int, int] | None = None
    """The major and minor version. None if unknown; then the code is checked as for TensorFlow 2."""
    gpu_count: int | None = None
    """The number of GPUs on the target machine. None if unknown."""

    @property
    def is_tf1(self) -> bool:
        """Whether the target is TensorFlow 1."""
        return self.tf_version is not None and self.tf_version[0] < 2


@dataclass(frozen=True, slots=True)
class LintResult:
    """The findings in all files."""

    file_count: int
    """The number of files that were read."""
    problems: tuple[LintProblem, ...]
    unreadable_files: tuple[UnreadableFile, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    """The text of each file that has a fix, by path."""

    @property
    def has_read_nothing(self) -> bool:
        """Whether there were files or folders, but none could be read."""
        return not self.file_count and bool(self.unreadable_files)
