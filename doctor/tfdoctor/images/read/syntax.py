"""Split the text of a Dockerfile into instructions, and track the line number of each character.

Parser directives, continued lines, comments between them, heredocs and lower-case instructions are read as Docker reads
them. Syntax errors are skipped, because Docker itself reports them. The time is linear in the length of the text.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_DOCKERFILE_CHARS", "Instruction", "JoinedText", "parse_instructions"]

MAX_DOCKERFILE_CHARS = 1024 * 1024
"""The largest number of characters of a Dockerfile that are read."""
_DIRECTIVE = re.compile(r"#[ \t]*([A-Za-z]{1,20})[ \t]*=[ \t]*(\S{1,200})[ \t]*")
"""A parser directive, such as "# escape=`"."""
_HEREDOC = re.compile(
    r"(?:^|(?<=\s)|(?<=\s\d))<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_.-]{0,60})\2(?=\s|$|[;|&>)])"
)
"""The start of a heredoc, such as <<EOF, <<-EOF or 2<<"EOF"."""
_INSTRUCTION_NAME = re.compile(r"[ \t]*([A-Za-z]{1,20})(?=\s|$)")
_INSTRUCTIONS = frozenset(
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
    """A text that was joined from several lines, with the line number of each piece."""

    text: str
    offsets: tuple[int, ...]
    """The offset of each piece, in ascending order. The first is 0."""
    lines: tuple[int, ...]
    """The line number of each piece, starting at 1."""

    def line_at(self, offset: int) -> int:
        """Return the line number of the character at an offset."""
        return self.lines[max(bisect.bisect_right(self.offsets, offset) - 1, 0)]


@dataclass(frozen=True, slots=True)
class Instruction:
    """A Dockerfile instruction."""

    name: str
    """The name in upper case, such as `RUN`."""
    body: JoinedText
    """The text after the name, with continued lines joined and comments removed."""
    line: int
    heredocs: tuple[JoinedText, ...] = ()
    """The texts of its heredocs, in order."""


def parse_instructions(text: str) -> Iterator[Instruction]:
    """Return an iterator over the instructions, in order. Other lines are skipped without an error."""
    lines = (
        text[:MAX_DOCKERFILE_CHARS]
        .removeprefix("\ufeff")
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .split("\n")
    )
    return _parse_lines(lines, _find_escape(lines))


def _find_escape(lines: list[str]) -> str:
    """Return the escape character, which a parser directive at the beginning of the file may set."""
    for line in lines:
        match = _DIRECTIVE.fullmatch(line)
        if match is None:
            return "\\"
        if match[1].lower() == "escape":
            return "`" if match[2] == "`" else "\\"
    return "\\"


def _parse_lines(lines: list[str], escape: str) -> Iterator[Instruction]:
    """Yield the instructions in the lines. `escape` is the character that continues a line."""
    # The indexes of the lines with each text, because any short line may end a heredoc.
    end_indexes_by_text: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        if len(line) < 200:
            end_indexes_by_text.setdefault(line.strip("\t "), []).append(index)
    index = 0
    while index < len(lines):
        line_text = lines[index]
        if not line_text.strip() or line_text.lstrip().startswith("#"):
            index += 1
            continue
        start_index = index
        joined, index = _join_logical_line(lines, index, escape)
        match = _INSTRUCTION_NAME.match(joined.text)
        name = match[1].upper() if match is not None else ""
        if match is None or name not in _INSTRUCTIONS:
            continue
        heredocs: list[JoinedText] = []
        if name in ("RUN", "COPY", "ADD"):
            for marker in _HEREDOC.finditer(joined.text):
                body, index = _parse_heredoc(lines, index, end_indexes_by_text, marker[3])
                if body is None:
                    break
                heredocs.append(body)
        yield Instruction(name, _slice_text(joined, match.end()), start_index + 1, tuple(heredocs))


def _join_logical_line(lines: list[str], index: int, escape: str) -> tuple[JoinedText, int]:
    """Return the logical line that begins at `index`, and the index after it."""
    pieces: list[str] = []
    offsets: list[int] = []
    line_numbers: list[int] = []
    size = 0
    continues = True
    while continues and index < len(lines):
        line = lines[index]
        index += 1
        if pieces and (not line.strip() or line.lstrip().startswith("#")):
            continue  # comments and empty lines do not end a continued line
        stripped = line.rstrip(" \t")
        continues = stripped.endswith(escape)
        piece = stripped[:-1] if continues else line
        offsets.append(size)
        line_numbers.append(index)
        pieces.append(piece)
        size += len(piece)
    return JoinedText("".join(pieces), tuple(offsets), tuple(line_numbers)), index


def _slice_text(text: JoinedText, start: int) -> JoinedText:
    """Return the text from the offset `start` to its end."""
    pieces = [(max(offset - start, 0), line) for offset, line in zip(text.offsets, text.lines, strict=True)]
    while len(pieces) > 1 and pieces[1][0] == 0:
        pieces.pop(0)
    return JoinedText(
        text.text[start:], tuple(offset for offset, _ in pieces), tuple(line for _, line in pieces)
    )


def _parse_heredoc(
    lines: list[str], index: int, end_indexes_by_text: dict[str, list[int]], end_marker: str
) -> tuple[JoinedText | None, int]:
    """Return the lines of a heredoc up to the line `end_marker`, and the index after that line.

    If there is no such line, return None and `index`, so that a stray `<<` skips no lines.
    """
    end_indexes = end_indexes_by_text.get(end_marker, [])
    position = bisect.bisect_left(end_indexes, index)
    if position == len(end_indexes):
        return None, index
    end_index = end_indexes[position]
    offsets: list[int] = []
    size = 0
    for line in lines[index:end_index]:
        offsets.append(size)
        size += len(line) + 1
    text = "\n".join(lines[index:end_index])
    return JoinedText(
        text, tuple(offsets) or (0,), tuple(range(index + 1, end_index + 1)) or (index + 1,)
    ), end_index + 1
