"""Files that options name, and the requirements in them: what build and install take alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.environment.requirements import RequirementSet, parse_packages, parse_requirements, read_wish
from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["requirement_lines", "text_of", "wish_of"]

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Bytes of a file that are taken."""


def requirement_lines(files: Sequence[Path], packages: Sequence[str]) -> tuple[str, ...]:
    """Return the checked lines of `-r FILE…` and `--package P…`. Raises UsageError."""
    lines: list[str] = []
    for path in files:
        lines += parse_requirements(text_of(path, "-r"), str(path))
    return (*lines, *parse_packages(packages))


def wish_of(files: Sequence[Path]) -> RequirementSet:
    """Return what `-r FILE…` asks for: requirements files, pyproject.toml, environment.yml, locks.

    Raises UsageError.
    """
    return read_wish(files, lambda path: text_of(path, "-r"))


def text_of(path: Path, option: str) -> str:
    """Return a file that an option names, as text. Raises UsageError."""
    shown = clean_line(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        msg = f"{option}: {shown} cannot be read: {error.strerror or error}."
        raise UsageError(msg) from error
    if len(content) > MAX_FILE_BYTES:
        msg = f"{option}: {shown} is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB."
        raise UsageError(msg)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{option}: {shown} is not UTF-8 text."
        raise UsageError(msg) from error
