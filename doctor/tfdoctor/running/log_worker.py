"""Another process that reads what a program prints, so that whoever passes it on never waits for it. POSIX."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import select
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.logs.report import LogReport
    from tfdoctor.placement import Placement

__all__ = ["Analyst", "LogAnswer"]

CHUNK_BYTES = 1 << 20
IN_THE_PIPE = 1 << 18
"""Bytes that are given to the analyst ahead of what it does."""
PLENTY = 16 << 20
"""Bytes that wait to be read; of more, the oldest are not read."""
OUR_LINE = re.compile(rb"I [\w/]{0,60}tsl/platform/default/dso_loader\.cc")
"""What TensorFlow logs since 2.12 because of SHOW_LOADER; before, it logs such lines anyway."""
FEEDING = 3.0
"""Seconds after the program's end in which what still waits is read; then only the end of it is."""
THE_END = 1 << 18
"""Bytes of that end: why a program failed stands in its last lines."""
ANSWER_TIMEOUT_S = 15.0
"""Seconds that the answer may take after the program has ended."""
MAX_PARTIAL_BYTES = 1 << 16
"""Bytes of an unfinished line that are held back until its end."""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """What the analyst found."""

    report: LogReport
    known: bool
    """Whether anything that is known was in the output."""
    loader_seen: bool
    """Whether lines were that TensorFlow logs at our wish alone."""
    placement: Placement | None = None
    """Where operations went, where that was asked."""


class Analyst:
    """Another process that reads the program's output: the one that passes it on never waits for it.

    Its pipe never blocks us: what does not fit waits here, and where too much waits the oldest of it is left out.
    """

    def __init__(self, *, placement: bool = False) -> None:
        """Fork it. There must be no threads yet. `placement`: it reports where operations went, too."""
        reading, self._feed = os.pipe()
        self.says, saying = os.pipe()
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._skipped = 0
        """Lines that were left out, and of which it is still to be told."""
        self.lost = 0
        """Bytes that were not looked at."""
        self._partial = {1: b"", 2: b""}
        self._deaf = False
        self._done: LogAnswer | None = None
        self._received = b""
        self._pid = os.fork()
        if self._pid == 0:
            _run_analyst(reading, saying, (self._feed, self.says), placement=placement)
        os.close(reading)
        os.close(saying)
        os.set_blocking(self._feed, False)
        with contextlib.suppress(OSError):
            import fcntl

            fcntl.fcntl(self._feed, getattr(fcntl, "F_SETPIPE_SZ", 1031), IN_THE_PIPE)

    def take(self, stream: int, data: bytes) -> None:
        """Take what stream 1 or 2 wrote: passed on in whole lines, so that the two do not mix in one."""
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        with self._lock:
            held = self._partial[stream]
            if not cut and len(held) + len(data) < MAX_PARTIAL_BYTES:
                self._partial[stream] = held + data
                return
            cut = cut or len(data)
            self._partial[stream] = data[cut:]
            if held:
                self._queue(held)
            self._queue(data[:cut])
            self._flush()

    def _queue(self, data: bytes) -> None:
        if self._deaf:
            return
        self._waiting.append(data)
        self._size += len(data)
        self._drop(PLENTY)  # the beginning is read by now, the end will be

    def _drop(self, most: int) -> None:
        """Leave out the oldest of what waits where that is more than `most` bytes."""
        while self._size > most:
            oldest = self._waiting.popleft()
            cut = oldest.find(b"\n", max(len(oldest) - most, 0)) + 1 if not self._waiting else 0
            left = oldest[cut:] if cut else b""  # of the last one its end, from the beginning of a line on
            if left:
                self._waiting.append(left)
            gone = len(oldest) - len(left)
            self._size -= gone
            self.lost += gone
            self._skipped += oldest.count(b"\n", 0, gone)

    def flush(self) -> None:
        """Give the analyst what it takes now."""
        if self._waiting and self._lock.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._lock.release()

    def _flush(self) -> None:
        try:
            while self._waiting or self._skipped:
                if self._skipped:  # the lines keep their numbers
                    self._skipped -= os.write(self._feed, b"\n" * min(self._skipped, CHUNK_BYTES))
                    continue
                data = self._waiting[0]
                count = os.write(self._feed, data)
                self._size -= count
                if count < len(data):
                    self._waiting[0] = data[count:]
                else:
                    self._waiting.popleft()
        except BlockingIOError:
            pass
        except OSError:  # it is gone: the program is none the wiser
            self._deaf = True
            self._waiting.clear()

    def receive(self) -> str | LogAnswer | None:
        """Return its next message: a line for the user at once, or the answer; None if it has left."""
        while len(self._received) < 8 or len(self._received) < 8 + int.from_bytes(self._received[:8], "big"):
            data = os.read(self.says, CHUNK_BYTES)
            if not data:
                return None
            self._received += data
        end = 8 + int.from_bytes(self._received[:8], "big")
        message, self._received = pickle.loads(self._received[8:end]), self._received[end:]  # noqa: S301 - our own
        if isinstance(message, LogAnswer):
            self._done = message
        return message  # type: ignore[no-any-return]

    def answer(self) -> LogAnswer | None:
        """Wait for the end of its work. None where it died, or takes longer than anybody wants to wait."""
        with self._lock:
            for held in self._partial.values():
                if held:
                    self._queue(held)
        began = time.monotonic()
        while self._done is None and (left := began + ANSWER_TIMEOUT_S - time.monotonic()) > 0:
            if time.monotonic() > began + FEEDING:
                self._drop(THE_END)
                self._skipped = min(self._skipped, 1)  # millions of line ends take their time, too
            left = min(left, FEEDING)
            owed = [self._feed] if self._feed >= 0 else []
            to_hear, to_feed, _ = select.select([self.says], owed, [], left)
            if to_feed:
                self._flush()
                if self._deaf or not (self._waiting or self._skipped):
                    os.close(self._feed)
                    self._feed = -1
            if to_hear and self.receive() is None:
                return None
        return self._done

    def kill(self) -> None:
        """Kill it, whatever it does, and leave no zombie."""
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _run_analyst(reading: int, saying: int, others: Sequence[int], *, placement: bool) -> NoReturn:
    """Run the analyst.

    Nothing it does reaches the terminal, and no Ctrl-C reaches it: it ends with its input.
    """
    status = 1
    try:
        os.nice(5)  # the program comes first
        for descriptor in others:
            os.close(descriptor)
        parent = os.getppid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        _send(saying, _analyze_output(reading, saying, parent, placement=placement))
        status = 0
    finally:
        os._exit(status)


