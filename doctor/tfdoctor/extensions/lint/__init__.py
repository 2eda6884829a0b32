"""Find code that hides GPUs, in Python 2 and 3, notebooks, shell scripts, Dockerfiles and YAML."""

from __future__ import annotations

from tfdoctor.cli.extensions import Extension

__all__ = ["EXTENSION"]

EXTENSION = Extension(
    summary="Find what keeps code from using the GPUs.",
    command="tfdoctor.extensions.lint.command:lint",
    example="tfdoctor lint .",
    pages="tfdoctor.extensions.lint.codes:LINT_PAGES",
)
