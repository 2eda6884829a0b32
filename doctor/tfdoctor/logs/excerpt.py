"""The lines of a log that are worth showing beside its verdict: all of a short one, else those around what decided, the
beginning and the end. It reads a stream, and keeps no more than it gives."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.logs.blocks import as_text
from tfdoctor.logs.reader import read_lines
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.logs.reader import Rows
    from tfdoctor.logs.report import LogReport

__all__ = ["Excerpt", "ExcerptPart", "excerpt", "list_deciding_lines"]

MAX_WHOLE_LINES = 1500
"""Lines of a log that is kept whole."""
ENDS = 25
"""Lines of the beginning and of the end of a longer one."""
AROUND = 4
"""Lines before and after one that decided."""
MAX_LINE_CHARS = 1000
"""Characters of a line."""
MAX_EXCERPT_CHARS = 600_000
"""Characters in all."""


@dataclass(frozen=True, slots=True)
class ExcerptPart:
    """Neighbouring lines."""

    lines: tuple[tuple[int, str], ...]
    """(number in the file from 1, text safe to show)."""
    noise: bool
    """None of them decided, or stands beside one that did."""
    missing: int
    """Lines of the file between this part and the one before it that are not kept."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is kept of a log."""

    parts: tuple[ExcerptPart, ...]
    after: int
    """Lines behind the last part."""


def list_deciding_lines(report: LogReport) -> frozenset[int]:
    """Return the numbers of the lines that findings rest on."""
    lines = {one.line for finding in report.findings for one in finding.evidence}
    return frozenset(line for line in lines if line is not None)


def excerpt(chunks: Iterable[bytes], report: LogReport) -> Excerpt:
    """Return what to show of the log that gave this report, read once more. Never raises on any bytes."""
    near = {
        number
        for line in list_deciding_lines(report)
        for number in range(line - AROUND, line + AROUND + 1)
        if number > 0
    }
    wanted = set(near)
    if report.lines <= MAX_WHOLE_LINES:
        wanted.update(range(1, report.lines + 1))
    else:
        wanted.update(range(1, ENDS + 1), range(report.lines - ENDS + 1, report.lines + 1))
    kept = _Kept(sorted(wanted))
    for _ in read_lines(chunks, None, kept):
        pass
    lines = kept.lines
    left = MAX_EXCERPT_CHARS
    shown: list[tuple[int, str]] = []
    for number in sorted(lines, key=lambda one: (one not in near, one)):
        left -= len(lines[number])
        if left >= 0:
            shown.append((number, lines[number]))
    parts = tuple(_parts(sorted(shown), near))
    last = parts[-1].lines[-1][0] if parts else 0
    return Excerpt(parts, max(0, report.lines - last))


class _Kept:
    """Takes the wanted lines as they stand, and lets none be read further."""

    def __init__(self, wanted: list[int]) -> None:
        self._wanted = wanted
        self.lines: dict[int, str] = {}

    def unread(self, rows: Rows) -> Iterator[int]:
        numbers = rows.numbers
        if not numbers:
            return
        first = bisect_left(self._wanted, numbers[0])
        last = bisect_right(self._wanted, numbers[-1])
        for number in self._wanted[first:last]:
            for index in range(bisect_left(numbers, number), bisect_right(numbers, number)):
                text = clean_line(as_text(rows.texts[index][: 4 * MAX_LINE_CHARS]), limit=MAX_LINE_CHARS)
                self.lines[number] = text or self.lines.get(number, "")  # of a progress bar what stood last
        yield from ()

    def worth(self, block: bytes) -> bool:
        return bool(block)


def _parts(lines: list[tuple[int, str]], near: set[int]) -> Iterator[ExcerptPart]:
    """Neighbours that are alike together."""
    part: list[tuple[int, str]] = []
    end = 0
    for number, text in lines:
        if part and (number != part[-1][0] + 1 or (number in near) != (part[-1][0] in near)):
            yield ExcerptPart(tuple(part), part[0][0] not in near, part[0][0] - end - 1)
            end = part[-1][0]
            part = []
        part.append((number, text))
    if part:
        yield ExcerptPart(tuple(part), part[0][0] not in near, part[0][0] - end - 1)
