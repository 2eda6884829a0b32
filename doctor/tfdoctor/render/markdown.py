"""Escape external text for Markdown: prose, code spans, fenced blocks and tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "escape_prose",
    "escape_table_cell",
    "fence_lines",
    "format_code_span",
    "format_table_header",
    "format_table_row",
]

_SPECIAL = str.maketrans(
    {char: f"\\{char}" for char in "\\*_{}[]|~`$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
_MENTION = re.compile(r"([@#])(?=\w)")
"""Matches the first character of a user mention or an issue reference."""


def escape_prose(text: str, limit: int = 1500) -> str:
    """Escape a text as prose, so that GitHub finds no mentions of users or issues in it."""
    return _MENTION.sub(r"\1<!-- -->", clean_line(text, limit=limit).translate(_SPECIAL))


def format_code_span(text: str, limit: int = 400) -> str:
    """Return the text as a code span that is safe even in a table cell, or "" if the text is empty."""
    content = clean_line(text, limit=limit).replace("`", "'").replace("|", "\\|")
    return f"`{content}`" if content else ""


def fence_lines(lines: Iterable[str], language: str = "text") -> list[str]:
    """Return the lines as a fenced code block. Its fence is longer than every run of backticks in them."""
    content = [line for text in lines for line in clean(text, limit=2000).split("\n")]
    longest = max((len(run) for line in content for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *content, fence]


def format_table_row(cells: Iterable[str]) -> str:
    """Return a table row. The cells must be escaped already."""
    return f"| {' | '.join(cells)} |"


def format_table_header(columns: Sequence[str]) -> list[str]:
    """Return the two lines of a table header."""
    return [format_table_row(columns), f"|{'---|' * len(columns)}"]


def escape_table_cell(text: str) -> str:
    """Escape a text for a table cell, except for its Markdown.

    Use it only for text from tfdoctor's own data.
    """
    return clean_line(text, limit=2000).replace("|", r"\|").replace("<", "&lt;")
