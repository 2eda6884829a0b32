"""What the terminal is like, and writing to it: its width, its colours, its encoding."""

from __future__ import annotations

import io
import os
import sys

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

PLAIN = str.maketrans({"✓": "+", "✗": "x", "–": "-", "×": "x", "…": "...", "·": "-", "→": "->", "’": "'"})
"""For encodings that lack our few typographic characters."""


def width() -> int:
    """Columns to write in: COLUMNS, else the terminal's own (at most 110), else 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and columns.strip("0"):
        return max(20, min(int(columns[:9]), 200))
    try:
        return max(20, min(os.get_terminal_size(sys.stdout.fileno()).columns or 80, 110))
    except (OSError, ValueError):
        return 80


def colour() -> bool:
    """Colour in a terminal only; NO_COLOR and TERM=dumb switch it off, FORCE_COLOR on."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


def page(columns: int, *, coloured: bool) -> Console:
    """A console that writes to memory, and takes every text as it is: no markup, no emoji, no guessing."""
    return Console(
        file=io.StringIO(),
        width=columns,
        force_terminal=coloured,
        no_color=not coloured,
        color_system="standard" if coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def hanging(out: Console, first: Text, text: str, *, style: str = "") -> None:
    """A paragraph whose later lines are indented below the first one's text; flat where the terminal is narrow."""
    indent = len(first)
    if out.width - indent < 24:
        out.print(first.append_text(Text(text, style=style)))
        return
    lines = Text(text, style=style).wrap(out, out.width - indent)
    for number, line in enumerate(lines):
        line.rstrip()
        if number == 0:
            out.print(first.append_text(line), no_wrap=True, overflow="ignore", crop=False)
        else:
            out.print(Padding(line, (0, 0, 0, indent)), no_wrap=True, overflow="ignore", crop=False)


def text_of(console: Console) -> str:
    """What was printed on a `page`, without spaces at the ends of lines."""
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"


def write(text: str) -> None:
    """Put it on standard output in whatever encoding that has."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        text = text.translate(PLAIN).encode(encoding, "replace").decode(encoding)
    sys.stdout.write(text)
