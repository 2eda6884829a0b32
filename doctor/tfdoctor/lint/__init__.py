"""Code read, never run: what in it keeps TensorFlow from the GPUs. Python 2 and 3, notebooks, shell, Dockerfiles, YAML."""

from __future__ import annotations

from tfdoctor.lint.judge import kind_of_file, lint_text
from tfdoctor.lint.models import Answer, Asked, Fix, Problem, Unreadable

__all__ = ["Answer", "Asked", "Fix", "Problem", "Unreadable", "kind_of_file", "lint_text"]
