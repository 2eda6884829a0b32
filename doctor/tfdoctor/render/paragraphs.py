"""What commands answer: paragraphs with hanging indents and a little colour, set in a width, as a text.

Rich, which draws tables and what moves, takes as long to load as half of what `check` looks at; this needs nothing.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tfdoctor.render.program_name import as_called
from tfdoctor.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "SCREEN_LINES",
    "Page",
    "Text",
    "cells",
    "command_lines",
    "cut",
    "few",
    "lines_of",
    "print_hanging",
    "print_labelled",
]

CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}
"""Words of a style → what a terminal calls them. None is dim: what matters too little to be read is not printed.

Colour is for marks, whose shape says the same: none of a terminal's colours can be read on black and on white.
"""
SCREEN_LINES = 22
"""Lines of a screen: those of the usual terminal, less the command that was typed and the next prompt."""
LABEL = 12
"""Columns of what comes before a paragraph ("  Fix it    ")."""
OVER = 3
"""How much more room than it was given one sentence may take before it is cut."""
MARGIN = 2
"""Columns that are left of a command, where there is any way to it."""
MIN_HANGING_COLUMNS = 24
"""Columns without which a paragraph has no hanging indent."""


class _Piece(NamedTuple):
    text: str
    style: str


class Text:
    """A text with a style ("bold red"), or several in a row, each with its own."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self._pieces: list[_Piece] = [_Piece(as_called(text), style)]

    @property
    def plain(self) -> str:
        """The text alone."""
        return "".join(piece.text for piece in self._pieces)

    def __len__(self) -> int:
        return len(self.plain)

    def __add__(self, other: Text) -> Text:
        both = Text()
        both._pieces = self._pieces + other._pieces
        return both

    def set(self, start: int, end: int, *, coloured: bool) -> str:
        """Return the characters from `start` to `end` as a terminal takes them, without spaces at the end."""
        end = start + len(self.plain[start:end].rstrip())
        found = []
        at = 0
        for text, style in self._pieces:
            part = text[max(0, start - at) : max(0, end - at)]
            at += len(text)
            if part and style and coloured:
                part = f"\x1b[{';'.join(CODES[word] for word in style.split())}m{part}\x1b[0m"
            found.append(part)
        return "".join(found)


