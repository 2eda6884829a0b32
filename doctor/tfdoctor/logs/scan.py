"""A log's bytes → its events: every message matched with every signature, but for what was said before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.logs.events import TURNS, Event, Log
from tfdoctor.logs.line_cache import Kinds
from tfdoctor.logs.processes import find_speaker
from tfdoctor.logs.reader import read_lines
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.logs.processes import Splitter
    from tfdoctor.logs.reader import Line, Rows
    from tfdoctor.logs.signatures import Catalogue

__all__ = ["scan"]

FAR = 200
"""Characters before a message from which on the beginning of its line is not kept."""
_MATCHES = 10
"""Bits of an event's place that count the events of its message."""


def scan(
    chunks: Iterable[bytes], catalogue: Catalogue, splitter: Splitter | None = None, *, each: bool = False
) -> Log:
    """Match every line of a log with every signature; `splitter` is given every event, too.

    `each`: every line is read for itself. The result is the same and takes far longer.
    """
    scanner = _Scanner(catalogue, splitter)

    def count(lines: int, size: int) -> None:
        scanner.log.lines, scanner.log.bytes = lines, size

    for line in read_lines(chunks, count, None if each else scanner):
        scanner.add(line)
    scanner.finish()
    return scanner.log


class _Scanner:
    """Adds line after line to a log."""

    def __init__(self, catalogue: Catalogue, splitter: Splitter | None) -> None:
        self.log = Log(turns=TURNS)
        self._catalogue = catalogue
        self._splitter = splitter
        self._kinds = Kinds(catalogue, self.log, splitter, self._repeat)

    def unread(self, rows: Rows) -> Iterator[int]:
        """Yield those that can say something new."""
        return self._kinds.unread(rows)

    def worth(self, block: bytes) -> bool:
        """As `Catalogue.worth`."""
        return self._catalogue.worth(block)

    def add(self, line: Line) -> None:
        """A message that is read."""
        said = self._match_message(line)
        if not said:
            return
        splitter, (label, thread) = self._splitter, self._find_speaker(line)
        if splitter is not None and splitter.turns(label, [event.id for event in said]):
            self._kinds.forget()
        turned = {event.id for event in said if self.log.has_changed(event.id, event.fields)}
        if turned:
            self._kinds.forget(turned)
        if self._note(said, label, thread, 1):
            self._kinds.changed = True
        if splitter is not None and splitter.is_full():
            self._kinds.forget()
            splitter.close()

    def finish(self) -> None:
        """The log is at its end."""
        self._kinds.settle()
        self.log.finish()

    def _repeat(self, line: Line, times: int) -> None:
        """A message that says what was said before, so many times, this the last."""
        self._note(self._match_message(line), *self._find_speaker(line), times)

    def _find_speaker(self, line: Line) -> tuple[str, str]:
        """Return the process and the thread that say it."""
        return ("", "") if self._splitter is None else find_speaker(line.prefix, clean_line(line.text))

    def _match_message(self, line: Line) -> list[Event]:
        """Return what a message says."""
        matches = list(self._catalogue.matches(line.text))
        if line.prefix:
            matches += self._catalogue.matches(f"{line.prefix} ")
        shown = clean_line(line.text) if matches else ""
        events = []
        for number, match in enumerate(matches, line.record << _MATCHES):
            text = shown
            if match.start > FAR:
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

    def _note(self, events: list[Event], label: str, thread: str, times: int) -> bool:
        """Return whether anything is new."""
        new = False
        for event in events:
            new |= self.log.add(event, times)
            if self._splitter is not None:
                new |= self._splitter.add(event, label, thread, times)
        return new
