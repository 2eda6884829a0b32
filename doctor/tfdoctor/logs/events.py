"""What was said in a log, on which line, with what it named. It does not grow with the log.

A log can say the same thing a million times. Of each signature so many different events are kept, and of each the
first and the last; so it does not matter when what is said again is added (`scan`, `kinds`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.logs.signatures import Signature

__all__ = ["Event", "Log"]

MAX_KEPT_EVENTS = 96
"""Different events that are kept of one signature; all are counted."""
TURNS = 8
"""How often another event of one signature is kept because it is another one than the last."""


_Fields = tuple[tuple[str, str], ...]


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
    """The message's place among all: what one matched in several ways shares it."""
    following: int = 0
    """The place of the message directly behind it."""
    prefix: str = ""
    """The process, rank or container that said it, where the log tells."""

    @property
    def id(self) -> str:
        return self.signature.id

    def get(self, name: str) -> str:
        """Return a captured field; empty if there is none."""
        return self.fields.get(name, "")


@dataclass
class Log:
    """Everything that was seen in one log."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    """By signature, in the order of the log."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each was said."""
    lines: int = 0
    bytes: int = 0
    turns: int = 0
    """How many turns of the events of one signature are kept in their order, before only the last of each is."""
    _turns: dict[str, int] = field(default_factory=dict)
    _different: dict[str, set[_Fields]] = field(default_factory=dict)
    _last: dict[str, dict[_Fields, Event]] = field(default_factory=dict)
    """What was said again, the last time."""
    _full: set[str] = field(default_factory=set)
    """Signatures that said more than can be told apart: of these one event is the last."""

    def list_events(self, *ids: str) -> list[Event]:
        """Return the events of these signatures, in the order of the log."""
        found = [event for name in ids for event in self.events.get(name, ())]
        return sorted(found, key=lambda event: event.order) if len(ids) > 1 else found

    def has(self, *ids: str) -> bool:
        return any(name in self.events for name in ids)

    def first(self, *ids: str) -> Event | None:
        return next(iter(self.list_events(*ids)), None)

    def last(self, *ids: str) -> Event | None:
        return next(reversed(self.list_events(*ids)), None)

    def add(self, event: Event, times: int = 1) -> bool:
        """Keep an event that was said so many times, this the last. False where it is not new."""
        name = event.id
        self.counts[name] = self.counts.get(name, 0) + times
        key = tuple(event.fields.items())
        different = self._different.setdefault(name, set())
        kept = self.events.setdefault(name, [])
        if self._turns.get(name, 0) < self.turns:
            if len(kept) > 1 and kept[-1].fields == event.fields == kept[-2].fields:
                kept[-1] = max(kept[-1], event, key=lambda event: event.order)
                return False
            self._turns[name] = self._turns.get(name, 0) + self.has_changed(name, event.fields)
            different.add(key)
            kept.append(event)
            return True
        if key not in different and len(different) < MAX_KEPT_EVENTS:
            different.add(key)
            kept.append(event)
            return True
        if key not in different and name not in self._full:
            self._full.add(name)
            event = max((event, *self._last.pop(name, {}).values()), key=lambda event: event.order)
        last = self._last.setdefault(name, {})
        if name in self._full:
            key = ()
        if key not in last or last[key].order < event.order:
            last[key] = event
        return False

    def has_changed(self, name: str, fields: dict[str, str]) -> bool:
        """Return whether a signature says another thing than the last time, where that is kept: what was said before
        is to be added before.
        """
        kept = self.events.get(name, [])
        return bool(kept) and self._turns.get(name, 0) < self.turns and kept[-1].fields != fields

    def full(self, name: str) -> bool:
        """Return whether what a signature takes from a message does not matter any more."""
        return name in self._full

    def finish(self) -> None:
        """Put the last events behind the first."""
        for name, last in self._last.items():
            self.events[name] += last.values()
            self.events[name].sort(key=lambda event: event.order)
        self._last.clear()

    def __iter__(self) -> Iterator[Event]:
        everything = [event for events in self.events.values() for event in events]
        return iter(sorted(everything, key=lambda event: event.order))
