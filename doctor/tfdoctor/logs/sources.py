"""Which release wrote a log, by the lines of the source that its messages name: `gpu_device.cc:1663]`, and by those of
its own Python in tracebacks: `session.py", line 1334, in _do_call`.

Each such line is of the releases that compat/source_lines.json has for it, and all lines of one process are of one
release: what they share is the answer. A line of a known file that no release has, or lines that share none, are of
another build (a nightly, a vendor's, a patched one) or of several TensorFlows: then the lines name none.
"""

from __future__ import annotations

import datetime as dt
import re
from bisect import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.logs.events import Log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.logs.events import Event
    from tfdoctor.logs.signatures import Signature

__all__ = ["Told", "Writer", "by_writer", "of_its_time", "told"]

_STAMP = re.compile(
    r"(?P<date>20\d\d-[01]\d-[0-3]\d) \d\d:\d\d:\d\d\.\d{1,6}: [IWEF] |[IWEF]0000 00:00:(?P<seconds>1\d{9})\."
)
_SHARED = re.compile(r"external/(?:xla|tsl)/")
"""Sources that other frameworks have, too, at other lines; a file's name alone can be theirs as well."""
_SHOWN = 4
"""Lines that are given as evidence."""
_LEAST = 2
"""Different lines that each of several TensorFlows in one log must have said."""
_SURELY = 3
"""Different lines of one release that outweigh what else is of another time."""
_MOST = 3
"""TensorFlows in one log that are told apart by lines; more of them are chance."""


@dataclass(frozen=True, slots=True)
class Writer:
    """One TensorFlow that wrote a log, or a part of it."""

    releases: tuple[str, ...]
    """Those that have all of its lines, oldest first."""
    events: tuple[Event, ...]
    """The lines that say so: without any one of them there would be more releases."""
    lines: frozenset[tuple[str, str]]
    """Its different lines: file and number, as the log has them."""
    date: str | None
    """When it wrote the last of them, by its own stamps: `"2020-09-11"`; None where it has none."""


@dataclass(slots=True)
class _Lines:
    """Lines that can be of one release."""

    common: frozenset[str]
    said: list[tuple[Event, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class Told:
    """What the lines of a log tell."""

    writers: tuple[Writer, ...] = ()
    """The TensorFlows whose lines these are, in the order in which they begin: mostly one; none where that is not
    known."""
    foreign: Event | None = None
    """A line that no release has, or that has no release in common with the others: another build wrote this."""


def told(log: Log, compat: Compat) -> Told:
    """Whose lines these are."""
    table = compat.source_lines
    others = log.has("framework-jax")
    seen: set[tuple[str, str]] = set()
    parts: list[_Lines] = []
    last = 0
    for event in log.of("source-line"):
        key = path, number = event.get("path"), event.get("number")
        message = event.text.partition(f":{number}]")[2]
        if key in seen or message.lstrip().startswith("Check failed"):
            continue
        seen.add(key)
        shared = _SHARED.search(path) is not None or "tensorflow" not in path
        releases = table.at(path, int(number), message)
        if releases is None or (shared and (others or not releases)):
            continue
        if not releases:
            return Told((), event)
        for place in sorted(range(len(parts)), key=lambda place: place != last):
            if parts[place].common & releases:
                last = place
                break
        else:
            last = len(parts)
            parts.append(_Lines(releases, []))
        parts[last].common &= releases
        parts[last].said.append((event, releases))
    if len(parts) < 2:
        parts = _with_frames(parts, log, compat)
    if len(parts) > _MOST or (len(parts) > 1 and any(len(part.said) < _LEAST for part in parts)):
        return Told(
            (), min((event for part in parts for event, _ in part.said), key=lambda event: event.order)
        )
    return Told(tuple(_writer(part, table.releases) for part in parts))


def _with_frames(parts: list[_Lines], log: Log, compat: Compat) -> list[_Lines]:
    """The same, and what TensorFlow's own functions in tracebacks tell; what contradicts it, tells nothing: files can
    have been changed, and a traceback can be another one's."""
    frames = []
    for event in log.of("python-frame"):
        path = event.get("path") or event.get("shown")
        line, function = event.get("number") or event.get("at"), event.get("function") or event.get("name")
        releases = compat.functions.at(path, int(line), function)
        if releases:
            frames.append((event, releases))
    common = parts[0].common if parts else frozenset(compat.source_lines.releases)
    said = []
    for event, releases in frames:
        if common & releases:
            common &= releases
            said.append((event, releases))
        elif not parts:
            return parts  # of two TensorFlows
    if not said:
        return parts
    return [_Lines(common, [*(parts[0].said if parts else []), *said])]


def _writer(lines: _Lines, order: Sequence[str]) -> Writer:
    left = frozenset(order)
    telling: list[Event] = []
    while left != lines.common:
        event, releases = min(lines.said, key=lambda one: len(one[1] & left))
        left &= releases
        telling.append(event)
    return Writer(
        tuple(version for version in order if version in lines.common),
        tuple(sorted(telling, key=lambda event: event.order)[:_SHOWN]),
        frozenset(
            (event.get("path"), event.get("number")) for event, _ in lines.said if event.id == "source-line"
        ),
        max((date for event, _ in lines.said if (date := _date(event.text))), default=None),
    )


def _date(text: str) -> str | None:
    """The date of a message, by the stamp that TensorFlow or Abseil's logger puts before it."""
    found = _STAMP.search(text)
    if found is None:
        return None
    return (
        found["date"] or dt.datetime.fromtimestamp(int(found["seconds"]), dt.timezone.utc).date().isoformat()
    )


def of_its_time(log: Log, compat: Compat) -> Log:
    """The log without what a TensorFlow of another time said: a page that quotes an old session beside its own log.

    Only where enough lines name the release; else nothing is left out.
    """
    writers = told(log, compat).writers
    if len(writers) != 1 or len(writers[0].lines) < _SURELY:
        return log
    minors = [versions.numbers(version)[:2] for version in writers[0].releases]

    def other(signature: Signature) -> bool:
        first, last = signature.era or ("", "")
        return (bool(last) and min(minors) > versions.numbers(last)) or (
            bool(first) and max(minors) < versions.numbers(first)
        )

    kept = {name: events for name, events in log.events.items() if not other(events[0].signature)}
    return log if len(kept) == len(log.events) else Log(kept, log.counts, log.lines, log.bytes)


def by_writer(log: Log, writers: Sequence[Writer]) -> list[Log]:
    """The events of each of several TensorFlows: each belongs to the one that spoke last before it, the first to the
    first."""
    turns = sorted(
        (event.line, place)
        for event in log.of("source-line")
        for place, writer in enumerate(writers)
        if (event.get("path"), event.get("number")) in writer.lines
    )
    logs = [Log(lines=log.lines, bytes=log.bytes) for _ in writers]
    for event in log:
        turn = max(bisect(turns, (event.line, len(writers))) - 1, 0)
        logs[turns[turn][1]].events.setdefault(event.id, []).append(event)
    return logs
