"""Paragraphs with hanging indents and a little colour, wrapped to the width of the terminal.

This module does not use Rich, because importing it would take half as long as all probes of `check`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tfdoctor.core.text import clean
from tfdoctor.render.program_name import adapt_commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "SCREEN_LINES",
    "Page",
    "Text",
    "count_columns",
    "format_commands",
    "print_command_after",
    "print_commands",
    "print_hanging",
    "print_labelled",
    "select_commands",
    "shorten_text",
    "truncate_text",
]

STYLE_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}
"""The terminal code of each style word.

Only marks are coloured, because no terminal colour is readable on both black and white. Their shapes convey the same
as their colours.
"""
SCREEN_LINES = 22
"""The lines of a standard terminal (24), without the line of the command and that of the next prompt."""
LABEL_COLUMNS = 12
"""The width of the label before a paragraph, such as "  Fix it    ", in columns."""
MAX_OVERFLOW_FACTOR = 3
"""A first sentence is cut only if it needs more than this multiple of the allowed number of lines."""
MIN_COMMAND_INDENT = 2
"""The smallest indent of a command in columns, unless its words are too wide for that."""
MIN_HANGING_COLUMNS = 24
"""Below this width in columns, a paragraph has no hanging indent."""
_SENTENCE_BREAK = re.compile(r"(?<=[.?!])\s+(?=[\"`(]?[A-Z])")
"""Matches the space between two sentences."""
_CLAUSE_BREAK = re.compile(r"(?<=;)\s+")
"""Matches the space between two clauses that a semicolon separates."""
_WORD = re.compile(r"(?:[^\s'\"\\]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\")+")
"""Matches a word of a shell command, with its quoted parts and escaped characters."""


_TEXT_WORD = re.compile(r"\s*(?:[^\s`]|`[^`\n]{1,200}`|`)+\s*")
"""Matches a word of a text. Code in backticks, such as a command, is one word with its spaces."""


class _Piece(NamedTuple):
    """A part of a text with one style."""

    text: str
    style: str


class Text:
    """A text with a style, such as "bold red". In a sum of texts, each part keeps its style."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self._pieces: list[_Piece] = [_Piece(adapt_commands(text), style)]

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(piece.text for piece in self._pieces)

    def __len__(self) -> int:
        return len(self.plain)

    def __add__(self, other: Text) -> Text:
        combined = Text()
        combined._pieces = self._pieces + other._pieces
        return combined

    def render(self, start: int, end: int, *, coloured: bool) -> str:
        """Return the characters from `start` to `end` without trailing spaces, styled if `coloured` is set."""
        end = start + len(self.plain[start:end].rstrip())
        parts = []
        offset = 0
        for text, style in self._pieces:
            part = text[max(0, start - offset) : max(0, end - offset)]
            offset += len(text)
            if part and style and coloured:
                part = f"\x1b[{';'.join(STYLE_CODES[word] for word in style.split())}m{part}\x1b[0m"
            parts.append(part)
        return "".join(parts)


