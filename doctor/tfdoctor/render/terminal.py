"""The two streams that people read: how wide each is, whether it takes colour, what it encodes; pages for them."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Literal, TextIO, TypedDict

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tfdoctor.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ERR", "OUT", "Looks", "Terminal", "command_lines", "hanging", "page", "text_of"]

PLAIN = str.maketrans({"✓": "+", "✗": "x", "–": "-", "×": "x", "…": "...", "·": "-", "→": "->", "’": "'"})
"""For encodings that lack our few typographic characters."""


class Looks(TypedDict):
    """How a text is set: what every `render_…` function takes."""

    width: int
    colour: bool


class Terminal:
    """Standard output or standard error, as whoever reads it sees it."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self._name = name

    @property
    def _stream(self) -> TextIO:
        stream: TextIO = getattr(sys, self._name)  # looked up each time: it may be replaced
        return stream

    @property
    def watched(self) -> bool:
        """Whether a person may be looking on."""
        return self._stream.isatty()

    @property
    def width(self) -> int:
        """Columns to write in: COLUMNS, else the terminal's own (at most 110), else 80."""
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and columns.strip("0"):
            return max(20, min(int(columns[:9]), 200))
        for stream in (self._stream, sys.stdout):
            try:
                return max(20, min(os.get_terminal_size(stream.fileno()).columns or 80, 110))
            except (OSError, ValueError):
                continue
        return 80

    @property
    def colour(self) -> bool:
        """Colour in a terminal only; NO_COLOR and TERM=dumb switch it off, FORCE_COLOR on."""
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return self.watched and os.environ.get("TERM", "") != "dumb"

    @property
    def looks(self) -> Looks:
        """Its width and colour, for a `render_…` function."""
        return {"width": self.width, "colour": self.colour}

    def write(self, text: str) -> None:
        """Put it there in whatever encoding that has."""
        stream = self._stream
        encoding = stream.encoding or "ascii"
        try:
            text.encode(encoding)
        except (UnicodeEncodeError, LookupError):
            text = text.translate(PLAIN).encode(encoding, "replace").decode(encoding)
        stream.write(text)

    def console(self) -> Console:
        """Rich's own console on it, for what moves; like a `page`, it takes every text as it is."""
        return Console(file=self._stream, highlight=False, markup=False, emoji=False)

    def flush(self) -> None:
        """Now, not when there is more to say."""
        self._stream.flush()


OUT, ERR = Terminal("stdout"), Terminal("stderr")
"""Answers go to the first, what is said beside them to the second."""


# ---------------------------------------------------------------- pages


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


def command_lines(out: Console, commands: Iterable[str], indent: int = 10) -> None:
    """Commands, one or several lines each; never wrapped: they are there to be copied."""
    for command in commands:
        for line in clean(command, limit=8000).splitlines():
            out.print(Text(f"{'':{indent}}{line}", style="cyan"), no_wrap=True, overflow="ignore", crop=False)


def text_of(console: Console) -> str:
    """What was printed on a `page`, without spaces at the ends of lines."""
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"
