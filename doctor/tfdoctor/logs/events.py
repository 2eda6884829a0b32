"""Lines → events: what was said, on which line, with what it named. Memory does not grow with the log.

A log can say the same thing a million times. A line that says what an earlier one said is not matched again; and where
the earlier one changed nothing any more but where it was said last, only that is noted, until something new is said.
The same holds for a line that differs in digits alone, where no digit can change what it means: none is in what is
taken from it, or of what is taken as much is kept as may be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.logs.reader import folded
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.logs.processes import Splitter
    from tfdoctor.logs.reader import Line
    from tfdoctor.logs.signatures import Catalogue, Match, Signature

__all__ = ["Event", "Log", "scan"]

SOURCE_LINE = "source-line"
"""The signature of the line of the source that a message names: its digits are what it is about."""
HEARD = 4
"""How often a line of the source is noted of one prefix: several processes can stand behind it."""
SOURCES = 4096
"""Lines of the source, of one prefix each, that are noted."""
PREFIXES = 256
"""Different prefixes (processes, ranks) that are remembered to have been looked at."""
KEPT = 48
"""Events that are kept of one signature; all are counted. Different ones first."""
FAR = 200
"""Characters before a message from which on the beginning of its line is not kept."""
_DIGIT = re.compile("[0-9]")
REMEMBERED = 2048
"""Different lines of which is remembered what they mean; shorter ones than this many characters."""


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
    """How often each was said; at least, where nothing that it says changes anything any more."""
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

    def add(self, event: Event, times: int = 1) -> bool:
        """Keep an event, the newest in place of the last where there are too many alike.

        `times`: how often it was said, this the last time. False where saying it again would only change what is
        known of its last time.
        """
        name = event.id
        self.counts[name] = self.counts.get(name, 0) + times
        kept = self.events.setdefault(name, [])
        seen = self._kept.setdefault(name, set())
        key = tuple(sorted(event.fields.items()))
        new = False
        if key in seen:
            if len(kept) >= 2 and kept[-1].fields == event.fields and kept[-2].fields == event.fields:
                kept[-1] = event
                return False
        elif len(seen) < KEPT:
            seen.add(key)
            new = True
        if len(kept) < KEPT * 2:
            kept.append(event)
            new = True
        return new

    def spent(self, name: str) -> bool:
        """Whether nothing that this signature could still say would change anything but its count."""
        kept = self.events.get(name, [])
        return len(kept) >= KEPT * 2 and kept[-1].fields != kept[-2].fields

    def __iter__(self) -> Iterator[Event]:
        everything = [event for events in self.events.values() for event in events]
        return iter(sorted(everything, key=lambda event: event.order))


def scan(lines: Iterable[Line], catalogue: Catalogue, splitter: Splitter | None = None) -> Log:
    """Match every line with every signature; `splitter` is given every event, too."""
    scanner = _Scanner(catalogue, splitter)
    for line in lines:
        scanner.add(line)
    scanner.settle()
    return scanner.log


@dataclass(slots=True)
class _Said:
    """What a line means that can be said again."""

    matches: tuple[tuple[Signature, dict[str, str], int], ...]
    """Each signature, its fields, safe to print, and where in the line it begins."""
    settled: int = -1
    """The state in which it was said, and changed nothing."""
    times: int = 0
    """How often it was said since, which is yet to be noted: where the last time was, is in the rest."""
    line: Line | None = None
    record: int = 0
    order: int = 0
    places: int = 0
    """How many places in the order it takes."""

    def __post_init__(self) -> None:
        self.places = sum(signature.id != SOURCE_LINE for signature, _, _ in self.matches)


@dataclass(slots=True)
class _Alike:
    """Lines that differ in digits alone, and what of their digits can change what they mean."""

    named: bool
    """Whether something tells who says it."""
    source: slice | None
    """Where the line of the source is that they name."""
    sighted: tuple[Signature, ...]
    """Signatures that they can have and that do not take one digit for another."""
    said: dict[tuple[object, ...], _Said] = field(default_factory=dict)
    """Who says it, the line of the source, what `sighted` find → what every such line means."""


class _Scanner:
    """Adds line after line to a log."""

    def __init__(self, catalogue: Catalogue, splitter: Splitter | None) -> None:
        self.log = Log()
        self._catalogue = catalogue
        self._splitter = splitter
        self._known: dict[tuple[str, str, int], _Said] = {}
        """What a line says, its prefix, the length of all of it → what that means."""
        self._alike: dict[tuple[bytes, bytes], _Alike] = {}
        """By a line and its prefix, digits all 0."""
        self._alike_said = 0
        """How many meanings these hold."""
        self._put_off: list[_Said] = []
        self._state = 0
        """How often something changed that more than a last time."""
        self._order = self._record = self._end = 0
        self._prefixes: set[str] = set()
        self._sources: dict[tuple[str, str, str], int] = {}
        """How often a prefix named a line of the source."""

    def add(self, line: Line) -> None:
        self._record += 1 if line.place <= self._end + 1 else 2
        self._end = line.end
        alike = self._alike.get((folded(line.text), folded(line.prefix)))
        if alike is not None:
            said = alike.said.get(self._kind(alike, line))
            if said is not None and said.settled == self._state:
                self._again(said, line)
                return
        said = self._known.get((line.said, line.prefix, len(line.text)))
        fresh = said is None
        if said is None:
            said = self._read(line)
        elif said.settled == self._state:
            self._again(said, line)
            return
        if not said.matches:
            return
        if self._put_off:
            self.settle()
        if self._note(said, line, self._record, self._order, 1):
            self._state += 1
        else:
            said.settled = self._state
            if fresh:
                self._remember(line, said)
        self._order += said.places

    def _again(self, said: _Said, line: Line) -> None:
        """Put off what only changes where it was said last."""
        if not said.times:
            self._put_off.append(said)
        said.times += 1
        said.line, said.record, said.order = line, self._record, self._order
        self._order += said.places

    def _new_alike(self, line: Line) -> _Alike:
        text = line.text
        end = text.find(".cc:") + 10
        return _Alike(
            self._splitter is not None and self._splitter.named(line.prefix, text),
            slice(text.rfind(" ", 0, end - 10) + 1, end) if end > 9 else None,
            tuple(signature for signature in self._catalogue.candidates(text) if not signature.blind),
        )

    def _who(self, alike: _Alike, line: Line) -> tuple[str, str]:
        if self._splitter is None or not alike.named:
            return "", ""
        return self._splitter.who(line.prefix, line.text)

    def _kind(self, alike: _Alike, line: Line) -> tuple[object, ...]:
        found: tuple[object, ...] = ()
        if alike.sighted:
            matches = [self._catalogue.match(signature, line.text) for signature in alike.sighted]
            found = tuple(one and (one.start, *one.fields.items()) for one in matches)
        source = line.text[alike.source] if alike.source is not None else ""
        return (*self._who(alike, line), source, *found)

    def _remember(self, line: Line, said: _Said) -> None:
        """Remember what every line of this kind means, where that cannot depend on its digits."""
        if len(line.text) >= REMEMBERED or (
            line.prefix and self._catalogue.candidates(f"{line.prefix} ")  # what a new prefix says is sought
        ):
            return
        shape = folded(line.text), folded(line.prefix)
        alike = self._alike.get(shape) or self._new_alike(line)
        who = self._who(alike, line)
        matched = {signature.id: (fields, start) for signature, fields, start in said.matches}
        lasting = []
        for signature in self._catalogue.candidates(line.text):
            if self.log.spent(signature.id) and (
                self._splitter is None or self._splitter.spent(*who, signature.id)
            ):
                continue
            fields, start = matched.get(signature.id, ({}, 0))
            if start > FAR:
                return
            if signature.id == SOURCE_LINE:
                continue
            if any(_DIGIT.search(value) for value in fields.values()):
                return
            if signature.id in matched:
                lasting.append((signature, fields, start))
        if self._alike_said >= REMEMBERED:
            self._alike.clear()
            self._alike_said = 0
        self._alike[shape] = alike
        alike.said[self._kind(alike, line)] = _Said(tuple(lasting), self._state)
        self._alike_said += 1

    def settle(self) -> None:
        """Note what was put off, in the order in which it was said last."""
        for said in sorted(self._put_off, key=lambda said: said.order):
            if said.line is not None:
                self._note(said, said.line, said.record, said.order, said.times)
            said.times = 0
        self._put_off.clear()

    def _read(self, line: Line) -> _Said:
        matches = list(self._catalogue.matches(line.text))
        new = line.prefix and line.prefix not in self._prefixes
        if new:
            if len(self._prefixes) < PREFIXES:
                self._prefixes.add(line.prefix)
            matches += self._catalogue.matches(f"{line.prefix} ")
        said = _Said(tuple(_safe(match) for match in matches))
        if not new and len(line.said) < REMEMBERED:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[line.said, line.prefix, len(line.text)] = said
        return said

    def _heard(self, fields: dict[str, str], prefix: str) -> bool:
        """Whether a line of the source was named often enough before: what it tells is that it was."""
        key = fields["path"], fields["number"], prefix
        times = self._sources.get(key, 0)
        if times >= HEARD or (not times and len(self._sources) >= SOURCES):
            return True
        self._sources[key] = times + 1
        return False

    def _note(self, said: _Said, line: Line, record: int, order: int, times: int) -> bool:
        """Whether anything changed but where it was said last."""
        changed = False
        number = order
        for signature, fields, start in said.matches:
            if signature.id == SOURCE_LINE:  # has no place of its own in the order: it is not noted each time
                if self._heard(fields, line.prefix):
                    continue
                changed = True  # what is not yet heard out is noted each time
            else:
                number += 1
            text = clean_line(line.text[max(0, start - 160) :] if start > FAR else line.text)
            event = Event(signature, line.number, number, text, fields, record, line.prefix)
            changed |= self.log.add(event, times)
            if self._splitter is not None:
                changed |= self._splitter.add(event, times)
        return changed


def _safe(match: Match) -> tuple[Signature, dict[str, str], int]:
    fields = {name: clean_line(value, limit=4000) for name, value in match.fields.items()}
    return match.signature, fields, match.start
