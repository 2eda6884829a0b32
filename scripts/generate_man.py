"""Write docs/tfdoctor.1, the page of `man tfdoctor`, from what `--help` is made of: COMMANDS, signatures, docstrings.

    python scripts/generate_man.py            # needs tfdoctor importable (the development environment)
    python scripts/generate_man.py --check    # exit 1 where it is stale

`page()` is pure, so that a test can compare. The wheel installs it as share/man/man1/tfdoctor.1 (pyproject.toml).
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
from tfdoctor.cli.main import COMMANDS, EXIT_STATUS, command_line, main

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tfdoctor.1"
ESCAPED = {
    "\\": r"\e", "-": r"\-", "'": r"\(aq", '"': r"\(dq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", "…": "...", "–": "-"
}  # fmt: skip
"""What roff takes for something else, or prints as something else."""


def page() -> str:
    """The whole page, roff."""
    group = command_line()
    says = inspect.cleandoc(main.__doc__ or "")
    lines = [
        f'.TH TFDOCTOR 1 "" "tfdoctor {__version__}" "User Commands"',
        ".SH NAME",
        rf"tfdoctor \- {_text(says[0].lower() + says[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B tfdoctor",
        r"[\fIOPTIONS\fP] \fICOMMAND\fP [\fIARGS\fP]...",
        ".SH DESCRIPTION",
        _text(says),
        "Start with",
        '.BR "tfdoctor check" .',
        ".SH OPTIONS",
        *_parameters(group),
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        command = group.commands[name]
        lines += [f".SS {_quote(' '.join(['tfdoctor', name, *_places(command)]))}"]
        for number, paragraph in enumerate((command.help or "").split("\n\n")):
            lines += [*([".PP"] if number else []), _text(" ".join(paragraph.split()))]
        lines += _parameters(command)
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT_STATUS.items():
        lines += [".TP", rf"\fB{status}\fP", _text(f"{meaning[0].upper()}{meaning[1:]}.")]
    return "\n".join(lines) + "\n"


def _parameters(command: Any) -> Iterator[str]:
    """Arguments and options, each with its help."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    for param in command.get_params(context):
        if param.name == "help" and context.command.name in COMMANDS:
            continue
        text = param.help or ""
        if param.param_type_name == "argument":
            names = rf"\fI{_text(_metavar(param))}\fP"
        else:
            joined = ", ".join(rf"\fB{_text(name)}\fP" for name in _names(param))
            value = "" if getattr(param, "is_flag", False) else rf" \fI{_text(_metavar(param))}\fP"
            names = f"{joined}{value}"
        yield from (".TP", names, _text(f"{text}{_default(param, context)}"))


def _names(param: Any) -> list[str]:
    """Long ones first: those of --help come in any order."""
    return sorted(param.opts, key=lambda name: (-len(name), name)) + param.secondary_opts


def _places(command: Any) -> Iterator[str]:
    yield "[OPTIONS]"
    for param in command.params:
        if param.param_type_name == "argument":
            yield _metavar(param)


def _metavar(param: Any) -> str:
    choices = getattr(param.type, "choices", None)
    if choices and not param.metavar:
        return "|".join(str(getattr(one, "value", one)) for one in choices)
    return str(param.metavar or param.name.upper())


def _default(param: Any, context: Any) -> str:
    value = param.get_default(context)
    if value is None or value is False or value in ((), []):
        return ""
    if value is True:
        value = param.opts[0]
    return f" [default: {value.value if isinstance(value, Enum) else value}]"


def _text(text: str) -> str:
    """One paragraph; `words` in backticks are bold."""
    parts = re.split(r"`([^`]*)`", text)
    parts[1::2] = [rf"\fB{_escape(part)}\fP" for part in parts[1::2]]
    parts[::2] = [_escape(part) for part in parts[::2]]
    shown = "".join(parts)
    return rf"\&{shown}" if shown.startswith(".") else shown


def _escape(text: str) -> str:
    return "".join(ESCAPED.get(c) or (c if c.isascii() else rf"\[u{ord(c):04X}]") for c in text)


def _quote(text: str) -> str:
    return f'"{_escape(text)}"'


def write() -> int:
    """Returns the exit status."""
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
