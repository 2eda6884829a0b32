"""Choose the lines of a log to show beside its verdict, on a page that may be published.

Only the evidence of findings and the lines that TensorFlow, CUDA, the driver or Python wrote are shown. The output
of the user's program is left out. So are exception messages that are not evidence, because they can contain anything,
and no redactor recognizes every secret. A long log is cut to its beginning, its end and the
lines around the evidence. It is read as a stream, so memory holds no more than the excerpt.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core.text import clean_line
from tfdoctor.logs.blocks import decode_text
from tfdoctor.logs.message_start import KNOWN_LINE
from tfdoctor.logs.reader import find_record_start, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.logs.reader import Rows
    from tfdoctor.logs.report import LogReport

__all__ = ["Excerpt", "ExcerptPart", "list_evidence_lines", "make_excerpt"]

MAX_WHOLE_LINES = 1500
"""The maximum number of lines of a log that is not cut."""
END_LINES = 25
"""The number of lines shown at the beginning and at the end of a longer log."""
CONTEXT_LINES = 4
"""The number of lines shown before and after a line of evidence."""
MAX_LINE_CHARS = 1000
"""The maximum number of characters shown of a line."""
MAX_EXCERPT_CHARS = 600_000
"""The maximum number of characters in the excerpt."""
_ERROR_MESSAGE = re.compile(
    r"\A([\s>#]{0,12}(?!(?:ImportError|ModuleNotFoundError|AttributeError|NameError)\b)"
    r"[\w.]{0,80}(?:Error|Exception|Warning): ).+"
)
"""An exception or a warning, unless it names a missing module or name. Group 1 precedes its message."""


@dataclass(frozen=True, slots=True)
class ExcerptPart:
    """A group of neighbouring lines."""

    lines: tuple[tuple[int, str], ...]
    """(line number in the file, from 1; text that is safe to print) for each line."""
    is_noise: bool
    """Whether these lines are neither evidence nor next to evidence."""
    omitted_before: int
    """The number of lines that are left out before this part."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The lines of a log to show."""

    parts: tuple[ExcerptPart, ...]
    omitted_after: int
    """The number of lines that are left out after the last part."""


def list_evidence_lines(report: LogReport) -> frozenset[int]:
    """Return the numbers of the lines that are evidence of a finding."""
    lines = {evidence.line for finding in report.findings for evidence in finding.evidence}
    return frozenset(line for line in lines if line is not None)


def make_excerpt(chunks: Iterable[bytes], report: LogReport) -> Excerpt:
    """Read a log a second time and return the lines to show with its report.

    `chunks` are the bytes of the log, in pieces of any size. Malformed content never raises an error.
    """
    evidence_lines = list_evidence_lines(report)
    context_lines = {
        number
        for line in evidence_lines
        for number in range(line - CONTEXT_LINES, line + CONTEXT_LINES + 1)
        if number > 0
    }
    selected_lines = set(context_lines)
    if report.line_count <= MAX_WHOLE_LINES:
        selected_lines.update(range(1, report.line_count + 1))
    else:
        selected_lines.update(
            range(1, END_LINES + 1), range(report.line_count - END_LINES + 1, report.line_count + 1)
        )
    collector = _LineCollector(sorted(selected_lines))
    for _ in read_lines(chunks, None, collector):
        pass
    lines = {
        number: text if number in evidence_lines else _ERROR_MESSAGE.sub(r"\1…", text)
        for number, text in collector.lines.items()
        if number in evidence_lines or _is_known_line(text)
    }
    # if the excerpt would be too long, the evidence and the lines around it come first
    remaining_chars = MAX_EXCERPT_CHARS
    selected: list[tuple[int, str]] = []
    for number in sorted(lines, key=lambda index: (index not in context_lines, index)):
        remaining_chars -= len(lines[number])
        if remaining_chars >= 0:
            selected.append((number, lines[number]))
    parts = tuple(_group_lines(sorted(selected), context_lines))
    last_number = max((number for number, _ in selected), default=0)
    return Excerpt(parts, omitted_after=max(0, report.line_count - last_number))


def _is_known_line(line: str) -> bool:
    return find_record_start(line) is not None or KNOWN_LINE.match(line) is not None


class _LineCollector:
    """A line filter (see `reader.Filter`) that stores the selected lines and lets the reader read none."""

    def __init__(self, selected_lines: list[int]) -> None:
        self._selected_lines = selected_lines
        self.lines: dict[int, str] = {}

    def select_lines(self, rows: Rows) -> Iterator[int]:
        """Store the selected lines of this block. Yield nothing."""
        numbers = rows.line_numbers
        if not numbers:
            return
        start = bisect_left(self._selected_lines, numbers[0])
        end = bisect_right(self._selected_lines, numbers[-1])
        for number in self._selected_lines[start:end]:
            for index in range(bisect_left(numbers, number), bisect_right(numbers, number)):
                # UTF-8 has up to four bytes for a character
                text = clean_line(decode_text(rows.texts[index][: 4 * MAX_LINE_CHARS]), limit=MAX_LINE_CHARS)
                # all pieces of a progress bar have the same line number: keep the last one with text
                self.lines[number] = text or self.lines.get(number, "")
        yield from ()

    def can_match_block(self, block: bytes) -> bool:
        """Return whether a block has any bytes. Every such block may have a selected line."""
        return bool(block)


def _group_lines(lines: list[tuple[int, str]], context_lines: set[int]) -> Iterator[ExcerptPart]:
    """Yield groups of neighbouring lines. In each group, all lines are near evidence, or none is."""
    part: list[tuple[int, str]] = []
    previous_end = 0
    """The number of the last line of the previous group, or 0 for the first group."""

    def make_part() -> ExcerptPart:
        first_number, _ = part[0]
        return ExcerptPart(
            lines=tuple(part),
            is_noise=first_number not in context_lines,
            omitted_before=first_number - previous_end - 1,
        )

    for number, text in lines:
        if part:
            last_number, _ = part[-1]
            if number != last_number + 1 or (number in context_lines) != (last_number in context_lines):
                yield make_part()
                previous_end = last_number
                part = []
        part.append((number, text))
    if part:
        yield make_part()
