"""Find code that hides GPUs, in Python 2 and 3, notebooks, shell scripts, Dockerfiles and YAML."""

from __future__ import annotations

from tfdoctor.lint.analysis import detect_file_kind, lint_text
from tfdoctor.lint.models import Fix, LintProblem, LintResult, LintTarget, UnreadableFile

__all__ = [
    "Fix",
    "LintProblem",
    "LintResult",
    "LintTarget",
    "UnreadableFile",
    "detect_file_kind",
    "lint_text",
]
