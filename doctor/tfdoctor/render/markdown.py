"""Markdown that text from outside cannot break out of: prose, code spans, fences, tables. The one escaper."""

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
_NAMELY = re.compile(r"([@#])(?=\w)")


def words(text: str, limit: int = 1500) -> str:
    """Return prose: no markup of its own, nobody is mentioned, no issue is linked."""
    return _NAMELY.sub(r"\1<!-- -->", clean_line(text, limit=limit).translate(_SPECIAL))


def code(text: str, limit: int = 400) -> str:
    """Return a code span that ends where it should, in a table, too."""
    inside = clean_line(text, limit=limit).replace("`", "'").replace("|", "\\|")
    return f"`{inside}`" if inside else ""


def fence_lines(lines: Iterable[str], language: str = "text") -> list[str]:
    """Return lines in a fence longer than any in them."""
    inside = [line for text in lines for line in clean(text, limit=2000).split("\n")]
    longest = max((len(run) for line in inside for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *inside, fence]


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(columns: Sequence[str]) -> list[str]:
    return [row(columns), f"|{'---|' * len(columns)}"]


def keep_markdown(text: str) -> str:
    """Return text of our own tables, which may hold Markdown: in a table's cell, too, and no tag."""
    return clean_line(text, limit=2000).replace("|", r"\|").replace("<", "&lt;")
