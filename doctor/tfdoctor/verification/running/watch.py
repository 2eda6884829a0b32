"""Diagnose a growing log repeatedly, and report each change of the verdict."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.logs.signatures import load_signatures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tfdoctor.compat import Compat

__all__ = ["LogWatcher"]

MAX_KEPT_BYTES = 2 << 20
"""The maximum number of bytes that are stored of the beginning, and of the end, of the relevant pieces."""
MAX_DELAY_S = 1.0
"""The seconds after which new data are diagnosed if the log has no pause. At a pause they are diagnosed at once."""
MIN_IDLE_RATIO = 20
"""The minimum ratio of the time until the next diagnosis to the time that the last diagnosis took."""


class LogWatcher:
    """Forwards the pieces of a log, and reports the verdict whenever it changes.

    Only pieces that may contain known messages are diagnosed. If there are many, only the first and the last count. The
    line numbers in the report are therefore not those of the log.
    """

    def __init__(self, compat: Compat, name: str, on_change: Callable[[LogReport], None]) -> None:
        self._compat = compat
        self._name = name
        self._on_change = on_change
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._last_bytes = b""
        """The end of the last piece. A message may start in it."""
        self._due_since = 0.0
        """The time since which data wait for a diagnosis, or 0 if none do."""
        self._next_diagnosis_at = 0.0
        self._reported_verdict: tuple[Cause, bool | None] = (Cause.INCONCLUSIVE, None)

    def forward_pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces except empty ones. An empty piece is a pause: there are no new data at the moment."""
        is_relevant = load_signatures().can_match_block
        for piece in pieces:
            now = time.monotonic()
            if piece:
                if is_relevant(self._last_bytes + piece):
                    self._store_piece(piece)
                    self._due_since = self._due_since or now
                self._last_bytes = piece[-200:]
                yield piece
            if (
                self._due_since
                and now >= self._next_diagnosis_at
                and (not piece or now - self._due_since >= MAX_DELAY_S)
            ):
                self._diagnose(now)

    def _store_piece(self, piece: bytes) -> None:
        """Append a piece to the stored beginning, or to the stored end of the log if the beginning is full."""
        free = MAX_KEPT_BYTES - len(self._head)
        if free > 0:
            self._head += piece[:free]
            piece = piece[free:]
        if piece:
            self._tail.append(piece[-MAX_KEPT_BYTES:])
            self._tail_size += len(self._tail[-1])
            while self._tail_size > MAX_KEPT_BYTES and len(self._tail) > 1:
                self._tail_size -= len(self._tail.popleft())

    def _diagnose(self, start_time: float) -> None:
        self._due_since = 0.0
        report = diagnose_log([bytes(self._head), *self._tail], self._compat, self._name)
        now = time.monotonic()
        self._next_diagnosis_at = now + MIN_IDLE_RATIO * (now - start_time)
        verdict = (report.cause, report.gpu_registered)
        if verdict != self._reported_verdict and report.cause is not Cause.INCONCLUSIVE:
            self._reported_verdict = verdict
            self._on_change(report)
