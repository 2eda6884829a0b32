"""Requirements files as pip reads them, with the files that they include and the constraints that they name."""

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

__all__ = ["read_requirements", "take_rows"]

_NAMES_FILE = re.compile(r"(?:(-r|-c)\s*|(--requirements?|--constraints?)(?:\s+|=))(\S.*)")
_IS_SO_ANYHOW = frozenset({"--require-hashes"})
"""Options of pip that change nothing here."""


def read_requirements(path: Path, text_of: Callable[[Path], str]) -> RequirementFile:
    """Return a file and all that it names. Raises UsageError."""
    part = RequirementFile()
    _take(path, part, text_of, set(), limit=False, quote=True)
    return part


def take_rows(
    rows: Iterable[tuple[str, str]], beside: Path, part: RequirementFile, text_of: Callable[[Path], str]
) -> None:
    """(where, line) of requirements that stand in another kind of file, `beside`. Raises UsageError."""
    _take_rows(rows, beside, part, text_of, {(_place(beside), False)}, limit=False, quote=True)


def _place(path: Path) -> str:
    return os.path.realpath(path)


def _take(
    path: Path,
    part: RequirementFile,
    text_of: Callable[[Path], str],
    seen: set[tuple[str, bool]],
    *,
    limit: bool,
    quote: bool,
) -> None:
    """`quote`: whether a line that is refused is shown, which none is of a file outside of the first one's folder."""
    if (_place(path), limit) in seen:  # a ring of files says nothing new
        return
    seen.add((_place(path), limit))
    shown = clean_line(str(path))
    if len(seen) > MAX_FILES:
        msg = f"{shown}: more than {MAX_FILES} files include each other."
        raise UsageError(msg)
    rows = join_lines(text_of(path))
    if len(rows) > MAX_LINES:
        msg = f"{shown} has more than {MAX_LINES} lines."
        raise UsageError(msg)
    named = ((f"{shown}, line {number}", row) for number, row in rows)
    _take_rows(named, path, part, text_of, seen, limit=limit, quote=quote)


def _take_rows(
    rows: Iterable[tuple[str, str]],
    beside: Path,
    part: RequirementFile,
    text_of: Callable[[Path], str],
    seen: set[tuple[str, bool]],
    *,
    limit: bool,
    quote: bool,
) -> None:
    for where, row in rows:
        match = _NAMES_FILE.fullmatch(row)
        if match is not None:
            _include(match, where, beside, part, text_of, seen, limit=limit, quote=quote)
        elif row not in _IS_SO_ANYHOW:
            item = parse_line(row, where, quote=quote)
            if item is not None:
                (part.limits if limit else part.items).append(item)


def _include(
    match: re.Match[str],
    where: str,
    beside: Path,
    part: RequirementFile,
    text_of: Callable[[Path], str],
    seen: set[tuple[str, bool]],
    *,
    limit: bool,
    quote: bool,
) -> None:
    option, name = (match[1] or match[2]), match[3].strip().strip("\"'")
    if "://" in name or not name.isprintable() or len(name) > 1000:
        msg = (
            f"{where}: {f'`{clean_line(name)}`' if quote else 'what it names'} is not a file of this machine."
        )
        raise UsageError(msg, hint="Fetch it, and name the file.")
    inner = beside.parent / name
    is_limit = limit or option.startswith(("-c", "--constraint"))
    try:
        inside = quote and _place(inner).startswith(f"{_place(beside.parent)}{os.sep}")
        _take(inner, part, text_of, seen, limit=is_limit, quote=inside)
    except UsageError as error:
        if clean_line(str(inner)) in str(error) and ", line " not in str(error):
            msg = f"{where}: {error}"
            raise UsageError(msg, hint=error.hint) from error
        raise
