"""The command line of `check` as most people type it, read without Typer: loading that takes longer than the reading.

And that of `cluster` as `fleet run --connect` types it on hosts, where there is no Typer.

What is not plain (an abbreviation, `--option=value`, a mistake, a question for help) is left to Typer; a test holds the
two together.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tfdoctor.cli.options import FailOn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CONNECTING", "Options", "parse_connect", "plain"]


class Options(TypedDict):
    """What `cli.check.check` is called with."""

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


FLAGS = {
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
VALUES: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "--python": ("python", r"(?s:[^-].*)", str),
    "--facts": ("facts", r"(?s:[^-].*)", Path),
    "--against": ("against", r"(?s:[^-].*)", Path),
    "--html": ("html", r"(?s:[^-].*)", Path),
    "--timeout": ("timeout", r"[1-9]\d{0,2}(?:\.\d{1,3})?", float),
    "--fail-on": ("fail_on", "error|warning|never", FailOn),
}
"""Option → its parameter, what its value looks like where it is plain, and what is made of it."""


CONNECTING = ("cluster", "--connect", "--json", "--fail-on", "never")
"""What is typed on a host, before --timeout SECONDS --tf-config JSON."""


def parse_connect(words: Sequence[str]) -> dict[str, Any] | None:
    """Return what `cli.cluster.cluster` is called with, where it is what is typed on a host.

    None for all else.
    """
    if tuple(words[:5]) != CONNECTING or [*words[5:6], *words[7:8]] != ["--timeout", "--tf-config"]:
        return None
    if len(words) != 9 or re.fullmatch(VALUES["--timeout"][1], words[6]) is None or words[8][:1] != "{":
        return None
    return {
        "connect": True,
        "as_json": True,
        "fail_on": FailOn.never,
        "timeout": float(words[6]),
        "tf_config": words[8],
    }


def plain(words: Sequence[str]) -> Options | None:
    """Return the options of a plain `check …`; None for all else."""
    if words[:1] != ["check"] or os.name == "nt":  # where Typer expands what the shell does not
        return None
    found: dict[str, Any] = {
        "folder": None,
        "python": None,
        "simulate": None,
        "driver": None,
        "facts": None,
        "against": None,
        "html": None,
        "timeout": 10.0,
        "fail_on": FailOn.error,
        **dict.fromkeys(FLAGS.values(), False),
    }
    rest = iter(words[1:])
    for word in rest:
        if word in FLAGS:
            found[FLAGS[word]] = True
            continue
        if word not in VALUES:
            return None
        name, pattern, kind = VALUES[word]
        value = next(rest, "")
        if not re.fullmatch(pattern, value):
            return None
        found[name] = kind(value)
    return cast("Options", found)
