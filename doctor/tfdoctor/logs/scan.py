"""Scan a log: match its messages against the signatures, but only count repeated messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.text import clean_line
from tfdoctor.logs.events import MAX_CHANGES, Event, Log
from tfdoctor.logs.line_cache import LineCache
from tfdoctor.logs.processes import find_process_labels
from tfdoctor.logs.reader import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.logs.processes import ProcessSplitter
    from tfdoctor.logs.reader import Line, Rows
    from tfdoctor.logs.signatures import Catalogue

__all__ = ["scan"]

MAX_LEAD_CHARS = 200
"""The maximum number of characters before a match in the text of an event. If there are more, the text is cut."""
_CUT_LEAD_CHARS = 160
"""The number of characters before a match in a text that was cut."""
_EVENT_BITS = 10
"""The number of low bits of an event's order that count the events of a message. The rest is the record number."""


def scan(
    chunks: Iterable[bytes],
    catalogue: Catalogue,
    splitter: ProcessSplitter | None = None,
    *,
    without_cache: bool = False,
) -> Log:
    """Return the events of a log. Each event is also added to `splitter`.

    `chunks` are the bytes of the log. If `without_cache` is true, every line is matched separately, without the line cache,
    which takes far longer and has the same result.
    """
    scanner = _Scanner(catalogue, splitter)

    def store_size(lines: int, size: int) -> None:
        scanner.log.line_count, scanner.log.byte_count = lines, size

    for line in read_lines(chunks, store_size, None if without_cache else scanner):
        scanner.add(line)
    scanner.finish()
    return scanner.log


class _Scanner:
    """The line filter of a scan (see `reader.Filter`). It also matches the lines that the reader reads."""

    def __init__(self, catalogue: Catalogue, splitter: ProcessSplitter | None) -> None:
        self.log = Log(max_changes=MAX_CHANGES)
        self._catalogue = catalogue
        self._splitter = splitter
        self._line_cache = LineCache(catalogue, self.log, splitter, self._add_repetitions)

    def select_lines(self, rows: Rows) -> Iterator[int]:
        """Yield the indices of the lines that may add something new."""
        return self._line_cache.select_lines(rows)

    def can_match_block(self, block: bytes) -> bool:
        """Return whether the block can contain a known message (see `Catalogue.can_match_block`)."""
        return self._catalogue.can_match_block(block)

    def add(self, line: Line) -> None:
        """Match a line and add its events. Before that, add pending repetitions that must precede them."""
        events = self._match_message(line)
        if not events:
            return
        splitter, (label, thread) = self._splitter, self._find_source_labels(line)
        if splitter is not None and splitter.may_start_process(label, [event.id for event in events]):
            self._line_cache.forget()  # this also adds the pending repetitions
        changed_ids = {event.id for event in events if self.log.has_changed(event.id, event.captures)}
        if changed_ids:
            self._line_cache.forget(changed_ids)
        if self._add_events(events, label, thread, times=1):
            self._line_cache.has_added_event = True
        if splitter is not None and splitter.is_full():
            self._line_cache.forget()
            splitter.close()

    def finish(self) -> None:
        """Add the pending repetitions at the end of the log."""
        self._line_cache.flush()
        self.log.finish()

    def _add_repetitions(self, line: Line, times: int) -> None:
        """Add a message that was repeated `times` times. `line` is the last repetition."""
        self._add_events(self._match_message(line), *self._find_source_labels(line), times)

    def _find_source_labels(self, line: Line) -> tuple[str, str]:
        """Return the labels of the process and thread that wrote the line. They are empty without a splitter."""
        return ("", "") if self._splitter is None else find_process_labels(line.prefix, clean_line(line.text))

    def _match_message(self, line: Line) -> list[Event]:
        """Return the events of a message, one for each signature that matches it or its prefix."""
        matches = list(self._catalogue.iter_matches(line.text))
        if line.prefix:
            matches += self._catalogue.iter_matches(f"{line.prefix} ")
        cleaned_text = clean_line(line.text) if matches else ""
        events = []
        for order, match in enumerate(matches, line.message_number << _EVENT_BITS):
            text = cleaned_text
            if match.start > MAX_LEAD_CHARS:
                text = clean_line(line.text[max(0, match.start - _CUT_LEAD_CHARS) :])
            fields = {name: clean_line(value, limit=4000) for name, value in match.captures.items()}
            events.append(
                Event(
                    signature=match.signature,
                    line=line.line_number,
                    order=order,
                    text=text,
                    captures=fields,
                    message_number=line.message_number,
                    next_message_number=line.next_message_number,
                    prefix=line.prefix,
                )
            )
        return events

    def _add_events(self, events: list[Event], label: str, thread: str, times: int) -> bool:
        """Add events that were logged `times` times. Return whether any of them is new."""
        has_new_event = False
        for event in events:
            has_new_event |= self.log.add(event, times)
            if self._splitter is not None:
                has_new_event |= self._splitter.add(event, label, thread, times)
        return has_new_event
