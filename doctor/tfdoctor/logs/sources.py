"""Which release wrote a log, by the lines of the source that its messages name: `gpu_device.cc:1663]`, and by those of
its own Python in tracebacks: `session.py", line 1334, in _do_call`.

Each such line is of the releases that compat/source_lines.json has for it, and all lines of one process are of one
release: what they share is the answer. A line of a known file that no release has, or lines that share none, are of
another build (a nightly, a vendor's, a patched one) or of several TensorFlows: then the lines name none.
"""

from __future__ import annotations

import datetime as dt
import itertools
import keyword
import re
from bisect import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.logs.events import Log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.compat.source_lines import SourceLines
    from tfdoctor.logs.events import Event
    from tfdoctor.logs.signatures import Signature

__all__ = ["LogSources", "Writer", "drop_other_eras", "identify_sources", "split_by_writer"]

_STAMP = re.compile(
    r"(?P<date>20\d\d-[01]\d-[0-3]\d) \d\d:\d\d:\d\d\.\d{1,6}: [IWEF] |[IWEF]0000 00:00:(?P<seconds>1\d{9})\."
)
_SHARED = re.compile(r"external/(?:xla|tsl)/")
"""Sources that other frameworks have, too, at other lines; a file's name alone can be theirs as well."""
_OF_LINES = ("source-line", "python-frame", "python-frame-shown")
_MAX_EVIDENCE_LINES = 4
"""Lines that are given as evidence."""
_MIN_LINES_PER_WRITER = 2
"""Different lines that each of several TensorFlows in one log must have said."""
_SURELY = 3
"""Different lines of one release that outweigh what else is of another time."""
_MIN_SHARE = 0.8
"""How many of the lines of what was built between two releases are of one of them."""
_BELOW = 12
"""Lines below a function's name at most at which a notebook shows the line that ran."""
_MAX_WRITERS = 3
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
class _ReleaseLines:
    """Lines that can be of one release."""

    common: frozenset[str]
    said: list[tuple[Event, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class LogSources:
    """What the lines of a log tell."""

    writers: tuple[Writer, ...] = ()
    """The TensorFlows whose lines these are, in the order in which they begin: mostly one; none where that is not
    known."""
    foreign: Event | None = None
    """A line that no release has, or that has no release in common with the others: another build wrote this."""
    before: str | None = None
    """`"2.3"`: where the lines of another build are partly of this minor release and partly of the one before it. It
    was built between both, and what is built then has the later one's number."""


def identify_sources(log: Log, compat: Compat) -> LogSources:
    """Return whose lines these are."""
    if not log.has(*_OF_LINES):
        return LogSources()
    said, foreign = _attribute_lines(log, compat)
    if foreign is not None:
        return LogSources((), foreign, _find_later_release(said, compat))
    parts: list[_ReleaseLines] = []
    last = 0
    for event, releases in said:
        for place in sorted(range(len(parts)), key=lambda place: place != last):
            if parts[place].common & releases:
                last = place
                break
        else:
            last = len(parts)
            parts.append(_ReleaseLines(releases, []))
        parts[last].common &= releases
        parts[last].said.append((event, releases))
    if len(parts) < 2:
        parts = _with_frames(parts, log, compat)
    if len(parts) > _MAX_WRITERS or (
        len(parts) > 1 and any(len(part.said) < _MIN_LINES_PER_WRITER for part in parts)
    ):
        first = min((event for event, _ in said), key=lambda event: event.order)
        return LogSources((), first, _find_later_release(said, compat))
    return LogSources(tuple(_writer(part, compat.source_lines) for part in parts))


def _attribute_lines(log: Log, compat: Compat) -> tuple[list[tuple[Event, frozenset[str]]], Event | None]:
    """Return each line once with its releases, in the order of the log; and the first that no release has."""
    others = log.has("framework-jax")
    seen: set[tuple[str, str]] = set()
    found: list[tuple[Event, frozenset[str]]] = []
    foreign = None
    for event in log.list_events("source-line"):
        key = path, number = event.get("path"), event.get("number")
        message = event.text.partition(f":{number}]")[2]
        if key in seen or message.lstrip().startswith("Check failed"):
            continue
        seen.add(key)
        shared = _SHARED.search(path) is not None or "tensorflow" not in path
        releases = compat.source_lines.find_releases(path, int(number), message)
        if releases is None or (shared and (others or not releases)):
            continue
        if releases:
            found.append((event, releases))
        elif foreign is None:
            foreign = event
    return found, foreign


def _find_later_release(said: Sequence[tuple[Event, frozenset[str]]], compat: Compat) -> str | None:
    """Return the later of two minor releases, one after the other, whose lines these are: see `Told.before`."""
    having: dict[str, set[int]] = {}
    for number, (_, releases) in enumerate(said):
        for minor in {versions.major_minor(release) for release in releases}:
            having.setdefault(minor, set()).add(number)
    minors = list(dict.fromkeys(row.minor for row in compat.gpu_releases))
    fitting = []
    for earlier, later in itertools.pairwise(minors):
        before, after = having.get(earlier, set()), having.get(later, set())
        if (
            before - after
            and len(after - before) >= _MIN_LINES_PER_WRITER
            and len(before | after) >= _MIN_SHARE * len(said)
        ):
            fitting.append(later)
    return fitting[0] if len(fitting) == 1 else None


def _with_frames(parts: list[_ReleaseLines], log: Log, compat: Compat) -> list[_ReleaseLines]:
    """Return the same, and what TensorFlow's own functions in tracebacks tell.

    What contradicts it, tells nothing: files can have been changed, and a traceback can be another one's.
    """
    unpublished = compat.source_lines.unpublished
    frames = []
    for event, path, line, function in _frames(log):
        releases = compat.functions.find_releases(path, line, function)
        if releases:
            frames.append((event, releases | {one.version for one in unpublished if one.like in releases}))
    everything = frozenset([*compat.source_lines.releases, *(one.version for one in unpublished)])
    common = parts[0].common if parts else everything
    said = []
    for event, releases in frames:
        if common & releases:
            common &= releases
            said.append((event, releases))
        elif not parts:
            return parts  # of two TensorFlows
    if not said:
        return parts
    return [_ReleaseLines(common, [*(parts[0].said if parts else []), *said])]


def _frames(log: Log) -> Iterator[tuple[Event, str, int, str]]:
    """Yield each frame of a traceback with its path, line and function."""
    for event in log.list_events("python-frame"):
        function = event.get("function") or event.get("name")
        if not function or keyword.iskeyword(function):
            function = "<module>"  # read as a tag of HTML and gone: the next line's first word stands there
        yield (
            event,
            event.get("path") or event.get("shown"),
            int(event.get("number") or event.get("at")),
            function,
        )
    shown = None
    for event in log.list_events("python-frame-shown", "python-arrow"):
        if event.id == "python-frame-shown":
            shown = event
        elif shown is not None and event.line - shown.line <= _BELOW:
            yield event, shown.get("path"), int(event.get("number")), shown.get("function").rstrip("(")
            shown = None


def _writer(lines: _ReleaseLines, table: SourceLines) -> Writer:
    date = max((date for event, _ in lines.said if (date := _date(event.text))), default=None)
    of_then = {one.version for one in table.unpublished if one.first <= (date or "") <= one.last}
    known = frozenset(table.releases) | of_then
    if not lines.common & known:
        known |= lines.common
    common = lines.common & known
    left = known
    telling: list[Event] = []
    while left != common:
        event, releases = min(lines.said, key=lambda one: len(one[1] & left))
        left &= releases
        telling.append(event)
    order = (*table.releases, *(one.version for one in table.unpublished))
    return Writer(
        tuple(version for version in order if version in common),
        tuple(sorted(telling, key=lambda event: event.order)[:_MAX_EVIDENCE_LINES]),
        frozenset(
            (event.get("path"), event.get("number")) for event, _ in lines.said if event.id == "source-line"
        ),
        date,
    )


def _date(text: str) -> str | None:
    """Return the date of a message, by the stamp that TensorFlow or Abseil's logger puts before it."""
    found = _STAMP.search(text)
    if found is None:
        return None
    return (
        found["date"] or dt.datetime.fromtimestamp(int(found["seconds"]), dt.timezone.utc).date().isoformat()
    )


def drop_other_eras(log: Log, compat: Compat) -> Log:
    """Return the log without what a TensorFlow of another time said: a page that quotes an old session beside its own
    log.

    Only where enough lines name the release; else nothing is left out.
    """
    if len(log.list_events("source-line")) < _SURELY:
        return log
    writers = identify_sources(log, compat).writers
    if len(writers) != 1 or len(writers[0].lines) < _SURELY:
        return log
    minors = [versions.numbers(version)[:2] for version in writers[0].releases]

    def is_other_era(signature: Signature) -> bool:
        first, last = signature.era or ("", "")
        return (bool(last) and min(minors) > versions.numbers(last)) or (
            bool(first) and max(minors) < versions.numbers(first)
        )

    kept = {name: events for name, events in log.events.items() if not is_other_era(events[0].signature)}
    return log if len(kept) == len(log.events) else Log(kept, log.counts, log.lines, log.bytes)


def split_by_writer(log: Log, writers: Sequence[Writer]) -> list[Log]:
    """Return the events of each of several TensorFlows: each belongs to the one that spoke last before it, the first
    to the first.
    """
    turns = sorted(
        (event.line, place)
        for event in log.list_events("source-line")
        for place, writer in enumerate(writers)
        if (event.get("path"), event.get("number")) in writer.lines
    )
    logs = [Log(lines=log.lines, bytes=log.bytes) for _ in writers]
    for event in log:
        turn = max(bisect(turns, (event.line, len(writers))) - 1, 0)
        logs[turns[turn][1]].events.setdefault(event.id, []).append(event)
    return logs
