"""Parse the usual `check` command lines without Typer, because importing Typer is slow.

Typer parses all other command lines: abbreviations, `--option=value`, wrong options and --help. A test compares the
two parsers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tfdoctor.cli.options import FailOn
from tfdoctor.remedies.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CheckOptions", "parse_check"]


class CheckOptions(TypedDict):
    """The arguments of `cli.check.check`."""

    folder: str | None
    python: str | None
    deep: bool
    simulate: list[str] | None
    driver: str | None
    recording_path: Path | None
    against: Path | None
    then_fix: bool
    yes: bool
    for_tool: Tool | None
    html: Path | None
    force: bool
    timeout: float
    ignore: list[str] | None
    fail_on: FailOn | None
    as_json: bool
    verbose: bool
    quiet: bool


PARAMETER_BY_FLAG = {
    "--deep": "deep",
    "--fix": "then_fix",
    "--yes": "yes",
    "-y": "yes",
    "--force": "force",
    "--json": "as_json",
    "--verbose": "verbose",
    "-v": "verbose",
    "--quiet": "quiet",
    "-q": "quiet",
}
VALUE_OPTIONS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "--python": ("python", r"(?s:[^-].*)", str),
    "--from": ("recording_path", r"(?s:[^-].*)", Path),
    "--against": ("against", r"(?s:[^-].*)", Path),
    "--html": ("html", r"(?s:[^-].*)", Path),
    "--timeout": ("timeout", r"[1-9]\d{0,2}(?:\.\d{1,3})?", float),
    "--fail-on": ("fail_on", "error|warning|never", FailOn),
    "--for": ("for_tool", "|".join(tool.value for tool in Tool), Tool),
}
"""(parameter, pattern of the values that are parsed here, conversion of the value), by option.

Typer parses any other value, such as one that begins with a hyphen.
"""


def parse_check(words: Sequence[str]) -> CheckOptions | None:
    """Parse a `check` command and return its options, or None if Typer must parse the command line."""
    # On Windows, Typer expands wildcards, because the shell does not.
    if words[:1] != ["check"] or os.name == "nt":
        return None
    options: dict[str, Any] = {
        "folder": None,
        "python": None,
        "simulate": None,
        "driver": None,
        "recording_path": None,
        "against": None,
        "for_tool": None,
        "html": None,
        "timeout": 10.0,
        "ignore": None,
        "fail_on": None,
        **dict.fromkeys(PARAMETER_BY_FLAG.values(), False),
    }
    remaining_words = iter(words[1:])
    for word in remaining_words:
        if word in PARAMETER_BY_FLAG:
            options[PARAMETER_BY_FLAG[word]] = True
            continue
        if word not in VALUE_OPTIONS:
            return None
        name, pattern, convert = VALUE_OPTIONS[word]
        value = next(remaining_words, "")
        if not re.fullmatch(pattern, value):
            return None
        options[name] = convert(value)
    return cast("CheckOptions", options)
