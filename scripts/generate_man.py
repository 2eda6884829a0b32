"""Write docs/tfdoctor.1, the page of `man tfdoctor`, from the commands, signatures and docstrings behind `--help`.

    python scripts/generate_man.py            # needs tfdoctor importable (the development environment)
    python scripts/generate_man.py --check    # exit 1 where it is stale

`page()` is pure, so that a test can compare. The wheel installs it as share/man/man1/tfdoctor.1
(pyproject.toml).
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.cli.main import EXIT_STATUS_MEANINGS, iter_commands, main, make_command_group
from tfdoctor.core.text import upper_first

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tfdoctor.1"
ESCAPED = {
    "\\": r"\e", "-": r"\-", "'": r"\(aq", '"': r"\(dq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", "…": "...", "–": "-"
}  # fmt: skip
"""Characters that roff would interpret or print differently, and their escapes."""


def page() -> str:
    """Return the whole page as roff."""
    group = make_command_group()
    summary = inspect.cleandoc(main.__doc__ or "")
    lines = [
        f'.TH TFDOCTOR 1 "" "tfdoctor {__version__}" "User Commands"',
        ".SH NAME",
        rf"tfdoctor \- {_format_text(summary[0].lower() + summary[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B tfdoctor",
        r"[\fIOPTIONS\fP] \fICOMMAND\fP [\fIARGS\fP]...",
        ".SH DESCRIPTION",
        _format_text(summary),
        "Start with",
        '.BR "tfdoctor check" .',
        ".SH OPTIONS",
        *_format_parameters(group),
        ".SH COMMANDS",
    ]
    for name, command in iter_commands(group):
        lines += [f".SS {_quote(' '.join(['tfdoctor', name, *_format_synopsis(command)]))}"]
        for number, paragraph in enumerate((command.help or "").split("\n\n")):
            lines += [*([".PP"] if number else []), _format_text(" ".join(paragraph.split()))]
        lines += _format_parameters(command)
        lines += [".PP", "Examples:"]
        examples = inspect.unwrap(command.callback).examples
        lines += [text for example in examples for text in (".br", rf"\fB{_escape(example)}\fP")]
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT_STATUS_MEANINGS.items():
        lines += [".TP", rf"\fB{status}\fP", _format_text(f"{upper_first(meaning)}.")]
    return "\n".join(lines) + "\n"


def _format_parameters(command: Any) -> Iterator[str]:
    """Yield the lines for each argument and option, with its help."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    for param in command.get_params(context):
        if param.name == "help" and command.name != "tfdoctor":
            continue
        text = param.help or ""
        if param.param_type_name == "argument":
            names = rf"\fI{_format_text(_format_metavar(param))}\fP"
        else:
            joined = ", ".join(rf"\fB{_format_text(name)}\fP" for name in _sort_names(param))
            value = (
                "" if getattr(param, "is_flag", False) else rf" \fI{_format_text(_format_metavar(param))}\fP"
            )
            names = f"{joined}{value}"
        yield from (".TP", names, _format_text(f"{text}{_format_default(param, context)}"))


def _sort_names(param: Any) -> list[str]:
    """Return the names of an option, long ones first, because --help lists them in any order."""
    return sorted(param.opts, key=lambda name: (-len(name), name)) + param.secondary_opts


def _format_synopsis(command: Any) -> Iterator[str]:
    yield "[OPTIONS]"
    for param in command.params:
        if param.param_type_name == "argument":
            yield _format_metavar(param)


def _format_metavar(param: Any) -> str:
    choices = getattr(param.type, "choices", None)
    if choices and not param.metavar:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    return str(param.metavar or param.name.upper())


def _format_default(param: Any, context: Any) -> str:
    value = param.get_default(context)
    if value is None or value is False or value in ((), []):
        return ""
    if value is True:
        value = param.opts[0]
    return f" [default: {value.value if isinstance(value, Enum) else value}]"


def _format_text(text: str) -> str:
    """Return one paragraph as roff; text in backticks becomes bold."""
    parts = re.split(r"`([^`]*)`", text)
    parts[1::2] = [rf"\fB{_escape(part)}\fP" for part in parts[1::2]]
    parts[::2] = [_escape(part) for part in parts[::2]]
    paragraph = "".join(parts)
    return rf"\&{paragraph}" if paragraph.startswith(".") else paragraph


def _escape(text: str) -> str:
    return "".join(ESCAPED.get(c) or (c if c.isascii() else rf"\[u{ord(c):04X}]") for c in text)


def _quote(text: str) -> str:
    return f'"{_escape(text)}"'


def write() -> int:
    """Write or check the page and return the exit status."""
    parser = argparse.ArgumentParser(description="Write docs/tfdoctor.1.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where it is stale")
    check: bool = parser.parse_args().check
    text = page()
    stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
    if stale and check:
        print("tfdoctor.1 is stale: run python scripts/generate_man.py", file=sys.stderr)
    elif stale:
        PAGE.write_text(text, encoding="utf-8")
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(write())