class Page:
    """A text that grows line by line, `width` columns wide. It takes every text as it is: there is no markup."""

    def __init__(self, width: int, *, coloured: bool) -> None:
        self.width = width
        self.coloured = coloured
        self.height = 0
        """Lines that it takes in a terminal, which wraps what is too wide."""
        self._lines: list[str] = []

    def print(self, text: Text | None = None, *, wrap: bool = True) -> None:
        """A paragraph, or an empty line. Without `wrap` it is one line, however long."""
        text = text or Text()
        self.print_paragraph(text, _breaks(text.plain, self.width) if wrap else ())

    def print_paragraph(self, text: Text, breaks: Iterable[int], indent: int = 0) -> None:
        """A paragraph that is broken at these places; all lines but the first are indented."""
        places = [0, *breaks, len(text)]
        for number, (start, end) in enumerate(pairwise(places)):
            line = text.set(start, end, coloured=self.coloured)
            self._lines.append(f"{'':{indent if number else 0}}{line}")
            wide = (indent if number else 0) + cells(text.plain[start:end].rstrip())
            self.height += max(1, -(-wide // self.width))

    @property
    def text(self) -> str:
        """What was printed, with one newline at its end and none before it begins."""
        return "\n".join(line.rstrip() for line in self._lines).strip("\n") + "\n"


def print_hanging(out: Page, first: Text, text: str, *, style: str = "") -> None:
    """A paragraph whose later lines are indented below the first one's text; flat where the terminal is narrow."""
    indent = len(first)
    text = as_called(text)
    whole = first + Text(text, style=style)
    if out.width - indent < MIN_HANGING_COLUMNS:
        out.print(whole)
    else:
        out.print_paragraph(whole, [indent + place for place in _breaks(text, out.width - indent)], indent)


def print_labelled(out: Page, label: str, text: str, *, style: str = "") -> None:
    """A paragraph beside its label, or below the last one's text where there is none."""
    print_hanging(out, Text(f"  {label}".ljust(LABEL), style="bold"), text, style=style)


def few(text: str, columns: int, lines: int) -> str:
    """As many whole sentences as have room in so many lines; where the first has none, its first clauses.

    Where there is none either, the sentence takes up to `OVER` times the lines: what would be cut may be what matters.
    """
    text = as_called(text)
    for ends in (_SENTENCE, _CLAUSE):
        kept = ""
        for part in ends.split(text):
            longer = f"{kept} {part}".strip()
            if len(_breaks(longer, columns)) >= lines:
                break
            kept = longer
        if kept and kept.count("(") == kept.count(")"):
            return kept if ends is _SENTENCE else f"{kept.rstrip(';:')}."
    first = _SENTENCE.split(text)[0]
    if len(_breaks(first, columns)) < OVER * lines:
        return first
    places = _breaks(text, columns)
    kept = text[: places[lines - 1]].rstrip()
    while kept and len(_breaks(f"{kept} …", columns)) >= lines:
        kept = kept.rpartition(" ")[0] if " " in kept else kept[:-1]
    return f"{kept.rstrip(' ,;:.')} …"


def cut(text: str, columns: int) -> str:
    """Return a text on one line; what has no room is left out, at a word's end where one is near."""
    text = as_called(text)
    if cells(text) <= columns:
        return text
    while cells(text) > columns - 2:
        shorter = text.rpartition(" ")[0]
        text = shorter if len(shorter) > len(text) * 3 // 4 else text[:-1]
    return f"{text.rstrip(' ,;:.')} …"


_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[\"`(]?[A-Z])")
_CLAUSE = re.compile(r"(?<=;)\s+")
_WORD = re.compile(r"(?:[^\s'\"\\]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\")+")


def lines_of(commands: Iterable[str], indent: int = 10, width: int | None = None) -> Iterator[str]:
    """Yield the lines of commands, each of which has one or several.

    width: where a shell can go on in the next line, a longer one is broken there with a backslash: what is copied
    from the terminal is the same command. They stand further to the left where a word of one has no room.
    """
    texts = [as_called(clean(command, limit=8000)).splitlines() for command in commands]
    if width is None:
        yield from (f"{'':{indent}}{line}" for lines in texts for line in lines)
        return
    left = min(
        (_compute_indent(lines[0], indent, width) for lines in texts if len(lines) == 1), default=indent
    )
    for lines in texts:
        parts = _break_command(lines[0], width - left) if len(lines) == 1 else lines
        for number, part in enumerate(parts):
            yield f"{'':{left + 4 if number and len(lines) == 1 else left}}{part}"


def _compute_indent(line: str, indent: int, width: int) -> int:
    """Return how far in a command can stand: where its words have no room, as far as costs the fewest lines."""
    ways = []
    for left in range(indent, -1, -1):
        parts = _break_command(line, width - left)
        too_wide = sum(left + 4 * bool(number) + cells(part) > width for number, part in enumerate(parts))
        if left == indent and not too_wide:
            return indent
        ways.append((too_wide, left < MARGIN, len(parts), -left))
    return -min(ways)[-1]


def _break_command(line: str, width: int) -> list[str]:
    """Return a shell's line in several, none wider than `width` where its words let it."""
    words = _WORD.findall(line)
    if cells(line) <= width or " ".join(words) != line or "<<" in words or any(w[0] == "#" for w in words):
        return [line]
    parts = [words[0]]
    for number, word in enumerate(words[1:], 2):
        room = width - 2 * (number < len(words)) - 4 * (len(parts) > 1)
        if cells(parts[-1]) + 1 + cells(word) <= room:
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return [f"{part} \\" for part in parts[:-1]] + parts[-1:]


def command_lines(
    out: Page, commands: Iterable[str], indent: int = 10, *, style: str = "", broken: bool = False
) -> None:
    """Commands; never wrapped: they are there to be copied. `broken`: long ones as a shell takes them."""
    for line in lines_of(commands, indent, out.width if broken else None):
        out.print(Text(line, style=style), wrap=False)


# ---------------------------------------------------------------- breaking lines


def cells(text: str) -> int:
    """Return the columns that a text takes in a terminal: two for what is wide in East Asia, none for what combines."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(one) in ("W", "F") for one in text)
    return len(text) + wide - sum(unicodedata.category(one) in ("Mn", "Me", "Cf") for one in text)


def _breaks(text: str, width: int) -> list[int]:
    """Return where a text is broken into lines: before a word that has no room, and within one that no line has room
    for.
    """
    places: list[int] = []
    at = 0
    for word in re.finditer(r"\s*\S+\s*", text):
        start = word.start()
        wide = cells(word[0].rstrip())
        if at + wide <= width:
            at += cells(word[0])
        elif wide > width:
            ends = list(_fold_word(word[0], width))
            places += [start + end for end in (0, *ends) if start + end]
            at = cells(word[0][ends[-1] if ends else 0 :])
        else:
            if start:
                places.append(start)
            at = cells(word[0])
    return places


def _fold_word(word: str, width: int) -> Iterator[int]:
    """Yield where a word is folded so that no part of it is wider than `width`."""
    at = 0
    for place, one in enumerate(word):
        wide = cells(one)
        if at and at + wide > width:
            yield place
            at = 0
        at += wide
