"""The two streams that people read: how wide each is, whether it takes colour, what it encodes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal, TextIO, TypedDict

from tfdoctor.render.program_name import as_called

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ERR", "OUT", "Looks", "Terminal"]

PLAIN = str.maketrans(
    {
        "✓": "+",
        "✗": "x",
        "–": "-",
        "×": "x",
        "…": "...",
        "·": "-",
        "→": "->",
        "’": "'",
        "│": "|",
        "“": '"',
        "”": '"',
    }
)
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
        """Put it there for whoever looks on: tfdoctor's commands as they are called here."""
        self.document(as_called(text))

    def document(self, text: str) -> None:
        """Put a text there that goes on to other readers, as it is, in whatever encoding that has."""
        stream = self._stream
        encoding = stream.encoding or "ascii"
        try:
            text.encode(encoding)
        except (UnicodeEncodeError, LookupError):
            text = text.translate(PLAIN).encode(encoding, "replace").decode(encoding)
        stream.write(text)

    def console(self) -> Console:
        """Return rich's own console on it, for what moves; it takes every text as it is."""
        from rich.console import Console

        return Console(file=self._stream, highlight=False, markup=False, emoji=False)

    def flush(self) -> None:
        """Now, not when there is more to say."""
        self._stream.flush()


OUT, ERR = Terminal("stdout"), Terminal("stderr")
"""Answers go to the first, what is said beside them to the second."""
