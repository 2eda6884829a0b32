"""The lines of a log to show beside its verdict, in a page that may be published.

Only what TensorFlow, CUDA, the driver and Python wrote is kept, and what findings rest on: what a user's own program
prints can be anything, and no redactor knows it all. Of a short log all such lines, else those around what decided, at
the beginning and at the end. Reads a stream, and keeps no more than it returns.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.logs.blocks import as_text
from tfdoctor.logs.reader import find_head, read_lines
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
_KNOWN_LINE = re.compile(
    r"[\s>#]{0,12}(?:Traceback \(most recent|File \"|(?:During|The above) [a-z ]{0,20}exception"
    r"|[|+][-=+|]|\| {0,3}[\dN]"
    r"|\|[^|]{0,80}(?:NVIDIA|CUDA|GPU|Driver|Memory|MiB|Processes|Fan|MIG)|[\w.]{0,80}(?:Error|Exception|Warning)\b"
    r"|Skipping registering|To enable th|name: |pciBusID|coreClock|major: |totalMemory|(?:Total|Free) memory"
    r"|Instructions for|Please make sure|NVRM: |NVIDIA-SMI |Failed to initialize NVML|Num GPUs)"
)
"""What a line begins with that TensorFlow, CUDA, the driver or Python wrote, where the time does not say so."""


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
    hits = list_deciding_lines(report)
    near = {number for line in hits for number in range(line - AROUND, line + AROUND + 1) if number > 0}
    wanted = set(near)
    if report.lines <= MAX_WHOLE_LINES:
        wanted.update(range(1, report.lines + 1))
    else:
        wanted.update(range(1, ENDS + 1), range(report.lines - ENDS + 1, report.lines + 1))
    kept = _Kept(sorted(wanted))
    for _ in read_lines(chunks, None, kept):
        pass
    lines = {number: text for number, text in kept.lines.items() if number in hits or _is_known(text)}
    left = MAX_EXCERPT_CHARS
    shown: list[tuple[int, str]] = []
    for number in sorted(lines, key=lambda one: (one not in near, one)):
        left -= len(lines[number])
        if left >= 0:
            shown.append((number, lines[number]))
    parts = tuple(_parts(sorted(shown), near))
    last = parts[-1].lines[-1][0] if parts else 0
    return Excerpt(parts, max(0, report.lines - last))


def _is_known(line: str) -> bool:
    return find_head(line) is not None or _KNOWN_LINE.match(line) is not None


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
