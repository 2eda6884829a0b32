"""The release that wrote a log, by the TensorFlow source lines that it names.

Messages name them as `gpu_device.cc:1663]`, tracebacks as `session.py", line 1334, in _do_call`.
compat/source_lines.json lists the releases that have each line. All lines of one process belong to one
release: the releases that they share are the answer. A line of a known file that no release has, or lines
that share no release, mean another build (a nightly, a vendor's, a patched one) or several TensorFlows: then
the lines name no release.
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
"""Source folders that other frameworks have too, with other line numbers."""
_LINE_SIGNATURES = ("source-line", "python-frame", "python-frame-shown")
_MAX_EVIDENCE_LINES = 4
"""Lines given as evidence."""
_MIN_LINES_PER_WRITER = 2
"""Different lines required of each TensorFlow to tell several apart."""
_MIN_ERA_LINES = 3
"""Different lines of one release that outweigh messages of another era."""
_MIN_SHARE = 0.8
"""Share of the lines that must belong to one of two releases if a build lies between them."""
_MAX_ARROW_LINES = 12
"""Lines below the name of a function within which a notebook marks the line that ran."""
_MAX_WRITERS = 3
"""TensorFlows in one log that lines can tell apart; more are a coincidence."""


@dataclass(frozen=True, slots=True)
class Writer:
    """One TensorFlow that wrote a log, or a part of it."""

    releases: tuple[str, ...]
    """The releases that have all of its lines, oldest first."""
    events: tuple[Event, ...]
    """The lines that prove it: without any one of them, more releases would match."""
    lines: frozenset[tuple[str, str]]
    """Its different lines, (file, number) as in the log."""
    date: str | None
    """The date of its last line: `"2020-09-11"`; None if the lines have no timestamps."""


@dataclass(slots=True)
class _ReleaseLines:
    """Lines that share at least one release."""

    common: frozenset[str]
    lines: list[tuple[Event, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class LogSources:
    """The result of looking up the source lines of a log."""

    writers: tuple[Writer, ...] = ()
    """The TensorFlows that wrote the lines, in the order of their first line; empty if unknown."""
    foreign: Event | None = None
    """A line that no release has, or that shares no release with the others; None if there is none."""
    next_minor: str | None = None
    """The later of two adjacent minor releases that the lines of another build are split between: `"2.3"`.

    Such a build was made between the two and has the number of the later. None if unknown.
    """


def identify_sources(log: Log, compat: Compat) -> LogSources:
    """Return the TensorFlows whose source lines the log has."""
    if not log.has(*_LINE_SIGNATURES):
        return LogSources()
    attributed, foreign = _attribute_lines(log, compat)
    if foreign is not None:
        return LogSources((), foreign, _find_later_release(attributed, compat))
    parts: list[_ReleaseLines] = []
    last = 0
    for event, releases in attributed:
        for index in sorted(range(len(parts)), key=lambda index: index != last):
            if parts[index].common & releases:
                last = index
                break
        else:
            last = len(parts)
            parts.append(_ReleaseLines(releases, []))
        parts[last].common &= releases
        parts[last].lines.append((event, releases))
    if len(parts) < 2:
        parts = _add_frames(parts, log, compat)
    if len(parts) > _MAX_WRITERS or (
        len(parts) > 1 and any(len(part.lines) < _MIN_LINES_PER_WRITER for part in parts)
    ):
        first = min((event for event, _ in attributed), key=lambda event: event.order)
        return LogSources((), first, _find_later_release(attributed, compat))
    return LogSources(tuple(_make_writer(part, compat.source_lines) for part in parts))


def _attribute_lines(log: Log, compat: Compat) -> tuple[list[tuple[Event, frozenset[str]]], Event | None]:
    """Return each source line once with its releases, in the order of the log, and the first that no release has."""
    has_jax = log.has("framework-jax")
    seen: set[tuple[str, str]] = set()
    attributed: list[tuple[Event, frozenset[str]]] = []
    foreign = None
    for event in log.list_events("source-line"):
        key = path, number = event.get("path"), event.get("number")
        message = event.text.partition(f":{number}]")[2]
        if key in seen or message.lstrip().startswith("Check failed"):
            continue
        seen.add(key)
        is_shared = _SHARED.search(path) is not None or "tensorflow" not in path
        releases = compat.source_lines.find_releases(path, int(number), message)
        if releases is None or (is_shared and (has_jax or not releases)):
            continue
        if releases:
            attributed.append((event, releases))
        elif foreign is None:
            foreign = event
    return attributed, foreign


def _find_later_release(attributed: Sequence[tuple[Event, frozenset[str]]], compat: Compat) -> str | None:
    """Return the later of two adjacent minor releases that have these lines between them: see `LogSources.before`."""
    lines_by_minor: dict[str, set[int]] = {}
    for number, (_, releases) in enumerate(attributed):
        for minor in {versions.major_minor(release) for release in releases}:
            lines_by_minor.setdefault(minor, set()).add(number)
    minors = list(dict.fromkeys(gpu_release.minor for gpu_release in compat.gpu_releases))
    matches = []
    for earlier, later in itertools.pairwise(minors):
        earlier_lines, later_lines = lines_by_minor.get(earlier, set()), lines_by_minor.get(later, set())
        if (
            earlier_lines - later_lines
            and len(later_lines - earlier_lines) >= _MIN_LINES_PER_WRITER
            and len(earlier_lines | later_lines) >= _MIN_SHARE * len(attributed)
        ):
            matches.append(later)
    return matches[0] if len(matches) == 1 else None


def _add_frames(parts: list[_ReleaseLines], log: Log, compat: Compat) -> list[_ReleaseLines]:
    """Return the parts with the frames of TensorFlow's own functions in tracebacks added.

    Frames that contradict the lines are dropped: files can be patched, and a traceback can come from another
    TensorFlow.
    """
    unpublished = compat.source_lines.unpublished
    frames = []
    for event, path, line, function in _iter_frames(log):
        releases = compat.functions.find_releases(path, line, function)
        if releases:
            frames.append(
                (event, releases | {build.version for build in unpublished if build.like in releases})
            )
    all_releases = frozenset([*compat.source_lines.releases, *(build.version for build in unpublished)])
    common = parts[0].common if parts else all_releases
    matching = []
    for event, releases in frames:
        if common & releases:
            common &= releases
            matching.append((event, releases))
        elif not parts:
            return parts  # the frames come from two TensorFlows
    if not matching:
        return parts
    return [_ReleaseLines(common, [*(parts[0].lines if parts else []), *matching])]


def _iter_frames(log: Log) -> Iterator[tuple[Event, str, int, str]]:
    """Yield each frame of a traceback with its path, line number and function."""
    for event in log.list_events("python-frame"):
        function = event.get("function") or event.get("name")
        if not function or keyword.iskeyword(function):
            # the tag filter removed `<module>`, and the first word of the next line was captured instead
            function = "<module>"
        yield (
            event,
            event.get("path") or event.get("shown"),
            int(event.get("number") or event.get("at")),
            function,
        )
    header = None
    for event in log.list_events("python-frame-shown", "python-arrow"):
        if event.id == "python-frame-shown":
            header = event
        elif header is not None and event.line - header.line <= _MAX_ARROW_LINES:
            yield event, header.get("path"), int(event.get("number")), header.get("function").rstrip("(")
            header = None


def _make_writer(lines: _ReleaseLines, table: SourceLines) -> Writer:
    """Return the writer of these lines, with the fewest lines that prove its releases."""
    date = max((date for event, _ in lines.lines if (date := _parse_date(event.text))), default=None)
    unpublished = {entry.version for entry in table.unpublished if entry.first <= (date or "") <= entry.last}
    candidates = frozenset(table.releases) | unpublished
    if not lines.common & candidates:
        candidates |= lines.common
    common = lines.common & candidates
    remaining = candidates
    evidence: list[Event] = []
    while remaining != common:
        event, releases = min(lines.lines, key=lambda entry: len(entry[1] & remaining))
        remaining &= releases
        evidence.append(event)
    order = (*table.releases, *(entry.version for entry in table.unpublished))
    return Writer(
        tuple(version for version in order if version in common),
        tuple(sorted(evidence, key=lambda event: event.order)[:_MAX_EVIDENCE_LINES]),
        frozenset(
            (event.get("path"), event.get("number")) for event, _ in lines.lines if event.id == "source-line"
        ),
        date,
    )


def _parse_date(text: str) -> str | None:
    """Return the date in the timestamp of TensorFlow or Abseil before a message; None if it has none."""
    match = _STAMP.search(text)
    if match is None:
        return None
    return (
        match["date"] or dt.datetime.fromtimestamp(int(match["seconds"]), dt.timezone.utc).date().isoformat()
    )


def drop_other_eras(log: Log, compat: Compat) -> Log:
    """Return the log without messages of a TensorFlow of another era, such as a quoted old session.

    Return it unchanged if too few lines name the release.
    """
    if len(log.list_events("source-line")) < _MIN_ERA_LINES:
        return log
    writers = identify_sources(log, compat).writers
    if len(writers) != 1 or len(writers[0].lines) < _MIN_ERA_LINES:
        return log
    minors = [versions.numbers(version)[:2] for version in writers[0].releases]

    def is_other_era(signature: Signature) -> bool:
        first, last = signature.era or ("", "")
        return (bool(last) and min(minors) > versions.numbers(last)) or (
            bool(first) and max(minors) < versions.numbers(first)
        )

    events_kept = {
        name: events for name, events in log.events.items() if not is_other_era(events[0].signature)
    }
    return log if len(events_kept) == len(log.events) else Log(events_kept, log.counts, log.lines, log.bytes)


def split_by_writer(log: Log, writers: Sequence[Writer]) -> list[Log]:
    """Return the events of each writer.

    An event belongs to the writer of the last source line up to it; those before the first line belong to its
    writer.
    """
    turns = sorted(
        (event.line, index)
        for event in log.list_events("source-line")
        for index, writer in enumerate(writers)
        if (event.get("path"), event.get("number")) in writer.lines
    )
    logs = [Log(lines=log.lines, bytes=log.bytes) for _ in writers]
    for event in log:
        turn = max(bisect(turns, (event.line, len(writers))) - 1, 0)
        logs[turns[turn][1]].events.setdefault(event.id, []).append(event)
    return logs
