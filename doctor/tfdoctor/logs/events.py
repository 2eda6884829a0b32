"""Lines → events: what was said, on which line, with what it named. Memory does not grow with the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.redact import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.logs.processes import Splitter
    from tfdoctor.logs.reader import Line
    from tfdoctor.logs.signatures import Catalogue, Signature

__all__ = ["Event", "Log", "scan"]

PREFIXES = 256
"""Different prefixes (processes, ranks) that are remembered to have been looked at."""
KEPT = 48
"""Events that are kept of one signature; all are counted. Different ones first."""


@dataclass(frozen=True, slots=True)
class Event:
    """One message that is known, where it was seen."""

    signature: Signature
    line: int
    order: int
    """Its place among all events: which came first."""
    text: str
    """The message, safe to print, without colours and control characters."""
    fields: dict[str, str]
    record: int = 0
    """The message among all: what one matched in several ways shares it, the next line's has the next number."""
    prefix: str = ""
    """The process, rank or container that said it, where the log tells."""

    @property
    def id(self) -> str:
        return self.signature.id

    def get(self, name: str) -> str:
        """A captured field; empty where there is none."""
        return self.fields.get(name, "")


@dataclass
class Log:
    """Everything that was seen in one log."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    """By signature, in the order of the log."""
    counts: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    bytes: int = 0
    _kept: dict[str, set[tuple[tuple[str, str], ...]]] = field(default_factory=dict)

    def of(self, *ids: str) -> list[Event]:
        """The events of these signatures, in the order of the log."""
        found = [event for name in ids for event in self.events.get(name, ())]
        return sorted(found, key=lambda event: event.order) if len(ids) > 1 else found

    def has(self, *ids: str) -> bool:
        return any(name in self.events for name in ids)

    def first(self, *ids: str) -> Event | None:
        return next(iter(self.of(*ids)), None)

    def last(self, *ids: str) -> Event | None:
        return next(reversed(self.of(*ids)), None)

    def add(self, event: Event) -> None:
        """Keep an event, the newest in place of the last where there are too many alike."""
        name = event.id
        self.counts[name] = self.counts.get(name, 0) + 1
        kept = self.events.setdefault(name, [])
        seen = self._kept.setdefault(name, set())
        key = tuple(sorted(event.fields.items()))
        if key in seen:
            if len(kept) >= 2 and kept[-1].fields == event.fields and kept[-2].fields == event.fields:
                kept[-1] = event
                return
        elif len(seen) < KEPT:
            seen.add(key)
        if len(kept) < KEPT * 2:
            kept.append(event)

    def __iter__(self) -> Iterator[Event]:
        everything = [event for events in self.events.values() for event in events]
        return iter(sorted(everything, key=lambda event: event.order))


def scan(lines: Iterable[Line], catalogue: Catalogue, splitter: Splitter | None = None) -> Log:
    """Match every line with every signature; `splitter` is given every event, too."""
    log = Log()
    order = record = end = 0
    prefixes: set[str] = set()
    for line in lines:
        record += 1 if line.place <= end + 1 else 2
        end = line.end
        matches = list(catalogue.matches(line.text))
        if line.prefix and line.prefix not in prefixes:
            if len(prefixes) < PREFIXES:
                prefixes.add(line.prefix)
            matches += catalogue.matches(f"{line.prefix} ")
        for match in matches:
            order += 1
            fields = {name: clean_line(value, limit=4000) for name, value in match.fields.items()}
            text = clean_line(line.text[max(0, match.start - 160) :] if match.start > 200 else line.text)
            event = Event(match.signature, line.number, order, text, fields, record, line.prefix)
            log.add(event)
            if splitter is not None:
                splitter.add(event)
    return log
