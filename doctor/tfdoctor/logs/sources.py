"""Find the release that wrote a log from the TensorFlow source lines that it names.

Messages name source lines as `gpu_device.cc:1663]`, tracebacks as `session.py", line 1334, in _do_call`.
compat/source_lines.json lists the releases that have each line. All lines of one process come from one release,
so that release is among those that have every line. If no release has them all, the release is unknown: another
build (a nightly, a vendor's or a patched one) or several TensorFlows wrote the log.
"""

from __future__ import annotations

import datetime as dt
import itertools
import keyword
import re
from bisect import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.logs.events import Log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.compat.source_lines import SourceLines
    from tfdoctor.logs.events import Event
    from tfdoctor.logs.signatures import Signature

__all__ = ["LogSources", "Writer", "drop_other_eras", "identify_sources", "split_by_writer"]

_TIMESTAMP = re.compile(
    r"(?P<date>20\d\d-[01]\d-[0-3]\d) \d\d:\d\d:\d\d\.\d{1,6}: [IWEF] |[IWEF]0000 00:00:(?P<seconds>1\d{9})\."
)
_SHARED_FOLDER = re.compile(r"external/(?:xla|tsl)/")
"""Source folders that other frameworks also contain, with different line numbers."""
_LINE_SIGNATURES = ("source-line", "python-frame", "python-frame-shown")
_MAX_EVIDENCE_LINES = 4
"""The maximum number of lines that are shown as evidence for one writer."""
_MIN_LINES_PER_WRITER = 2
"""The number of different lines that each TensorFlow needs so that several can be distinguished."""
_MIN_ERA_LINES = 3
"""The number of different lines of one release that outweigh messages of another era."""
_MIN_SHARE = 0.8
"""The share of the lines that two adjacent releases must have together so that a build between them is assumed."""
_MAX_ARROW_LINES = 12
"""The maximum number of lines between a function name and the arrow with which a notebook marks the current line."""
_MAX_WRITERS = 3
"""The maximum number of TensorFlows that source lines can distinguish. A larger number is a coincidence."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A TensorFlow that wrote a log or a part of it."""

    releases: tuple[str, ...]
    """The releases that have all of its lines, oldest first."""
    events: tuple[Event, ...]
    """The lines that narrow the candidates down to `releases`, at most _MAX_EVIDENCE_LINES."""
    source_lines: frozenset[tuple[str, str]]
    """Its different source lines: (file, line number) as in the log."""
    last_date: str | None
    """The date of its last line, such as "2020-09-11", or None if no line has a timestamp."""


@dataclass(slots=True)
class _AttributedLines:
    """Source lines that share at least one release."""

    common_releases: frozenset[str]
    """The releases that have all of the lines."""
    lines: list[tuple[Event, frozenset[str]]]
    """(event, releases that have the line)."""


@dataclass(frozen=True, slots=True)
class LogSources:
    """The result of looking up the source lines of a log."""

    writers: tuple[Writer, ...] = ()
    """The TensorFlows that wrote the lines, in the order of their first lines, or an empty tuple if unknown."""
    unmatched_line: Event | None = None
    """A line that shows that another build wrote the log, or None if there is none.

    It is a line that no release has, or the first source line if up to three releases do not have them all.
    """
    next_minor: str | None = None
    """The minor release that the other build preceded, such as "2.3", or None if unknown.

    The lines of this build are split between two adjacent minor releases, and it has the number of the later one.
    """


def identify_sources(log: Log, compat: Compat) -> LogSources:
    """Return the TensorFlows whose source lines appear in the log."""
    if not log.has(*_LINE_SIGNATURES):
        return LogSources()
    attributed, unmatched = _attribute_lines(log, compat)
    if unmatched is not None:
        return LogSources((), unmatched, _find_later_release(attributed, compat))
    parts: list[_AttributedLines] = []
    index_of_part = 0
    for event, releases in attributed:
        # try the part of the previous line first
        for candidate_index in sorted(
            range(len(parts)), key=lambda candidate_index: candidate_index != index_of_part
        ):
            if parts[candidate_index].common_releases & releases:
                index_of_part = candidate_index
                break
        else:
            index_of_part = len(parts)
            parts.append(_AttributedLines(releases, []))
        parts[index_of_part].common_releases &= releases
        parts[index_of_part].lines.append((event, releases))
    if len(parts) < 2:
        parts = _add_traceback_frames(parts, log, compat)
    if len(parts) > _MAX_WRITERS or (
        len(parts) > 1 and any(len(part.lines) < _MIN_LINES_PER_WRITER for part in parts)
    ):
        first_event = min((event for event, _ in attributed), key=lambda event: event.order)
        return LogSources((), first_event, _find_later_release(attributed, compat))
    return LogSources(tuple(_make_writer(part, compat.source_lines) for part in parts))


def _attribute_lines(log: Log, compat: Compat) -> tuple[list[tuple[Event, frozenset[str]]], Event | None]:
    """Return (source lines with their releases, the first line that belongs to no release).

    Each source line is included once, in log order. The second value is None if every line belongs to a release.
    """
    has_jax = log.has("framework-jax")
    known_lines: set[tuple[str, str]] = set()
    attributed: list[tuple[Event, frozenset[str]]] = []
    unmatched = None
    for event in log.list_events("source-line"):
        key = path, number = event.get("path"), event.get("number")
        message = event.text.partition(f":{number}]")[2]
        if key in known_lines or message.lstrip().startswith("Check failed"):
            continue
        known_lines.add(key)
        is_shared = _SHARED_FOLDER.search(path) is not None or "tensorflow" not in path
        releases = compat.source_lines.find_releases(path, int(number), message)
        if releases is None or (is_shared and (has_jax or not releases)):
            continue
        if releases:
            attributed.append((event, releases))
        elif unmatched is None:
            unmatched = event
    return attributed, unmatched


