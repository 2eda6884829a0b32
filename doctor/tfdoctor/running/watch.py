"""The verdict while a log still grows: judged again when something new that matters was said, and told once."""

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

KEPT_BYTES = 2 << 20
"""Bytes kept of the beginning, and again of the end, of what can matter."""
SETTLED = 1.0
"""Seconds after which a log that never pauses is judged anyway; one that pauses is judged at the pause."""
SHARE = 20
"""Judging again may take this part of the time: at most a twentieth."""


class Watch:
    """Passes a log's pieces on, and tells the verdict of what there is so far whenever it changes.

    What it tells is `diagnose_log` of the pieces in which anything known can stand, from the beginning and the end
    of the log; its line numbers are not the log's.
    """

    def __init__(self, compat: Compat, name: str, tell: Callable[[LogReport], None]) -> None:
        self._compat = compat
        self._name = name
        self._tell = tell
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._end = b""
        self._due_since = 0.0
        self._not_before = 0.0
        self._told: tuple[Cause, bool | None] = (Cause.INCONCLUSIVE, None)

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces, but the empty ones: those say that there is nothing new for a moment."""
        worth = load_signatures().worth
        for piece in pieces:
            now = time.monotonic()
            if piece:
                # A message may have begun in the piece before.
                if worth(self._end + piece):
                    self._keep(piece)
                    self._due_since = self._due_since or now
                self._end = piece[-200:]
                yield piece
            if (
                self._due_since
                and now >= self._not_before
                and (not piece or now - self._due_since >= SETTLED)
            ):
                self._judge(now)

    def _keep(self, piece: bytes) -> None:
        room = KEPT_BYTES - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        if piece:
            self._tail.append(piece[-KEPT_BYTES:])
            self._tail_size += len(self._tail[-1])
            while self._tail_size > KEPT_BYTES and len(self._tail) > 1:
                self._tail_size -= len(self._tail.popleft())

    def _judge(self, began: float) -> None:
        self._due_since = 0.0
        report = diagnose_log([bytes(self._head), *self._tail], self._compat, self._name)
        now = time.monotonic()
        self._not_before = now + SHARE * (now - began)
        verdict = (report.cause, report.gpu_registered)
        if verdict != self._told and report.cause is not Cause.INCONCLUSIVE:
            self._told = verdict
            self._tell(report)
