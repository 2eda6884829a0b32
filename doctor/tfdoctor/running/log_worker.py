"""Analyze a program's output in a separate process, so that forwarding it never waits. POSIX only."""

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

__all__ = ["LogAnalysis", "LogWorker"]

CHUNK_BYTES = 1 << 20
PIPE_BYTES = 1 << 18
"""The size of the pipe to the analyst process, in bytes."""
MAX_QUEUED_BYTES = 16 << 20
"""The largest number of bytes that wait to be sent to the analyst process. The oldest of more are dropped."""
LOADER_LINE = re.compile(rb"I [\w/]{0,60}tsl/platform/default/dso_loader\.cc")
"""A line that TensorFlow 2.12 and newer log only because of `launch.LOADER_LOG_MODULE`. Older ones log other paths."""
FEED_TIMEOUT_S = 3.0
"""The seconds after the program's end during which all waiting output is sent; after that only `TAIL_BYTES`."""
TAIL_BYTES = 1 << 18
"""The number of last bytes that are sent in any case, because the last lines show why a program failed."""
ANSWER_TIMEOUT_S = 15.0
"""The seconds to wait for the result after the program has ended."""
MAX_PARTIAL_BYTES = 1 << 16
"""The largest size of an unfinished line that is not sent before its end arrives."""


@dataclass(frozen=True, slots=True)
class LogAnalysis:
    """The result of the analysis of a program's output."""

    report: LogReport
    is_tensorflow_log: bool
    """Whether anything in the output was recognized as a message of TensorFlow."""
    has_loader_lines: bool
    """Whether the output contains lines that TensorFlow logs only because of `launch.LOADER_LOG_MODULE`."""
    placement: Placement | None = None
    """The devices of the operations; None if they were not requested."""