class Page:
    """A text that is printed line by line, `width` columns wide. It is taken literally, without markup."""

    def __init__(self, width: int, *, coloured: bool) -> None:
        self.width = width
        self.coloured = coloured
        self.height = 0
        """The number of printed lines. A line that is wider than the terminal counts as several."""
        self._lines: list[str] = []

    def print(self, text: Text | None = None, *, wrap: bool = True) -> None:
        """Print a paragraph or an empty line. Without `wrap`, it is one line of any length."""
        text = text or Text()
        self.print_paragraph(text, _find_breaks(text.plain, self.width) if wrap else ())

    def print_paragraph(self, text: Text, breaks: Iterable[int], indent: int = 0) -> None:
        """Print a paragraph with line breaks at the offsets `breaks`. All lines but the first are indented."""
        offsets = [0, *breaks, len(text)]
        for number, (start, end) in enumerate(pairwise(offsets)):
            line = text.render(start, end, coloured=self.coloured)
            self._lines.append(f"{'':{indent if number else 0}}{line}")
            line_width = (indent if number else 0) + count_columns(text.plain[start:end].rstrip())
            self.height += max(1, -(-line_width // self.width))  # division rounded up

    @property
    def text(self) -> str:
        """The printed text without empty lines at its beginning, and with one newline at its end."""
        return "\n".join(line.rstrip() for line in self._lines).strip("\n") + "\n"


def print_hanging(out: Page, label: Text, text: str, *, style: str = "") -> None:
    """Print `label` and `text` as a paragraph. Its lines, except the first, are indented by the width of the label.

    On a narrow terminal, they are not indented.
    """
    indent = len(label)
    text = adapt_commands(text)
    paragraph = label + Text(text, style=style)
    if out.width - indent < MIN_HANGING_COLUMNS:
        out.print(paragraph)
    else:
        out.print_paragraph(
            paragraph, [indent + offset for offset in _find_breaks(text, out.width - indent)], indent
        )


def count_lines(text: str, width: int) -> int:
    """Return the number of lines that a paragraph takes."""
    return len(_find_breaks(text, width)) + 1


def print_labelled(out: Page, label: str, text: str, *, style: str = "") -> None:
    """Print a paragraph after its label. An empty label leaves the label's columns blank."""
    print_hanging(out, Text(f"  {label}".ljust(LABEL_COLUMNS), style="bold"), text, style=style)


def shorten_text(text: str, columns: int, max_lines: int) -> str:
    """Return the text, shortened to `max_lines` lines of `columns` columns.

    The result consists of as many complete sentences as fit. If the first sentence does not fit, it consists of the first
    clauses. If no clause fits either, the first sentence may take up to `MAX_OVERFLOW_FACTOR` times the lines, because
    its end may be the important part. A longer sentence is cut.
    """
    text = adapt_commands(text)
    for pattern in (_SENTENCE_BREAK, _CLAUSE_BREAK):
        result = ""
        for part in pattern.split(text):
            longer_result = f"{result} {part}".strip()
            if len(_find_breaks(longer_result, columns)) >= max_lines:
                break
            result = longer_result
        if result and result.count("(") == result.count(")"):  # not split inside parentheses
            return result if pattern is _SENTENCE_BREAK else f"{result.rstrip(';:')}."
    first_sentence = _SENTENCE_BREAK.split(text)[0]
    if len(_find_breaks(first_sentence, columns)) < MAX_OVERFLOW_FACTOR * max_lines:
        return first_sentence
    break_offsets = _find_breaks(text, columns)
    result = text[: break_offsets[max_lines - 1]].rstrip()
    while result and len(_find_breaks(f"{result} …", columns)) >= max_lines:
        result = result.rpartition(" ")[0] if " " in result else result[:-1]
    return f"{result.rstrip(' ,;:.')} …"


def truncate_text(text: str, columns: int) -> str:
    """Return the text, shortened to one line. It is cut after a word, unless that would remove a long word."""
    text = adapt_commands(text)
    if count_columns(text) <= columns:
        return text
    while count_columns(text) > columns - 2:  # leave space for " …"
        shorter_text = text.rpartition(" ")[0]
        text = shorter_text if len(shorter_text) > len(text) * 3 // 4 else text[:-1]
    return f"{text.rstrip(' ,;:.')} …"


def format_commands(commands: Iterable[str], indent: int = 10, width: int | None = None) -> Iterator[str]:
    """Yield the lines of commands, indented.

    If a `width` is given, wider commands are continued on the next line with a backslash where a shell allows that, so
    that they can still be copied. The indent is reduced if a word would not fit otherwise.
    """
    lines_of_commands = [adapt_commands(clean(command, limit=8000)).splitlines() for command in commands]
    if width is None:
        yield from (f"{'':{indent}}{line}" for lines in lines_of_commands for line in lines)
        return
    final_indent = min(
        (_compute_indent(lines[0], indent, width) for lines in lines_of_commands if len(lines) == 1),
        default=indent,
    )
    for lines in lines_of_commands:
        parts = _break_command(lines[0], width - final_indent) if len(lines) == 1 else lines
        for number, part in enumerate(parts):
            yield f"{'':{final_indent + 4 if number and len(lines) == 1 else final_indent}}{part}"


def print_command_after(out: Page, label: Text, command: str) -> None:
    """Print a command after a label. If it is too wide, it is continued on the next line with a backslash."""
    if out.width - len(label) < MIN_HANGING_COLUMNS:
        out.print(label)
        label = Text("  ")
    parts = _break_command(adapt_commands(command), out.width - len(label))
    for number, part in enumerate(parts):
        indent = Text(f"{'':{len(label) + 4}}") if number else label
        out.print(indent + Text(part), wrap=False)


def select_commands(commands: Iterable[str], indent: int, width: int, max_lines: int) -> list[str]:
    """Return the first commands that fit in `max_lines` lines, at least one. No command is cut."""
    selected: list[str] = []
    for command in commands:
        if selected and len(list(format_commands([*selected, command], indent, width))) > max_lines:
            break
        selected.append(command)
    return selected


def _compute_indent(line: str, indent: int, width: int) -> int:
    """Return `indent` or, if a word would not fit, the indent at which the fewest lines are too wide."""
    scores = []
    for candidate in range(indent, -1, -1):
        parts = _break_command(line, width - candidate)
        wide_line_count = sum(
            candidate + 4 * bool(number) + count_columns(part) > width for number, part in enumerate(parts)
        )
        if candidate == indent and not wide_line_count:
            return indent
        # The best indent has the fewest wide lines, then is not too small, then has the fewest lines, then is the largest.
        scores.append((wide_line_count, candidate < MIN_COMMAND_INDENT, len(parts), -candidate))
    *_, negative_indent = min(scores)
    return -negative_indent


def _break_command(line: str, width: int) -> list[str]:
    """Return a shell command as lines that are at most `width` columns wide, unless a word is wider.

    A command with a comment, a here-document or repeated spaces stays on one line.
    """
    words = _WORD.findall(line)
    if (
        count_columns(line) <= width
        or " ".join(words) != line  # repeated spaces, or an unclosed quote
        or "<<" in words
        or any(word.startswith("#") for word in words)
    ):
        return [line]
    parts = [words[0]]
    for number, word in enumerate(words[1:], 2):
        # Leave space for " \" at the end of all lines but the last, and for the indent of continuation lines.
        max_columns = width - 2 * (number < len(words)) - 4 * (len(parts) > 1)
        if count_columns(parts[-1]) + 1 + count_columns(word) <= max_columns:
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return [f"{part} \\" for part in parts[:-1]] + parts[-1:]


def print_commands(
    out: Page, commands: Iterable[str], indent: int = 10, *, style: str = "", with_continuations: bool = False
) -> None:
    """Print commands so that they can be copied.

    With `with_continuations`, long commands are continued on the next line with a backslash. Otherwise each stays on
    one line.
    """
    for line in format_commands(commands, indent, out.width if with_continuations else None):
        out.print(Text(line, style=style), wrap=False)


# ---------------------------------------------------------------- line breaks


def count_columns(text: str) -> int:
    """Return the number of terminal columns that a text takes.

    Wide East Asian characters occupy two columns, and combining characters none.
    """
    if text.isascii():
        return len(text)
    import unicodedata

    wide_chars = sum(unicodedata.east_asian_width(char) in ("W", "F") for char in text)
    return len(text) + wide_chars - sum(unicodedata.category(char) in ("Mn", "Me", "Cf") for char in text)


def _find_breaks(text: str, width: int) -> list[int]:
    """Return the offsets at which the lines of a text begin, except the first line.

    Lines are broken between words, and not in code in backticks, which is copied. A word is broken only if it is wider
    than a line.
    """
    break_offsets: list[int] = []
    column = 0
    for word in _find_words(text, width):
        start = word.start()
        word_width = count_columns(word[0].rstrip())
        if column + word_width <= width:
            column += count_columns(word[0])
        elif word_width > width:
            fold_offsets = list(_fold_word(word[0], width))
            break_offsets += [start + offset for offset in (0, *fold_offsets) if start + offset]
            column = count_columns(word[0][fold_offsets[-1] if fold_offsets else 0 :])
        else:
            if start:
                break_offsets.append(start)
            column = count_columns(word[0])
    return break_offsets


def _find_words(text: str, width: int) -> Iterator[re.Match[str]]:
    """Yield the words of a text. Code in backticks that is wider than a line is several words."""
    for word in _TEXT_WORD.finditer(text):
        if "`" in word[0] and count_columns(word[0].strip()) > width:
            yield from re.compile(r"\s*\S+\s*").finditer(text, word.start(), word.end())
        else:
            yield word


def _fold_word(word: str, width: int) -> Iterator[int]:
    """Yield the offsets at which a word is broken, so that no part of it is wider than `width`."""
    column = 0
    for index, char in enumerate(word):
        char_width = count_columns(char)
        if column and column + char_width > width:
            yield index
            column = 0
        column += char_width
