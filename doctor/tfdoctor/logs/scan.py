"""Scanning a log: every message is matched with every signature, and repeated messages are only counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.logs.events import MAX_CHANGES, Event, Log
from tfdoctor.logs.line_cache import LineCache
from tfdoctor.logs.processes import find_speaker
from tfdoctor.logs.reader import read_lines
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.logs.processes import Splitter
    from tfdoctor.logs.reader import Line, Rows
    from tfdoctor.logs.signatures import Catalogue

__all__ = ["scan"]

MAX_LEAD_CHARS = 200
"""Characters before a match beyond which the beginning of the line is not kept."""
_EVENT_BITS = 10
"""Bits of the order number of an event that count the events of its message."""


def scan(
    chunks: Iterable[bytes], catalogue: Catalogue, splitter: Splitter | None = None, *, each: bool = False
) -> Log:
    """Match every line of a log with every signature; also give each event to `splitter`.

    `each`: match every line separately. The result is the same and takes far longer.
    """
    scanner = _Scanner(catalogue, splitter)

    def count(lines: int, size: int) -> None:
        scanner.log.lines, scanner.log.bytes = lines, size

    for line in read_lines(chunks, count, None if each else scanner):
        scanner.add(line)
    scanner.finish()
    return scanner.log


class _Scanner:
    """The filter and the receiver of lines while a log is scanned."""

    def __init__(self, catalogue: Catalogue, splitter: Splitter | None) -> None:
        self.log = Log(turns=MAX_CHANGES)
        self._catalogue = catalogue
        self._splitter = splitter
        self._kinds = LineCache(catalogue, self.log, splitter, self._repeat)

    def select_lines(self, rows: Rows) -> Iterator[int]:
        """Yield the indices of the lines that can be new."""
        return self._kinds.select_lines(rows)

    def can_match_block(self, block: bytes) -> bool:
        """Return whether the block can have a known message: see `Catalogue.worth`."""
        return self._catalogue.can_match_block(block)

    def add(self, line: Line) -> None:
        """Match a line and add its events."""
        events = self._match_message(line)
        if not events:
            return
        splitter, (label, thread) = self._splitter, self._find_speaker(line)
        if splitter is not None and splitter.may_start_process(label, [event.id for event in events]):
            self._kinds.forget()
        changed = {event.id for event in events if self.log.has_changed(event.id, event.fields)}
        if changed:
            self._kinds.forget(changed)
        if self._add_events(events, label, thread, 1):
            self._kinds.changed = True
        if splitter is not None and splitter.is_full():
            self._kinds.forget()
            splitter.close()

    def finish(self) -> None:
        """Add pending repetitions at the end of the log."""
        self._kinds.flush()
        self.log.finish()

    def _repeat(self, line: Line, times: int) -> None:
        """Add `times` repetitions of a message, of which this line is the last."""
        self._add_events(self._match_message(line), *self._find_speaker(line), times)

    def _find_speaker(self, line: Line) -> tuple[str, str]:
        """Return the process and the thread that wrote the line."""
        return ("", "") if self._splitter is None else find_speaker(line.prefix, clean_line(line.text))

    def _match_message(self, line: Line) -> list[Event]:
        """Return the events of a message."""
        matches = list(self._catalogue.matches(line.text))
        if line.prefix:
            matches += self._catalogue.matches(f"{line.prefix} ")
        clean = clean_line(line.text) if matches else ""
        events = []
        for number, match in enumerate(matches, line.record << _EVENT_BITS):
            text = clean
            if match.start > MAX_LEAD_CHARS:
                text = clean_line(line.text[max(0, match.start - 160) :])
            fields = {name: clean_line(value, limit=4000) for name, value in match.fields.items()}
            events.append(
                Event(
                    match.signature,
                    line.number,
                    number,
                    text,
                    fields,
                    line.record,
                    line.following,
                    line.prefix,
                )
            )
        return events

    def _add_events(self, events: list[Event], label: str, thread: str, times: int) -> bool:
        """Add events. Return whether any is new."""
        new = False
        for event in events:
            new |= self.log.add(event, times)
            if self._splitter is not None:
                new |= self._splitter.add(event, label, thread, times)
        return new
