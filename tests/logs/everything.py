"""Everything that is read from a log, for comparing two ways of reading it."""

from __future__ import annotations

from tfdoctor.logs.processes import Splitter
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures

CATALOGUE = load_signatures()


def collect_results(data: bytes, *, each: bool = False) -> list[object]:
    """Return the counts, the events and the processes of a log."""
    splitter = Splitter()
    log = scan([data], CATALOGUE, splitter, each=each)
    parts = splitter.parts(log)
    return [
        log.counts,
        list(log),
        splitter.more,
        [(part.label, part.run, part.first, part.kept, part.log.counts, list(part.log)) for part in parts],
    ]
