"""Standard output and standard error, with their width, colour support and encoding."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal, TextIO, TypedDict

from tfdoctor.core.output import discard_output
from tfdoctor.render.program_name import adapt_commands

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ERR", "OUT", "Layout", "Terminal", "set_color"]

ASCII_REPLACEMENTS = str.maketrans(
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
"""Replacements for the typographic characters in tfdoctor's texts, for encodings that do not contain them."""


COLOR_CHOICES = ("auto", "always", "never")
"""The values of `--color`."""
_color_choice = "auto"


def set_color(choice: str) -> None:
    """Apply the value of `--color`, which precedes all variables. Raise UsageError if it is unknown."""
    global _color_choice  # noqa: PLW0603 - one choice for the process
    if choice not in COLOR_CHOICES:
        from tfdoctor.core.errors import UsageError

        raise UsageError("--color: expected auto, always or never.", hint="tfdoctor check --color never")
    _color_choice = choice


class Layout(TypedDict):
    """The keyword arguments with which the `render_…` functions accept a layout."""

    width: int
    colour: bool


class Terminal:
    """Standard output or standard error."""

    def __init__(self, name: Literal["stdout", "stderr"]) -> None:
        self._name = name
        self.is_broken = False
        """Whether the reader of the stream has exited."""

    @property
    def _stream(self) -> TextIO:
        stream: TextIO = getattr(sys, self._name)  # looked up each time, because it may be replaced
        return stream

    @property
    def is_terminal(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    @property
    def width(self) -> int:
        """The width in columns, between 20 and 200.

        It is the value of COLUMNS, else the width of the terminal (at most 110), else 80.
        """
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
        """Whether to use colour.

        Colour is used only on a terminal. `--color`, NO_COLOR, CLICOLOR=0 and TERM=dumb turn it off; `--color`,
        FORCE_COLOR and CLICOLOR_FORCE turn it on.
        """
        if _color_choice != "auto":
            return _color_choice == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE", "0") != "0":
            return True
        if os.environ.get("CLICOLOR") == "0":
            return False
        return self.is_terminal and os.environ.get("TERM", "") != "dumb"

    @property
    def layout(self) -> Layout:
        """The width and the use of colour, as arguments for a `render_…` function."""
        return {"width": self.width, "colour": self.colour}

    def write(self, text: str) -> None:
        """Write text for the user, with tfdoctor's commands as the user types them."""
        self.write_document(adapt_commands(text))

    def write_document(self, text: str) -> None:
        """Write text for other programs, without changes.

        Characters that the encoding of the stream does not have are replaced.
        """
        stream = self._stream
        encoding = stream.encoding or "ascii"
        try:
            text.encode(encoding)
        except (UnicodeEncodeError, LookupError):
            text = text.translate(ASCII_REPLACEMENTS).encode(encoding, "replace").decode(encoding)
        try:
            stream.write(text)
        except BrokenPipeError:
            self._discard_output()

    def make_console(self) -> Console:
        """Return a Rich console that writes to the stream, for animations. It takes text literally."""
        from rich.console import Console

        return Console(file=self._stream, highlight=False, markup=False, emoji=False)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard_output()

    def _discard_output(self) -> None:
        """Discard all output because nobody reads it, so that the command ends with the status of its result."""
        self.is_broken = True
        discard_output(self._stream)


OUT, ERR = Terminal("stdout"), Terminal("stderr")
"""Results are written to OUT, and all other messages to ERR."""
