"""Escape external text for Markdown: prose, code spans, fenced blocks and tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["code", "fence_lines", "keep_markdown", "row", "table", "words"]

_SPECIAL = str.maketrans(
    {char: f"\\{char}" for char in "\\*_{}[]|~`$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
_MENTION = re.compile(r"([@#])(?=\w)")
"""Matches the sign of a user mention or of an issue reference."""


def words(text: str, limit: int = 1500) -> str:
    """Return the text as escaped prose in which GitHub finds no users or issues."""
    return _MENTION.sub(r"\1<!-- -->", clean_line(text, limit=limit).translate(_SPECIAL))


def code(text: str, limit: int = 400) -> str:
    """Return the text as a code span that is also safe in a table cell; empty if the text is empty."""
    content = clean_line(text, limit=limit).replace("`", "'").replace("|", "\\|")
    return f"`{content}`" if content else ""


def fence_lines(lines: Iterable[str], language: str = "text") -> list[str]:
    """Return the lines in a fenced block, whose fence is longer than every run of backticks in them."""
    content = [line for text in lines for line in clean(text, limit=2000).split("\n")]
    longest = max((len(run) for line in content for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *content, fence]


def row(cells: Iterable[str]) -> str:
    """Return a table row of escaped cells."""
    return f"| {' | '.join(cells)} |"


def table(columns: Sequence[str]) -> list[str]:
    """Return the lines of the table header."""
    return [row(columns), f"|{'---|' * len(columns)}"]


def keep_markdown(text: str) -> str:
    """Return the text for a table cell with its Markdown kept, but HTML tags escaped.

    Use it only for text from tfdoctor's own data.
    """
    return clean_line(text, limit=2000).replace("|", r"\|").replace("<", "&lt;")
