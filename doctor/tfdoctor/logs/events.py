"""The events of a log, which are recognized messages with their lines and the values in them.

Memory does not grow with the log, which can repeat a message a million times. For each signature, a limited number
of different events is stored, and for each event only the first and the last occurrence. Therefore repetitions may
be added in any order (see `scan` and `line_cache`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.logs.signatures import Signature

__all__ = ["Event", "Log"]

MAX_KEPT_EVENTS = 96
"""The maximum number of different events that are stored for one signature. All are counted."""
MAX_CHANGES = 8
"""The number of changes between events of a signature after which only the first and last of each are stored."""


_Captures = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A recognized message and its position in the log."""

    signature: Signature
    line: int
    """The line number in the file, from 1."""
    order: int
    """The position among all events of the log. Some numbers are not used."""
    text: str
    """The message, safe to print, without colours and control characters."""
    captures: dict[str, str]
    """The values that the signature captured, by name."""
    message_number: int = 0
    """The position of the message among all messages. Events of one message share it."""
    next_message_number: int = 0
    """The position of the next message."""
    prefix: str = ""
    """The text before the message, which may name a process, rank or container, or an empty string."""

    @property
    def id(self) -> str:
        return self.signature.id

    def get(self, name: str) -> str:
        """Return the value of a field, or an empty string if it was not captured."""
        return self.captures.get(name, "")


@dataclass
class Log:
    """The events of one log."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    """The events by signature id, in log order."""
    event_counts: dict[str, int] = field(default_factory=dict)
    """The number of times that each signature was logged."""
    line_count: int = 0
    """The number of lines of the log."""
    byte_count: int = 0
    """The size of the log in bytes."""
    max_changes: int = 0
    """The maximum number of changes between events of a signature that are stored in order (see MAX_CHANGES)."""
    _change_counts: dict[str, int] = field(default_factory=dict)
    """The number of changes so far, by signature id."""
    _known_captures: dict[str, set[_Captures]] = field(default_factory=dict)
    """The different captures so far, by signature id."""
    _last_events: dict[str, dict[_Captures, Event]] = field(default_factory=dict)
    """The last repetition of each event, by signature id and captures."""
    _full_signatures: set[str] = field(default_factory=set)
    """The signatures with more than MAX_KEPT_EVENTS different events, which share one last occurrence."""

    def list_events(self, *signature_ids: str) -> list[Event]:
        """Return the events of these signatures, in log order."""
        events = [event for signature_id in signature_ids for event in self.events.get(signature_id, ())]
        return sorted(events, key=lambda event: event.order) if len(signature_ids) > 1 else events

    def has(self, *signature_ids: str) -> bool:
        return any(signature_id in self.events for signature_id in signature_ids)

    def find_first(self, *signature_ids: str) -> Event | None:
        return next(iter(self.list_events(*signature_ids)), None)

    def find_last(self, *signature_ids: str) -> Event | None:
        return next(reversed(self.list_events(*signature_ids)), None)

    def add(self, event: Event, times: int = 1) -> bool:
        """Add the last of `times` occurrences of an event. Return whether it is new.

        An event that is not new only updates the last occurrence of an earlier one.
        """
        signature_id = event.id
        self.event_counts[signature_id] = self.event_counts.get(signature_id, 0) + times
        captures = tuple(event.captures.items())
        known_captures = self._known_captures.setdefault(signature_id, set())
        events = self.events.setdefault(signature_id, [])
        if self._change_counts.get(signature_id, 0) < self.max_changes:
            # the first events are stored in order, but only the first and the last of a run of equal ones
            if len(events) > 1 and events[-1].captures == event.captures == events[-2].captures:
                events[-1] = max(events[-1], event, key=lambda event: event.order)
                return False
            self._change_counts[signature_id] = self._change_counts.get(signature_id, 0) + self.has_changed(
                signature_id, event.captures
            )
            known_captures.add(captures)
            events.append(event)
            return True
        if captures not in known_captures and len(known_captures) < MAX_KEPT_EVENTS:
            known_captures.add(captures)
            events.append(event)
            return True
        if captures not in known_captures and signature_id not in self._full_signatures:
            # from now on, all events of the signature share one last occurrence
            self._full_signatures.add(signature_id)
            event = max(
                (event, *self._last_events.pop(signature_id, {}).values()), key=lambda event: event.order
            )
        last_events = self._last_events.setdefault(signature_id, {})
        if signature_id in self._full_signatures:
            captures = ()
        if captures not in last_events or last_events[captures].order < event.order:
            last_events[captures] = event
        return False

    def has_changed(self, signature_id: str, fields: dict[str, str]) -> bool:
        """Return whether these captures differ from those of the last event of the signature.

        If they do, the caller must add all pending events before the changed one. Return False once enough changes
        are stored.
        """
        events = self.events.get(signature_id, [])
        return (
            bool(events)
            and self._change_counts.get(signature_id, 0) < self.max_changes
            and events[-1].captures != fields
        )

    def is_saturated(self, signature_id: str) -> bool:
        """Return whether events of this signature with different captures are no longer distinguished."""
        return signature_id in self._full_signatures

    def finish(self) -> None:
        """Move the last occurrences to `events`. Call this after the last event was added."""
        for signature_id, last_events in self._last_events.items():
            self.events[signature_id] += last_events.values()
            self.events[signature_id].sort(key=lambda event: event.order)
        self._last_events.clear()

    def __iter__(self) -> Iterator[Event]:
        all_events = [event for events in self.events.values() for event in events]
        return iter(sorted(all_events, key=lambda event: event.order))
