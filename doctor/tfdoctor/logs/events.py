"""The events of a log: which message was logged, on which line, and what it captured.

Memory does not grow with the log. A log can repeat a message a million times: of each signature a limited
number of different events is kept, and of each the first and the last. So the order in which repetitions are
added does not matter (`scan`, `line_cache`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.logs.signatures import Signature

__all__ = ["Event", "Log"]

MAX_KEPT_EVENTS = 96
"""Different events kept of one signature; all are counted."""
MAX_CHANGES = 8
"""Changes from one event of a signature to a different one that are kept in order."""


_Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A recognized message and its place in the log."""

    signature: Signature
    line: int
    order: int
    """Its place among all events."""
    text: str
    """The message, safe to print, without colours and control characters."""
    fields: dict[str, str]
    record: int = 0
    """The place of the message among all messages; events of one message share it."""
    following: int = 0
    """The place of the message directly after it."""
    prefix: str = ""
    """The text before the message that names a process, rank or container; empty if there is none."""

    @property
    def id(self) -> str:
        return self.signature.id

    def get(self, name: str) -> str:
        """Return a captured field; empty if there is none."""
        return self.fields.get(name, "")


@dataclass
class Log:
    """The events of one log."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    """The events by signature, in the order of the log."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each signature was logged."""
    lines: int = 0
    bytes: int = 0
    turns: int = 0
    """Changes between different events of a signature that are kept in order; after that only the last of each is."""
    _turns: dict[str, int] = field(default_factory=dict)
    _different: dict[str, set[_Fields]] = field(default_factory=dict)
    _last: dict[str, dict[_Fields, Event]] = field(default_factory=dict)
    """The last repetition of each event."""
    _full: set[str] = field(default_factory=set)
    """Signatures with more different events than are kept: these share one last event."""

    def list_events(self, *ids: str) -> list[Event]:
        """Return the events of these signatures, in the order of the log."""
        events = [event for name in ids for event in self.events.get(name, ())]
        return sorted(events, key=lambda event: event.order) if len(ids) > 1 else events

    def has(self, *ids: str) -> bool:
        return any(name in self.events for name in ids)

    def first(self, *ids: str) -> Event | None:
        return next(iter(self.list_events(*ids)), None)

    def last(self, *ids: str) -> Event | None:
        return next(reversed(self.list_events(*ids)), None)

    def add(self, event: Event, times: int = 1) -> bool:
        """Add an event that was logged `times` times, this being the last. Return whether it is new."""
        name = event.id
        self.counts[name] = self.counts.get(name, 0) + times
        key = tuple(event.fields.items())
        different = self._different.setdefault(name, set())
        events = self.events.setdefault(name, [])
        if self._turns.get(name, 0) < self.turns:
            if len(events) > 1 and events[-1].fields == event.fields == events[-2].fields:
                events[-1] = max(events[-1], event, key=lambda event: event.order)
                return False
            self._turns[name] = self._turns.get(name, 0) + self.has_changed(name, event.fields)
            different.add(key)
            events.append(event)
            return True
        if key not in different and len(different) < MAX_KEPT_EVENTS:
            different.add(key)
            events.append(event)
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
        """Return whether these captures differ from the last event of the signature.

        False if such changes are no longer kept. Pending events must be added before a changed one.
        """
        events = self.events.get(name, [])
        return bool(events) and self._turns.get(name, 0) < self.turns and events[-1].fields != fields

    def is_saturated(self, name: str) -> bool:
        """Return whether the captures of this signature no longer matter."""
        return name in self._full

    def finish(self) -> None:
        """Move the last repetitions to the other events."""
        for name, last in self._last.items():
            self.events[name] += last.values()
            self.events[name].sort(key=lambda event: event.order)
        self._last.clear()

    def __iter__(self) -> Iterator[Event]:
        everything = [event for events in self.events.values() for event in events]
        return iter(sorted(everything, key=lambda event: event.order))