def _find_later_release(attributed: Sequence[tuple[Event, frozenset[str]]], compat: Compat) -> str | None:
    """Return the later of the two adjacent minor releases between which these lines are split.

    Return None unless exactly one pair of releases fits (see `LogSources.next_minor`).
    """
    lines_by_minor: dict[str, set[int]] = {}
    for index, (_, releases) in enumerate(attributed):
        for minor in {versions.major_minor(release) for release in releases}:
            lines_by_minor.setdefault(minor, set()).add(index)
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


def _add_traceback_frames(parts: list[_AttributedLines], log: Log, compat: Compat) -> list[_AttributedLines]:
    """Return the parts with the traceback frames of TensorFlow functions added.

    Frames that contradict the source lines are dropped, because files can be patched, and a traceback can come
    from another TensorFlow. If there are no source lines, and the frames contradict each other, none is used.
    """
    unpublished_builds = compat.source_lines.unmeasured_builds
    frames = []
    for event, path, line, function in _iter_frames(log):
        releases = compat.functions.find_releases(path, line, function)
        if releases:
            frames.append(
                (
                    event,
                    releases
                    | {build.version for build in unpublished_builds if build.base_release in releases},
                )
            )
    all_releases = frozenset(
        [*compat.source_lines.releases, *(build.version for build in unpublished_builds)]
    )
    common_releases = parts[0].common_releases if parts else all_releases
    matching_frames = []
    for event, releases in frames:
        if common_releases & releases:
            common_releases &= releases
            matching_frames.append((event, releases))
        elif not parts:
            return parts  # the frames come from two TensorFlows
    if not matching_frames:
        return parts
    return [_AttributedLines(common_releases, [*(parts[0].lines if parts else []), *matching_frames])]


def _iter_frames(log: Log) -> Iterator[tuple[Event, str, int, str]]:
    """Yield (event, path, line number, function) for each traceback frame."""
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


def _make_writer(attributed: _AttributedLines, table: SourceLines) -> Writer:
    """Return the writer of these lines, with a few lines that suffice to determine its releases."""
    date = max((date for event, _ in attributed.lines if (date := _parse_date(event.text))), default=None)
    unpublished_versions = {
        build.version
        for build in table.unmeasured_builds
        if build.first_date <= (date or "") <= build.last_date
    }
    candidate_versions = frozenset(table.releases) | unpublished_versions
    if not attributed.common_releases & candidate_versions:  # only unpublished builds of another time fit
        candidate_versions |= attributed.common_releases
    common_releases = attributed.common_releases & candidate_versions
    # greedy: the next line of the evidence is the one that excludes the most releases
    remaining_versions = candidate_versions
    evidence: list[Event] = []
    while remaining_versions != common_releases:
        event, releases = min(
            attributed.lines, key=lambda event_and_releases: len(event_and_releases[1] & remaining_versions)
        )
        remaining_versions &= releases
        evidence.append(event)
    version_order = (*table.releases, *(build.version for build in table.unmeasured_builds))
    return Writer(
        releases=tuple(version for version in version_order if version in common_releases),
        events=tuple(sorted(evidence, key=lambda event: event.order)[:_MAX_EVIDENCE_LINES]),
        source_lines=frozenset(
            (event.get("path"), event.get("number"))
            for event, _ in attributed.lines
            if event.id == "source-line"
        ),
        last_date=date,
    )


def _parse_date(text: str) -> str | None:
    """Return the date in the timestamp before a TensorFlow or Abseil message, or None if there is none."""
    match = _TIMESTAMP.search(text)
    if match is None:
        return None
    return (
        match["date"] or dt.datetime.fromtimestamp(int(match["seconds"]), dt.timezone.utc).date().isoformat()
    )


def drop_other_eras(log: Log, compat: Compat) -> Log:
    """Return the log without messages of releases from another era, such as a quoted old session.

    The era is that of the release whose source lines the log has. If they are too few, the log is returned unchanged.
    """
    if len(log.list_events("source-line")) < _MIN_ERA_LINES:
        return log
    writers = identify_sources(log, compat).writers
    if len(writers) != 1 or len(writers[0].source_lines) < _MIN_ERA_LINES:
        return log
    minors = [versions.parse_numbers(version)[:2] for version in writers[0].releases]

    def is_other_era(signature: Signature) -> bool:
        first, last = signature.era or ("", "")
        return (bool(last) and min(minors) > versions.parse_numbers(last)) or (
            bool(first) and max(minors) < versions.parse_numbers(first)
        )

    remaining_events = {
        signature_id: events
        for signature_id, events in log.events.items()
        if not is_other_era(events[0].signature)
    }
    return (
        log
        if len(remaining_events) == len(log.events)
        else Log(remaining_events, log.event_counts, log.line_count, log.byte_count)
    )


def split_by_writer(log: Log, writers: Sequence[Writer]) -> list[Log]:
    """Return one log for each writer, with its events.

    An event belongs to the writer of the last source line before it. Events before the first source line belong
    to the writer of that line.
    """
    writer_starts = sorted(
        (event.line, writer_index)
        for event in log.list_events("source-line")
        for writer_index, writer in enumerate(writers)
        if (event.get("path"), event.get("number")) in writer.source_lines
    )
    logs = [Log(line_count=log.line_count, byte_count=log.byte_count) for _ in writers]
    for event in log:
        # len(writers) is greater than every index, so the lines up to and including the event's own are found
        start_index = max(bisect(writer_starts, (event.line, len(writers))) - 1, 0)
        _, writer_index = writer_starts[start_index]
        logs[writer_index].events.setdefault(event.id, []).append(event)
    return logs
