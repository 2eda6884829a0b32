"""Repeated diagnosis of a growing log. A verdict is reported once."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from tfdoctor.findings import Cause
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.logs.signatures import load_signatures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tfdoctor.compat import Compat

__all__ = ["Watch"]

MAX_KEPT_BYTES = 2 << 20
"""Bytes kept from the beginning, and again from the end, of the relevant parts of the log."""
MAX_DELAY_S = 1.0
"""Seconds after which a log that never pauses is diagnosed; a log that pauses is diagnosed at the pause."""
MIN_IDLE_RATIO = 20
"""The diagnosis may take at most one part in this many of the time."""


class Watch:
    """Iterator filter that passes a log's pieces on and reports the verdict so far whenever it changes.

    The report is `diagnose_log` of the pieces that may contain known messages, from the beginning and the end of the
    log. Its line numbers are not those of the log.
    """

    def __init__(self, compat: Compat, name: str, tell: Callable[[LogReport], None]) -> None:
        self._compat = compat
        self._name = name
        self._report = tell
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._end = b""
        self._due_since = 0.0
        self._not_before = 0.0
        self._reported: tuple[Cause, bool | None] = (Cause.INCONCLUSIVE, None)

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces, except the empty ones, which mean that there is nothing new for a moment."""
        is_relevant = load_signatures().can_match_block
        for piece in pieces:
            now = time.monotonic()
            if piece:
                # A message may have begun in the previous piece.
                if is_relevant(self._end + piece):
                    self._store_piece(piece)
                    self._due_since = self._due_since or now
                self._end = piece[-200:]
                yield piece
            if (
                self._due_since
                and now >= self._not_before
                and (not piece or now - self._due_since >= MAX_DELAY_S)
            ):
                self._diagnose(now)

    def _store_piece(self, piece: bytes) -> None:
        free = MAX_KEPT_BYTES - len(self._head)
        if free > 0:
            self._head += piece[:free]
            piece = piece[free:]
        if piece:
            self._tail.append(piece[-MAX_KEPT_BYTES:])
            self._tail_size += len(self._tail[-1])
            while self._tail_size > MAX_KEPT_BYTES and len(self._tail) > 1:
                self._tail_size -= len(self._tail.popleft())

    def _diagnose(self, started: float) -> None:
        self._due_since = 0.0
        report = diagnose_log([bytes(self._head), *self._tail], self._compat, self._name)
        now = time.monotonic()
        self._not_before = now + MIN_IDLE_RATIO * (now - started)
        verdict = (report.cause, report.gpu_registered)
        if verdict != self._reported and report.cause is not Cause.INCONCLUSIVE:
            self._reported = verdict
            self._report(report)
