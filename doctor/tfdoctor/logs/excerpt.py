"""The lines of a log to show beside its verdict, on a page that may be published.

Only lines that TensorFlow, CUDA, the driver or Python wrote, and the evidence of findings, are kept: the
output of a user's own program can contain anything, and no redactor recognizes it all. A short log is kept
whole; of a longer one, the lines around the evidence, at the beginning and at the end. The log is read as a
stream: memory holds no more than the excerpt.
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
"""Lines of the longest log that is kept whole."""
END_LINES = 25
"""Lines kept at the beginning and at the end of a longer log."""
CONTEXT_LINES = 4
"""Lines kept before and after a line of evidence."""
MAX_LINE_CHARS = 1000
"""Characters kept of a line."""
MAX_EXCERPT_CHARS = 600_000
"""Characters of the whole excerpt."""
_KNOWN_LINE = re.compile(
    r"[\s>#]{0,12}(?:Traceback \(most recent|File \"|(?:During|The above) [a-z ]{0,20}exception"
    r"|[|+][-=+|]|\| {0,3}[\dN]"
    r"|\|[^|]{0,80}(?:NVIDIA|CUDA|GPU|Driver|Memory|MiB|Processes|Fan|MIG)|[\w.]{0,80}(?:Error|Exception|Warning)\b"
    r"|Skipping registering|To enable th|name: |pciBusID|coreClock|major: |totalMemory|(?:Total|Free) memory"
    r"|Instructions for|Please make sure|NVRM: |NVIDIA-SMI |Failed to initialize NVML|Num GPUs)"
)
"""The beginnings of lines without a timestamp that TensorFlow, CUDA, the driver or Python writes."""


@dataclass(frozen=True, slots=True)
class ExcerptPart:
    """A run of neighbouring lines."""

    lines: tuple[tuple[int, str], ...]
    """(line number in the file, from 1; text that is safe to show)."""
    noise: bool
    """Whether these lines are neither evidence nor near it."""
    missing: int
    """Lines of the file left out between the part before and this one."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The lines that are kept of a log."""

    parts: tuple[ExcerptPart, ...]
    after: int
    """Lines of the file after the last part."""


def list_deciding_lines(report: LogReport) -> frozenset[int]:
    """Return the numbers of the lines that are evidence of a finding."""
    lines = {evidence.line for finding in report.findings for evidence in finding.evidence}
    return frozenset(line for line in lines if line is not None)


def excerpt(chunks: Iterable[bytes], report: LogReport) -> Excerpt:
    """Read a log a second time and return the lines to show with its report. Never raises on any bytes."""
    evidence_lines = list_deciding_lines(report)
    context_lines = {
        number
        for line in evidence_lines
        for number in range(line - CONTEXT_LINES, line + CONTEXT_LINES + 1)
        if number > 0
    }
    wanted_lines = set(context_lines)
    if report.lines <= MAX_WHOLE_LINES:
        wanted_lines.update(range(1, report.lines + 1))
    else:
        wanted_lines.update(range(1, END_LINES + 1), range(report.lines - END_LINES + 1, report.lines + 1))
    collector = _LineCollector(sorted(wanted_lines))
    for _ in read_lines(chunks, None, collector):
        pass
    lines = {
        number: text
        for number, text in collector.lines.items()
        if number in evidence_lines or _is_known(text)
    }
    chars_left = MAX_EXCERPT_CHARS
    selected: list[tuple[int, str]] = []
    for number in sorted(lines, key=lambda index: (index not in context_lines, index)):
        chars_left -= len(lines[number])
        if chars_left >= 0:
            selected.append((number, lines[number]))
    parts = tuple(_group_lines(sorted(selected), context_lines))
    last = parts[-1].lines[-1][0] if parts else 0
    return Excerpt(parts, max(0, report.lines - last))


def _is_known(line: str) -> bool:
    return find_head(line) is not None or _KNOWN_LINE.match(line) is not None


class _LineCollector:
    """A line filter that keeps the wanted lines and passes none of them on to the reader."""

    def __init__(self, wanted_lines: list[int]) -> None:
        self._wanted = wanted_lines
        self.lines: dict[int, str] = {}

    def select_lines(self, rows: Rows) -> Iterator[int]:
        """Keep the wanted lines of this block; yield nothing."""
        numbers = rows.numbers
        if not numbers:
            return
        first = bisect_left(self._wanted, numbers[0])
        last = bisect_right(self._wanted, numbers[-1])
        for number in self._wanted[first:last]:
            for index in range(bisect_left(numbers, number), bisect_right(numbers, number)):
                text = clean_line(as_text(rows.texts[index][: 4 * MAX_LINE_CHARS]), limit=MAX_LINE_CHARS)
                # of a progress bar, keep the last state
                self.lines[number] = text or self.lines.get(number, "")
        yield from ()

    def can_match_block(self, block: bytes) -> bool:
        """Return whether a block has any bytes."""
        return bool(block)


def _group_lines(lines: list[tuple[int, str]], context_lines: set[int]) -> Iterator[ExcerptPart]:
    """Group neighbouring lines that are all near evidence, or all not."""
    part: list[tuple[int, str]] = []
    end = 0
    for number, text in lines:
        if part and (
            number != part[-1][0] + 1 or (number in context_lines) != (part[-1][0] in context_lines)
        ):
            yield ExcerptPart(tuple(part), part[0][0] not in context_lines, part[0][0] - end - 1)
            end = part[-1][0]
            part = []
        part.append((number, text))
    if part:
        yield ExcerptPart(tuple(part), part[0][0] not in context_lines, part[0][0] - end - 1)
