"""Parse the usual `check` command lines without Typer, because importing Typer is slow.

The `cluster` command of `fleet run --connect` is also parsed here, because it runs on hosts without Typer. Typer parses
everything else: abbreviations, `--option=value`, wrong options and --help. A test compares the two parsers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tfdoctor.cli.options import FailOn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CONNECT_COMMAND", "CheckOptions", "parse_check", "parse_connect"]


class CheckOptions(TypedDict):
    """The arguments of `cli.check_build_file.check`."""

    folder: str | None
    python: str | None
    deep: bool
    simulate: list[str] | None
    driver: str | None
    facts: Path | None
    against: Path | None
    then_fix: bool
    yes: bool
    html: Path | None
    force: bool
    timeout: float
    fail_on: FailOn
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
    "--facts": ("facts", r"(?s:[^-].*)", Path),
    "--against": ("against", r"(?s:[^-].*)", Path),
    "--html": ("html", r"(?s:[^-].*)", Path),
    "--timeout": ("timeout", r"[1-9]\d{0,2}(?:\.\d{1,3})?", float),
    "--fail-on": ("fail_on", "error|warning|never", FailOn),
}
"""(parameter, pattern of the values that are parsed here, conversion of the value), by option."""
CONNECT_COMMAND = ("cluster", "--connect", "--json", "--fail-on", "never")
"""The command that `fleet run --connect` runs on a host. `--timeout SECONDS --tf-config JSON` follows."""


def parse_connect(words: Sequence[str]) -> dict[str, Any] | None:
    """Parse the command that `fleet run --connect` runs on a host, and return the arguments of `cluster`.

    Return None for any other command line.
    """
    # The nine words are those of CONNECT_COMMAND, --timeout, SECONDS, --tf-config and JSON.
    if tuple(words[:5]) != CONNECT_COMMAND or [*words[5:6], *words[7:8]] != ["--timeout", "--tf-config"]:
        return None
    if (
        len(words) != 9
        or re.fullmatch(VALUE_OPTIONS["--timeout"][1], words[6]) is None
        or words[8][:1] != "{"
    ):
        return None
    return {
        "connect": True,
        "as_json": True,
        "fail_on": FailOn.never,
        "timeout": float(words[6]),
        "tf_config": words[8],
    }


def parse_check(words: Sequence[str]) -> CheckOptions | None:
    """Parse a `check` command and return its options, or None if Typer must parse the command line."""
    if (
        words[:1] != ["check"] or os.name == "nt"
    ):  # on Windows Typer expands wildcards, which the shell does not
        return None
    options: dict[str, Any] = {
        "folder": None,
        "python": None,
        "simulate": None,
        "driver": None,
        "facts": None,
        "against": None,
        "html": None,
        "timeout": 10.0,
        "fail_on": FailOn.error,
        **dict.fromkeys(PARAMETER_BY_FLAG.values(), False),
    }
    remaining = iter(words[1:])
    for argument in remaining:
        if argument in PARAMETER_BY_FLAG:
            options[PARAMETER_BY_FLAG[argument]] = True
            continue
        if argument not in VALUE_OPTIONS:
            return None
        name, pattern, convert = VALUE_OPTIONS[argument]
        value = next(remaining, "")
        if not re.fullmatch(pattern, value):
            return None
        options[name] = convert(value)
    return cast("CheckOptions", options)
