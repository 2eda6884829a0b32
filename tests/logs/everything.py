"""All that is kept of a log, to be compared however it was read."""

from __future__ import annotations

from tfdoctor.logs.processes import Splitter
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures

CATALOGUE = load_signatures()


def keep_outcome(data: bytes, *, each: bool = False) -> list[object]:
    """Of the whole, of each process, how often each message was said."""
    splitter = Splitter()
    log = scan([data], CATALOGUE, splitter, each=each)
    parts = splitter.parts(log)
    return [
        log.counts,
        list(log),
        splitter.more,
        [(part.label, part.run, part.first, part.kept, part.log.counts, list(part.log)) for part in parts],
    ]
