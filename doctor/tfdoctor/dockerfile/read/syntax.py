"""The text of a Dockerfile → its instructions, each character with the line that it stood on. Pure, linear in the text.

As Docker reads it: parser directives at the top, continued lines, comments between them, heredocs, instructions in any
case. What Docker would refuse is taken as far as it can be: what is wrong with the grammar is Docker's to say.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_DOCKERFILE_CHARS", "Instruction", "JoinedText", "instructions"]

MAX_DOCKERFILE_CHARS = 1024 * 1024
"""Characters of a Dockerfile."""
_DIRECTIVE = re.compile(r"#[ \t]*([A-Za-z]{1,20})[ \t]*=[ \t]*(\S{1,200})[ \t]*")
_HEREDOC = re.compile(
    r"(?:^|(?<=\s)|(?<=\s\d))<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_.-]{0,60})\2(?=\s|$|[;|&>)])"
)
_WORD = re.compile(r"[ \t]*([A-Za-z]{1,20})(?=\s|$)")
_KNOWN = frozenset(
    [
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "ONBUILD",
        "RUN",
        "SHELL",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    ]
)


@dataclass(frozen=True, slots=True)
class JoinedText:
    """A text joined from lines, which remembers them."""

    text: str
    offsets: tuple[int, ...]
    """Where each piece begins, ascending; the first is 0."""
    lines: tuple[int, ...]
    """The line of each piece, counted from 1."""

    def line_at(self, offset: int) -> int:
        """Return the line on which a character stood."""
        return self.lines[max(bisect.bisect_right(self.offsets, offset) - 1, 0)]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction."""

    word: str
    """In capitals: `"RUN"`."""
    body: JoinedText
    """What follows the word, continued lines joined and comments left out."""
    line: int
    heredocs: tuple[JoinedText, ...] = ()


def instructions(text: str) -> Iterator[Instruction]:
    """Yield every instruction, in order. Never raises; what is no instruction is left out."""
    lines = (
        text[:MAX_DOCKERFILE_CHARS]
        .removeprefix("\ufeff")
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .split("\n")
    )
    return _parse_lines(lines, _escape_of(lines))


def _escape_of(lines: list[str]) -> str:
    """Return the directive `escape`, which must stand before everything else."""
    for line in lines:
        match = _DIRECTIVE.fullmatch(line)
        if match is None:
            return "\\"
        if match[1].lower() == "escape":
            return "`" if match[2] == "`" else "\\"
    return "\\"


def _parse_lines(lines: list[str], escape: str) -> Iterator[Instruction]:
    ends: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        if len(line) < 200:
            ends.setdefault(line.strip("\t "), []).append(index)
    index = 0
    while index < len(lines):
        row = lines[index]
        if not row.strip() or row.lstrip().startswith("#"):
            index += 1
            continue
        first = index
        joined, index = _join_logical_line(lines, index, escape)
        match = _WORD.match(joined.text)
        word = match[1].upper() if match is not None else ""
        if match is None or word not in _KNOWN:
            continue
        heredocs: list[JoinedText] = []
        if word in ("RUN", "COPY", "ADD"):
            for found in _HEREDOC.finditer(joined.text):
                body, index = _heredoc(lines, index, ends, found[3])
                if body is None:
                    break
                heredocs.append(body)
        yield Instruction(word, _cut(joined, match.end()), first + 1, tuple(heredocs))


def _join_logical_line(lines: list[str], index: int, escape: str) -> tuple[JoinedText, int]:
    """Return the logical line that begins here, and the index after it."""
    pieces: list[str] = []
    offsets: list[int] = []
    numbers: list[int] = []
    size = 0
    going = True
    while going and index < len(lines):
        row = lines[index]
        index += 1
        if pieces and (not row.strip() or row.lstrip().startswith("#")):
            continue  # comments and empty lines within a continued line count for nothing
        bare = row.rstrip(" \t")
        going = bare.endswith(escape)
        piece = bare[:-1] if going else row
        offsets.append(size)
        numbers.append(index)
        pieces.append(piece)
        size += len(piece)
    return JoinedText("".join(pieces), tuple(offsets), tuple(numbers)), index


def _cut(text: JoinedText, start: int) -> JoinedText:
    """Return the text from `start` on."""
    kept = [(max(offset - start, 0), line) for offset, line in zip(text.offsets, text.lines, strict=True)]
    while len(kept) > 1 and kept[1][0] == 0:
        kept.pop(0)
    return JoinedText(text.text[start:], tuple(offset for offset, _ in kept), tuple(line for _, line in kept))


def _heredoc(
    lines: list[str], index: int, ends: dict[str, list[int]], name: str
) -> tuple[JoinedText | None, int]:
    """Return the lines up to `name`; None if it never comes, so that a stray `<<` eats nothing."""
    places = ends.get(name, [])
    at = bisect.bisect_left(places, index)
    if at == len(places):
        return None, index
    end = places[at]
    offsets: list[int] = []
    size = 0
    for row in lines[index:end]:
        offsets.append(size)
        size += len(row) + 1
    text = "\n".join(lines[index:end])
    return JoinedText(text, tuple(offsets) or (0,), tuple(range(index + 1, end + 1)) or (index + 1,)), end + 1
