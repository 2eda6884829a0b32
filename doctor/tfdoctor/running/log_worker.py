"""A separate process that reads a program's output, so that forwarding the output never has to wait. POSIX only."""

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
PIPE_BYTES = 1 << 18
"""Size of the pipe to the analyst, in bytes."""
MAX_QUEUED_BYTES = 16 << 20
"""Most bytes that wait to be sent to the analyst; beyond that the oldest are dropped."""
LOADER_LINE = re.compile(rb"I [\w/]{0,60}tsl/platform/default/dso_loader\.cc")
"""Line that TensorFlow 2.12 and newer log only because of SHOW_LOADER; older versions always log such lines."""
FEED_TIMEOUT_S = 3.0
"""Seconds after the program's end in which all waiting output is sent; after them only its last bytes are."""
TAIL_BYTES = 1 << 18
"""Bytes at the end of the output that are still sent then: the last lines say why a program failed."""
ANSWER_TIMEOUT_S = 15.0
"""Seconds that the answer may take after the program has ended."""
MAX_PARTIAL_BYTES = 1 << 16
"""Most bytes of an unfinished line that are held back until its end."""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """Result of the analysis of a program's output."""

    report: LogReport
    known: bool
    """Whether anything in the output was recognized as written by TensorFlow."""
    loader_seen: bool
    """Whether the output contains lines that TensorFlow logs only because of SHOW_LOADER."""
    placement: Placement | None = None
    """Devices of the operations; None if they were not requested."""


class Analyst:
    """Child process that reads the program's output.

    Writing to its pipe never blocks: data that do not fit are queued here, and the oldest are dropped if too much is
    queued.
    """

    def __init__(self, *, placement: bool = False) -> None:
        """Fork the process; no other thread may be running.

        With `placement` it also reports the devices of operations.
        """
        read_end, self._feed = os.pipe()
        self.answer_pipe, write_end = os.pipe()
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._skipped = 0
        """Number of dropped lines for which no empty line was sent yet."""
        self.dropped_bytes = 0
        """Number of bytes that were dropped."""
        self._partial = {1: b"", 2: b""}
        self._feed_closed = False
        self._answer: LogAnswer | None = None
        self._received = b""
        self._pid = os.fork()
        if self._pid == 0:
            _run_analyst(read_end, write_end, (self._feed, self.answer_pipe), placement=placement)
        os.close(read_end)
        os.close(write_end)
        os.set_blocking(self._feed, False)
        with contextlib.suppress(OSError):
            import fcntl

            fcntl.fcntl(self._feed, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)

    def take(self, stream: int, data: bytes) -> None:
        """Take data that stream 1 or 2 wrote.

        They are sent in whole lines, so that the streams do not mix within a line.
        """
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
        if self._feed_closed:
            return
        self._waiting.append(data)
        self._size += len(data)
        self._drop(MAX_QUEUED_BYTES)  # the beginning has been read by now, the end will be

    def _drop(self, max_bytes: int) -> None:
        """Drop the oldest waiting data until at most `max_bytes` are left."""
        while self._size > max_bytes:
            oldest = self._waiting.popleft()
            cut = oldest.find(b"\n", max(len(oldest) - max_bytes, 0)) + 1 if not self._waiting else 0
            remainder = (
                oldest[cut:] if cut else b""
            )  # the end of the last chunk, from the beginning of a line
            if remainder:
                self._waiting.append(remainder)
            dropped = len(oldest) - len(remainder)
            self._size -= dropped
            self.dropped_bytes += dropped
            self._skipped += oldest.count(b"\n", 0, dropped)

    def flush(self) -> None:
        """Send the analyst as much as it accepts without blocking."""
        if self._waiting and self._lock.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._lock.release()

    def _flush(self) -> None:
        """Send waiting data until the pipe is full; the caller holds the lock."""
        try:
            while self._waiting or self._skipped:
                if self._skipped:  # empty lines keep the line numbers right
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
        except OSError:  # the analyst has died: the program must not notice
            self._feed_closed = True
            self._waiting.clear()

    def receive(self) -> str | LogAnswer | None:
        """Return the next message: a line to show at once, or the answer. None if the process has ended."""
        while len(self._received) < 8 or len(self._received) < 8 + int.from_bytes(self._received[:8], "big"):
            data = os.read(self.answer_pipe, CHUNK_BYTES)
            if not data:
                return None
            self._received += data
        end = 8 + int.from_bytes(self._received[:8], "big")
        message, self._received = pickle.loads(self._received[8:end]), self._received[end:]  # noqa: S301 - written by our own child
        if isinstance(message, LogAnswer):
            self._answer = message
        return message  # type: ignore[no-any-return]

    def answer(self) -> LogAnswer | None:
        """Send the rest of the output and wait for the answer. None if the process died or took too long."""
        with self._lock:
            for held in self._partial.values():
                if held:
                    self._queue(held)
        began = time.monotonic()
        while self._answer is None and (remaining := began + ANSWER_TIMEOUT_S - time.monotonic()) > 0:
            if time.monotonic() > began + FEED_TIMEOUT_S:
                self._drop(TAIL_BYTES)
                self._skipped = min(self._skipped, 1)  # millions of line ends would take too long
            remaining = min(remaining, FEED_TIMEOUT_S)
            to_write = [self._feed] if self._feed >= 0 else []
            readable, writable, _ = select.select([self.answer_pipe], to_write, [], remaining)
            if writable:
                self._flush()
                if self._feed_closed or not (self._waiting or self._skipped):
                    os.close(self._feed)
                    self._feed = -1
            if readable and self.receive() is None:
                return None
        return self._answer

    def kill(self) -> None:
        """Kill the process and reap it."""
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _run_analyst(
    read_end: int, write_end: int, parent_descriptors: Sequence[int], *, placement: bool
) -> NoReturn:
    """Run the analyst in the forked child, and exit.

    It writes nothing to the terminal, and Ctrl-C does not reach it; it ends at the end of its input.
    """
    status = 1
    try:
        os.nice(5)  # the program has priority
        for descriptor in parent_descriptors:
            os.close(descriptor)
        parent = os.getppid()
        null_device = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null_device, descriptor)
        _send(write_end, _analyze_output(read_end, write_end, parent, placement=placement))
        status = 0
    finally:
        os._exit(status)


