"""Read files that options name, and the requirements in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.environments.requirements import (
    RequirementSet,
    parse_packages,
    parse_requirements,
    read_requirement_files,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["read_option_file", "read_requirement_lines", "read_requirement_set"]

MAX_FILE_BYTES = 4 * 1024 * 1024
"""The largest file that is read."""


def read_requirement_lines(files: Sequence[Path], packages: Sequence[str]) -> tuple[str, ...]:
    """Return the requirement lines of `-r FILE…` and `--package P…`. Raise UsageError if one is invalid."""
    lines: list[str] = []
    for path in files:
        lines += parse_requirements(read_option_file(path, "-r"), str(path))
    return (*lines, *parse_packages(packages))


def read_requirement_set(files: Sequence[Path]) -> RequirementSet:
    """Return the requirements in `-r FILE…`, which can also be pyproject.toml, environment.yml or a lock.

    Raise UsageError if a file cannot be read or parsed.
    """
    return read_requirement_files(files, lambda path: read_option_file(path, "-r"))


def read_option_file(path: Path, option: str) -> str:
    """Return the text of a file that an option names.

    Raise UsageError if it cannot be read, is too large or is not UTF-8.
    """
    display_name = clean_line(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        msg = f"{option}: {display_name} cannot be read: {error.strerror or error}."
        raise UsageError(msg) from error
    if len(content) > MAX_FILE_BYTES:
        msg = f"{option}: {display_name} is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB."
        raise UsageError(msg)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{option}: {display_name} is not UTF-8 text."
        raise UsageError(msg) from error
