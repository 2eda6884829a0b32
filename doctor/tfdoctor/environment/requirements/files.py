"""A reader of requirements files as pip reads them, with included files and constraints files."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tfdoctor.environment.requirements.lines import MAX_LINES, join_lines, parse_line
from tfdoctor.environment.requirements.models import MAX_FILES, RequirementFile
from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["add_lines", "read_requirements"]

_FILE_OPTION = re.compile(r"(?:(-r|-c)\s*|(--requirements?|--constraints?)(?:\s+|=))(\S.*)")
_IGNORED_OPTIONS = frozenset({"--require-hashes"})
"""Options of pip that have no effect here."""


def read_requirements(path: Path, text_of: Callable[[Path], str]) -> RequirementFile:
    """Return the content of a file and of all files that it names. Raise UsageError."""
    part = RequirementFile()
    _load_file(path, part, text_of, set(), limit=False, quote=True)
    return part


def add_lines(
    rows: Iterable[tuple[str, str]],
    including_file: Path,
    part: RequirementFile,
    text_of: Callable[[Path], str],
) -> None:
    """Add the requirements `(where, line)` of a file in another format, `including_file`, to `part`.

    Raise UsageError.
    """
    _add_lines(
        rows, including_file, part, text_of, {(_resolve_path(including_file), False)}, limit=False, quote=True
    )


def _resolve_path(path: Path) -> str:
    return os.path.realpath(path)


def _load_file(
    path: Path,
    part: RequirementFile,
    text_of: Callable[[Path], str],
    visited: set[tuple[str, bool]],
    *,
    limit: bool,
    quote: bool,
) -> None:
    """Add the content of a file to `part`; `quote` is false for files outside the first one's folder."""
    if (_resolve_path(path), limit) in visited:  # files that include each other
        return
    visited.add((_resolve_path(path), limit))
    display_path = clean_line(str(path))
    if len(visited) > MAX_FILES:
        msg = f"{display_path}: more than {MAX_FILES} files include each other."
        raise UsageError(msg)
    lines = join_lines(text_of(path))
    if len(lines) > MAX_LINES:
        msg = f"{display_path} has more than {MAX_LINES} lines."
        raise UsageError(msg)
    located_lines = ((f"{display_path}, line {number}", line) for number, line in lines)
    _add_lines(located_lines, path, part, text_of, visited, limit=limit, quote=quote)


def _add_lines(
    lines: Iterable[tuple[str, str]],
    including_file: Path,
    part: RequirementFile,
    text_of: Callable[[Path], str],
    visited: set[tuple[str, bool]],
    *,
    limit: bool,
    quote: bool,
) -> None:
    """Add the lines of a file, and the content of the files that they name, to `part`. Raise UsageError."""
    for where, line in lines:
        match = _FILE_OPTION.fullmatch(line)
        if match is not None:
            _include(match, where, including_file, part, text_of, visited, limit=limit, quote=quote)
        elif line not in _IGNORED_OPTIONS:
            item = parse_line(line, where, quote=quote)
            if item is not None:
                (part.constraints if limit else part.items).append(item)


def _include(
    match: re.Match[str],
    where: str,
    including_file: Path,
    part: RequirementFile,
    text_of: Callable[[Path], str],
    visited: set[tuple[str, bool]],
    *,
    limit: bool,
    quote: bool,
) -> None:
    """Add the content of an included file. Raise UsageError with the line that names it."""
    option, name = (match[1] or match[2]), match[3].strip().strip("\"'")
    if "://" in name or not name.isprintable() or len(name) > 1000:
        msg = (
            f"{where}: {f'`{clean_line(name)}`' if quote else 'what it names'} is not a file of this machine."
        )
        raise UsageError(msg, hint="Fetch it, and name the file.")
    included = including_file.parent / name
    is_limit = limit or option.startswith(("-c", "--constraint"))
    try:
        is_inside = quote and _resolve_path(included).startswith(
            f"{_resolve_path(including_file.parent)}{os.sep}"
        )
        _load_file(included, part, text_of, visited, limit=is_limit, quote=is_inside)
    except UsageError as error:
        if clean_line(str(included)) in str(error) and ", line " not in str(error):
            msg = f"{where}: {error}"
            raise UsageError(msg, hint=error.hint) from error
        raise
