"""Everything that is read from a log, for comparing two ways of reading it."""

from __future__ import annotations

from tfdoctor.logs.processes import ProcessSplitter
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures

CATALOGUE = load_signatures()


def collect_results(data: bytes, *, each: bool = False) -> list[object]:
    """Return the counts, the events and the processes of a log."""
    splitter = ProcessSplitter()
    log = scan([data], CATALOGUE, splitter, without_cache=each)
    parts = splitter.list_parts(log)
    return [
        log.event_counts,
        list(log),
        splitter.extra_process_count,
        [
            (part.label, part.run, part.first_line, part.event_count, part.log.event_counts, list(part.log))
            for part in parts
        ],
    ]