def _send(descriptor: int, message: Any) -> None:
    data = pickle.dumps(message)
    rest = len(data).to_bytes(8, "big") + data
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _analyze_output(reading: int, saying: int, parent: int, *, placement: bool) -> LogAnswer:
    from tfdoctor.compat import Compat
    from tfdoctor.logs.report import diagnose_log
    from tfdoctor.running.watch import Watch

    told = False

    def tell(report: LogReport) -> None:
        nonlocal told
        if report.gpu_registered is False and not told:
            told = True
            _send(
                saying,
                f"tfdoctor: TensorFlow gets no GPU ({report.cause.value}); the whole answer at the end.",
            )

    compat = Compat.load()
    watch = Watch(compat, "output", tell)
    seen = LogMarks()
    pieces = watch.watch(seen.search(_read_pieces(reading, parent)))
    if placement:
        from tfdoctor.placement import Reader, evaluate_placement, find_era, needs_kernels

        reader = Reader()
        report = diagnose_log(reader.read(pieces), compat, "output")
        found = reader.end()
        era = find_era(found.said, compat) if needs_kernels(found) else None
        placed = evaluate_placement(found, "output", kernels=compat.kernels if era else None, era=era)
    else:
        report, placed = diagnose_log(pieces, compat, "output"), None
    known = report.tensorflow_version is not None or report.era is not None or bool(report.benign)
    return LogAnswer(report, known or seen.tensorflow, seen.loader, placed)


class LogMarks:
    """What is looked for in passing."""

    def __init__(self) -> None:
        self.tensorflow = self.loader = False

    def search(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.tensorflow = self.tensorflow or b"tensorflow/" in piece
            self.loader = self.loader or OUR_LINE.search(piece) is not None
            yield piece


def _read_pieces(descriptor: int, parent: int) -> Iterator[bytes]:
    """Yield what comes, until its end, or until the parent is gone."""
    while os.getppid() == parent:
        if not select.select([descriptor], [], [], 0.3)[0]:
            yield b""
            continue
        piece = os.read(descriptor, CHUNK_BYTES)
        if not piece:
            return
        yield piece