def _send(descriptor: int, message: Any) -> None:
    """Write a pickled message, preceded by its length in 8 bytes."""
    data = pickle.dumps(message)
    rest = len(data).to_bytes(8, "big") + data
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _analyze_output(read_end: int, write_end: int, parent: int, *, placement: bool) -> LogAnswer:
    """Return the analysis of the output, after sending one line as soon as it is known that there is no GPU."""
    from tfdoctor.compat import Compat
    from tfdoctor.logs.report import diagnose_log
    from tfdoctor.running.watch import Watch

    told = False

    def tell(report: LogReport) -> None:
        nonlocal told
        if report.gpu_registered is False and not told:
            told = True
            _send(
                write_end,
                f"tfdoctor: TensorFlow gets no GPU ({report.cause.value}); the whole answer at the end.",
            )

    compat = Compat.load()
    watch = Watch(compat, "output", tell)
    marks = LogMarks()
    pieces = watch.watch(marks.search(_read_pieces(read_end, parent)))
    if placement:
        from tfdoctor.placement import Reader, evaluate_placement, find_era, needs_kernels

        reader = Reader()
        report = diagnose_log(reader.read(pieces), compat, "output")
        operations = reader.end()
        era = find_era(operations.said, compat) if needs_kernels(operations) else None
        placement_report = evaluate_placement(
            operations, "output", kernels=compat.kernels if era else None, era=era
        )
    else:
        report, placement_report = diagnose_log(pieces, compat, "output"), None
    known = report.tensorflow_version is not None or report.era is not None or bool(report.benign)
    return LogAnswer(report, known or marks.tensorflow, marks.loader, placement_report)


class LogMarks:
    """Whether a log passed through `search` contains TensorFlow's source paths and SHOW_LOADER's lines."""

    def __init__(self) -> None:
        self.tensorflow = self.loader = False

    def search(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces unchanged, after recording the marks in them."""
        for piece in pieces:
            self.tensorflow = self.tensorflow or b"tensorflow/" in piece
            self.loader = self.loader or LOADER_LINE.search(piece) is not None
            yield piece


def _read_pieces(descriptor: int, parent: int) -> Iterator[bytes]:
    """Yield the bytes of a pipe until its end or the parent's death, and b"" if there are none for a moment."""
    while os.getppid() == parent:
        if not select.select([descriptor], [], [], 0.3)[0]:
            yield b""
            continue
        piece = os.read(descriptor, CHUNK_BYTES)
        if not piece:
            return
        yield piece
