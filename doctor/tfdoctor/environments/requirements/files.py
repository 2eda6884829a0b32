"""Read requirements files as pip does, including nested files (`-r`) and constraints files (`-c`)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.environments.requirements.lines import MAX_LINES, join_lines, parse_line
from tfdoctor.environments.requirements.models import MAX_FILES, RequirementFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["add_lines", "read_requirements"]

# `-r base.txt`, `-cpins.txt` or `--requirement=base.txt`.
_FILE_OPTION = re.compile(r"(?:(-r|-c)\s*|(--requirements?|--constraints?)(?:\s+|=))(\S.*)")
_IGNORED_OPTIONS = frozenset({"--require-hashes"})
"""pip options that are accepted and ignored."""


def read_requirements(path: Path, read_text: Callable[[Path], str]) -> RequirementFile:
    """Return the requirements in a file and in all files that it includes.

    `read_text` returns the text of a file. Raise UsageError if a file cannot be read, or a line in it cannot be used.
    """
    reader = _RequirementReader(RequirementFile(), read_text)
    reader.load_file(path, is_constraint=False, may_quote=True)
    return reader.result


def add_lines(
    lines: Iterable[tuple[str, str]],
    including_file: Path,
    result: RequirementFile,
    read_text: Callable[[Path], str],
) -> None:
    """Add requirement lines from a file in another format to `result`.

    `lines` contains (location, line). The lines may include files, relative to the folder of `including_file`. Raise
    UsageError if a line cannot be used.
    """
    reader = _RequirementReader(result, read_text, {(os.path.realpath(including_file), False)})
    reader.add_lines(lines, including_file, is_constraint=False, may_quote=True)


@dataclass(slots=True)
class _RequirementReader:
    """Adds the requirements of a file, and of the files that it includes, to `result`.

    If `is_constraint`, the lines are constraints. If `may_quote`, errors may quote the lines. They must not if the file
    is outside the folder of the file that includes it.
    """

    result: RequirementFile
    read_text: Callable[[Path], str]
    visited: set[tuple[str, bool]] = field(default_factory=set)
    """(resolved path, `is_constraint`) of the files that were read."""

    def load_file(self, path: Path, *, is_constraint: bool, may_quote: bool) -> None:
        """Add the requirements in a file, unless it was read before. Raise UsageError if it cannot be used."""
        key = (os.path.realpath(path), is_constraint)
        if key in self.visited:  # files that include each other
            return
        self.visited.add(key)
        display_path = clean_line(str(path))
        if len(self.visited) > MAX_FILES:
            msg = f"{display_path}: more than {MAX_FILES} files include each other."
            raise UsageError(msg)
        lines = join_lines(self.read_text(path))
        if len(lines) > MAX_LINES:
            msg = f"{display_path} has more than {MAX_LINES} lines."
            raise UsageError(msg)
        located_lines = ((f"{display_path}, line {number}", line) for number, line in lines)
        self.add_lines(located_lines, path, is_constraint=is_constraint, may_quote=may_quote)

    def add_lines(
        self,
        lines: Iterable[tuple[str, str]],
        including_file: Path,
        *,
        is_constraint: bool,
        may_quote: bool,
    ) -> None:
        """Add requirement lines, and the files that they include. Raise UsageError if a line cannot be used."""
        for location, line in lines:
            match = _FILE_OPTION.fullmatch(line)
            if match is not None:
                self._include(
                    match, location, including_file, is_constraint=is_constraint, may_quote=may_quote
                )
            elif line not in _IGNORED_OPTIONS:
                item = parse_line(line, location, may_quote=may_quote)
                if item is not None:
                    (self.result.constraints if is_constraint else self.result.requirements).append(item)

    def _include(
        self,
        match: re.Match[str],
        location: str,
        including_file: Path,
        *,
        is_constraint: bool,
        may_quote: bool,
    ) -> None:
        """Add the requirements in an included file.

        Raise UsageError if the file cannot be used. If it cannot be read, the error names the line that includes it.
        """
        option, name = (match[1] or match[2]), match[3].strip().strip("\"'")
        if "://" in name or not name.isprintable() or len(name) > 1000:
            msg = f"{location}: {f'`{clean_line(name)}`' if may_quote else 'what it names'} is not a file of this machine."
            raise UsageError(msg, hint="Fetch it, and name the file.")
        included = including_file.parent / name
        is_below = os.path.realpath(included).startswith(f"{os.path.realpath(including_file.parent)}{os.sep}")
        try:
            self.load_file(
                included,
                is_constraint=is_constraint or option.startswith(("-c", "--constraint")),
                may_quote=may_quote and is_below,
            )
        except UsageError as error:
            # The error is about the whole file, so add the line that includes it.
            if clean_line(str(included)) in str(error) and ", line " not in str(error):
                msg = f"{location}: {error}"
                raise UsageError(msg, hint=error.hint) from error
            raise