class LogWorker:
    """A child process that analyzes the program's output.

    Sending it data never blocks. Data that do not fit into the pipe are queued. If the queue is full, the oldest data are
    dropped.
    """

    def __init__(self, *, placement: bool = False) -> None:
        """Fork the process. No other thread may be running.

        If `placement` is true, the process also reports the devices of operations.
        """
        read_end, self._feed = os.pipe()
        self.answer_pipe, write_end = os.pipe()
        self._lock = threading.Lock()
        self._queue_chunks: deque[bytes] = deque()
        self._queued_bytes = 0
        self._skipped_lines = 0
        """The number of dropped lines for which no empty line has been sent yet."""
        self.dropped_bytes = 0
        """The number of bytes that were dropped from the queue."""
        self._partial = {1: b"", 2: b""}
        self._feed_closed = False
        self._answer: LogAnalysis | None = None
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

    def queue_output(self, stream: int, data: bytes) -> None:
        """Queue data from standard output (1) or standard error (2).

        Only whole lines are sent, so that the streams do not mix within a line.
        """
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        with self._lock:
            partial_line = self._partial[stream]
            if not cut and len(partial_line) + len(data) < MAX_PARTIAL_BYTES:
                self._partial[stream] = partial_line + data
                return
            cut = cut or len(data)
            self._partial[stream] = data[cut:]
            if partial_line:
                self._queue(partial_line)
            self._queue(data[:cut])
            self._flush()

    def _queue(self, data: bytes) -> None:
        """Add data to the queue, and drop the oldest if it is too long. The caller must hold the lock."""
        if self._feed_closed:
            return
        self._queue_chunks.append(data)
        self._queued_bytes += len(data)
        self._drop(MAX_QUEUED_BYTES)

    def _drop(self, max_bytes: int) -> None:
        """Drop the oldest data in the queue until it has at most `max_bytes`."""
        while self._queued_bytes > max_bytes:
            oldest = self._queue_chunks.popleft()
            cut = oldest.find(b"\n", max(len(oldest) - max_bytes, 0)) + 1 if not self._queue_chunks else 0
            # Of the last chunk, keep the last lines.
            remainder = oldest[cut:] if cut else b""
            if remainder:
                self._queue_chunks.append(remainder)
            dropped = len(oldest) - len(remainder)
            self._queued_bytes -= dropped
            self.dropped_bytes += dropped
            self._skipped_lines += oldest.count(b"\n", 0, dropped)

    def flush(self) -> None:
        """Send the child process as much queued data as it accepts without blocking."""
        if self._queue_chunks and self._lock.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._lock.release()

    def _flush(self) -> None:
        """Send queued data until the pipe is full. The caller must hold the lock."""
        try:
            while self._queue_chunks or self._skipped_lines:
                if self._skipped_lines:  # empty lines keep the line numbers correct
                    self._skipped_lines -= os.write(self._feed, b"\n" * min(self._skipped_lines, CHUNK_BYTES))
                    continue
                data = self._queue_chunks[0]
                count = os.write(self._feed, data)
                self._queued_bytes -= count
                if count < len(data):
                    self._queue_chunks[0] = data[count:]
                else:
                    self._queue_chunks.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the child process has died, and the program must not notice
            self._feed_closed = True
            self._queue_chunks.clear()

    def receive(self) -> str | LogAnalysis | None:
        """Return the next message: a line to print now, or the result. None means that the process ended."""
        while len(self._received) < 8 or len(self._received) < 8 + int.from_bytes(self._received[:8], "big"):
            data = os.read(self.answer_pipe, CHUNK_BYTES)
            if not data:
                return None
            self._received += data
        end = 8 + int.from_bytes(self._received[:8], "big")
        message, self._received = pickle.loads(self._received[8:end]), self._received[end:]  # noqa: S301 - written by our own child
        if isinstance(message, LogAnalysis):
            self._answer = message
        return message  # type: ignore[no-any-return]

    def wait_for_answer(self) -> LogAnalysis | None:
        """Send the remaining output, and return the result; None if the process died or took too long."""
        with self._lock:
            for partial_line in self._partial.values():
                if partial_line:
                    self._queue(partial_line)
        start_time = time.monotonic()
        while self._answer is None and (remaining := start_time + ANSWER_TIMEOUT_S - time.monotonic()) > 0:
            if time.monotonic() > start_time + FEED_TIMEOUT_S:
                self._drop(TAIL_BYTES)
                self._skipped_lines = min(
                    self._skipped_lines, 1
                )  # sending millions of empty lines would take too long
            remaining = min(remaining, FEED_TIMEOUT_S)
            to_write = [self._feed] if self._feed >= 0 else []
            readable, writable, _ = select.select([self.answer_pipe], to_write, [], remaining)
            if writable:
                self._flush()
                if self._feed_closed or not (self._queue_chunks or self._skipped_lines):
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
    """Analyze the input in the forked child process, which then exits. It writes nothing to the terminal."""
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
    remaining = len(data).to_bytes(8, "big") + data
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def _analyze_output(read_end: int, write_end: int, parent: int, *, placement: bool) -> LogAnalysis:
    """Return the analysis of the output. Send a line as soon as it shows that TensorFlow gets no GPU."""
    from tfdoctor.compat import Compat
    from tfdoctor.logs.report import diagnose_log
    from tfdoctor.running.watch import Watch

    told = False

    def report_missing_gpu(report: LogReport) -> None:
        nonlocal told
        if report.gpu_registered is False and not told:
            told = True
            _send(
                write_end,
                f"tfdoctor: TensorFlow gets no GPU ({report.cause.value}); the whole answer at the end.",
            )

    compat = Compat.load()
    watch = Watch(compat, "output", report_missing_gpu)
    marks = LogMarks()
    pieces = watch.watch(marks.search(_read_pieces(read_end, parent)))
    if placement:
        from tfdoctor.placement import Reader, evaluate_placement, infer_era, needs_kernels

        reader = Reader()
        report = diagnose_log(reader.read(pieces), compat, "output")
        operations = reader.finish()
        era = infer_era(operations.release_messages, compat) if needs_kernels(operations) else None
        placement_report = evaluate_placement(
            operations, "output", kernels=compat.kernels if era else None, era=era
        )
    else:
        report, placement_report = diagnose_log(pieces, compat, "output"), None
    is_recognized = report.tensorflow_version is not None or report.era is not None or bool(report.benign)
    return LogAnalysis(report, is_recognized or marks.tensorflow, marks.loader, placement_report)


class LogMarks:
    """Whether the output contains TensorFlow's source paths, and lines that match `LOADER_LINE`."""

    def __init__(self) -> None:
        self.tensorflow = self.loader = False

    def search(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces unchanged, and record what they contain."""
        for piece in pieces:
            self.tensorflow = self.tensorflow or b"tensorflow/" in piece
            self.loader = self.loader or LOADER_LINE.search(piece) is not None
            yield piece


def _read_pieces(descriptor: int, parent: int) -> Iterator[bytes]:
    """Yield the data of a pipe until its end or the death of the parent, and b"" every 0.3 s without data."""
    while os.getppid() == parent:
        if not select.select([descriptor], [], [], 0.3)[0]:
            yield b""
            continue
        piece = os.read(descriptor, CHUNK_BYTES)
        if not piece:
            return
        yield piece
