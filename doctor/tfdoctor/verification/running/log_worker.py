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

    from tfdoctor.logs.placement import Placement
    from tfdoctor.logs.report import LogReport

__all__ = ["LogAnalysis", "LogWorker"]

CHUNK_BYTES = 1 << 20
"""The maximum number of bytes that are read or written at once."""
_LENGTH_BYTES = 8
"""The size in bytes of the length before each message."""
PIPE_BYTES = 1 << 18
"""The size of the pipe to the analyst process, in bytes."""
MAX_QUEUED_BYTES = 16 << 20
"""The maximum number of bytes that wait to be sent to the analyst process. If there are more, the oldest are dropped."""
LOADER_LINE = re.compile(rb"I [\w/]{0,60}tsl/platform/default/dso_loader\.cc")
"""A line that TensorFlow 2.12 and newer log only because of `launch.LOADER_LOG_MODULE`. Older releases name other paths."""
FEED_TIMEOUT_S = 3.0
"""The seconds after the program's end in which all waiting output is sent. After that, only `TAIL_BYTES` are."""
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

    def __init__(self, *, with_placement: bool = False) -> None:
        """Fork the process. No other thread may be running.

        If `with_placement` is true, the process also reports the devices of operations.
        """
        read_end, self._feed_pipe = os.pipe()
        self.answer_pipe, write_end = os.pipe()
        self._lock = threading.Lock()
        self._queued_chunks: deque[bytes] = deque()
        self._queued_bytes = 0
        self._skipped_lines = 0
        """The number of dropped lines for which no empty line has been sent yet."""
        self.dropped_bytes = 0
        """The number of bytes that were dropped from the queue."""
        self._partial_lines = {1: b"", 2: b""}
        """The unfinished line of standard output (1) and standard error (2)."""
        self._is_feed_closed = False
        self._answer: LogAnalysis | None = None
        self._received_bytes = b""
        self._pid = os.fork()
        if self._pid == 0:
            _run_analyst(read_end, write_end, (self._feed_pipe, self.answer_pipe), placement=with_placement)
        os.close(read_end)
        os.close(write_end)
        os.set_blocking(self._feed_pipe, False)
        with contextlib.suppress(OSError):
            import fcntl

            fcntl.fcntl(self._feed_pipe, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)

    def queue_output(self, stream: int, data: bytes) -> None:
        """Queue data from standard output (1) or standard error (2).

        Only whole lines are sent, so that the streams do not mix within a line.
        """
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        with self._lock:
            partial_line = self._partial_lines[stream]
            if not cut and len(partial_line) + len(data) < MAX_PARTIAL_BYTES:
                self._partial_lines[stream] = partial_line + data
                return
            cut = cut or len(data)
            self._partial_lines[stream] = data[cut:]
            if partial_line:
                self._queue(partial_line)
            self._queue(data[:cut])
            self._flush()

    def _queue(self, data: bytes) -> None:
        """Add data to the queue, and drop the oldest if it is too long. The caller must hold the lock."""
        if self._is_feed_closed:
            return
        self._queued_chunks.append(data)
        self._queued_bytes += len(data)
        self._drop_oldest(MAX_QUEUED_BYTES)

    def _drop_oldest(self, max_bytes: int) -> None:
        """Drop the oldest data in the queue until it has at most `max_bytes`."""
        while self._queued_bytes > max_bytes:
            oldest = self._queued_chunks.popleft()
            # of the last chunk, keep the last lines
            cut = oldest.find(b"\n", max(len(oldest) - max_bytes, 0)) + 1 if not self._queued_chunks else 0
            remainder = oldest[cut:] if cut else b""
            if remainder:
                self._queued_chunks.append(remainder)
            dropped = len(oldest) - len(remainder)
            self._queued_bytes -= dropped
            self.dropped_bytes += dropped
            self._skipped_lines += oldest.count(b"\n", 0, dropped)

    def flush(self) -> None:
        """Send the child process as much queued data as it accepts without blocking."""
        if self._queued_chunks and self._lock.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._lock.release()

    def _flush(self) -> None:
        """Send queued data until the pipe is full. The caller must hold the lock."""
        try:
            while self._queued_chunks or self._skipped_lines:
                if self._skipped_lines:  # empty lines keep the line numbers correct
                    self._skipped_lines -= os.write(
                        self._feed_pipe, b"\n" * min(self._skipped_lines, CHUNK_BYTES)
                    )
                    continue
                data = self._queued_chunks[0]
                count = os.write(self._feed_pipe, data)
                self._queued_bytes -= count
                if count < len(data):
                    self._queued_chunks[0] = data[count:]
                else:
                    self._queued_chunks.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the child process has died, and the program must not notice
            self._is_feed_closed = True
            self._queued_chunks.clear()

    def receive(self) -> str | LogAnalysis | None:
        """Return the next message: a line to print now, or the result. None means that the process ended."""
        while (
            len(self._received_bytes) < _LENGTH_BYTES or len(self._received_bytes) < self._get_message_end()
        ):
            data = os.read(self.answer_pipe, CHUNK_BYTES)
            if not data:
                return None
            self._received_bytes += data
        end = self._get_message_end()
        message = pickle.loads(self._received_bytes[_LENGTH_BYTES:end])  # noqa: S301 - written by our own child
        self._received_bytes = self._received_bytes[end:]
        if isinstance(message, LogAnalysis):
            self._answer = message
        return message  # type: ignore[no-any-return]

    def _get_message_end(self) -> int:
        return _LENGTH_BYTES + int.from_bytes(self._received_bytes[:_LENGTH_BYTES], "big")

    def wait_for_answer(self) -> LogAnalysis | None:
        """Send the remaining output, and return the result; None if the process died or took too long."""
        with self._lock:
            for partial_line in self._partial_lines.values():
                if partial_line:
                    self._queue(partial_line)
        start_time = time.monotonic()
        while self._answer is None and (remaining_s := start_time + ANSWER_TIMEOUT_S - time.monotonic()) > 0:
            if time.monotonic() > start_time + FEED_TIMEOUT_S:
                self._drop_oldest(TAIL_BYTES)
                # sending millions of empty lines would take too long
                self._skipped_lines = min(self._skipped_lines, 1)
            remaining_s = min(remaining_s, FEED_TIMEOUT_S)
            writable_pipes = [self._feed_pipe] if self._feed_pipe >= 0 else []
            readable, writable, _ = select.select([self.answer_pipe], writable_pipes, [], remaining_s)
            if writable:
                self._flush()
                if self._is_feed_closed or not (self._queued_chunks or self._skipped_lines):
                    os.close(self._feed_pipe)
                    self._feed_pipe = -1
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
    exit_status = 1
    try:
        os.nice(5)  # the program has priority
        for descriptor in parent_descriptors:
            os.close(descriptor)
        parent_pid = os.getppid()
        null_device = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null_device, descriptor)
        _send_message(write_end, _analyze_output(read_end, write_end, parent_pid, placement=placement))
        exit_status = 0
    finally:
        os._exit(exit_status)


def _send_message(descriptor: int, message: Any) -> None:
    """Write a pickled message, preceded by its length."""
    data = pickle.dumps(message)
    remaining = len(data).to_bytes(_LENGTH_BYTES, "big") + data
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def _analyze_output(read_end: int, write_end: int, parent_pid: int, *, placement: bool) -> LogAnalysis:
    """Return the analysis of the output. As soon as it shows that TensorFlow gets no GPU, send a line."""
    from tfdoctor.compat import Compat
    from tfdoctor.logs.report import diagnose_log
    from tfdoctor.verification.running.watch import LogWatcher

    has_reported = False

    def report_missing_gpu(report: LogReport) -> None:
        nonlocal has_reported
        if report.gpu_registered is False and not has_reported:
            has_reported = True
            _send_message(
                write_end,
                "tfdoctor: TensorFlow is not using a GPU. The report when the program ends says why.",
            )

    compat = Compat.load()
    watch = LogWatcher(compat, "output", report_missing_gpu)
    marks = LogMarks()
    pieces = watch.forward_pieces(marks.record(_read_pieces(read_end, parent_pid)))
    if placement:
        from tfdoctor.logs.placement import (
            PlacementReader,
            evaluate_placement,
            infer_release_range,
            needs_kernels,
        )

        reader = PlacementReader()
        report = diagnose_log(reader.read(pieces), compat, "output")
        operations = reader.finish()
        era = infer_release_range(operations.release_messages, compat) if needs_kernels(operations) else None
        placement_report = evaluate_placement(
            operations, "output", kernels=compat.kernels if era else None, release_range=era
        )
    else:
        report, placement_report = diagnose_log(pieces, compat, "output"), None
    is_recognized = (
        report.tensorflow_version is not None or report.era is not None or bool(report.benign_codes)
    )
    return LogAnalysis(
        report, is_recognized or marks.has_tensorflow_paths, marks.has_loader_lines, placement_report
    )


class LogMarks:
    """A record of whether the output has source paths of TensorFlow, and lines that match `LOADER_LINE`."""

    def __init__(self) -> None:
        self.has_tensorflow_paths = self.has_loader_lines = False

    def record(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces unchanged, and record what they contain."""
        for piece in pieces:
            self.has_tensorflow_paths = self.has_tensorflow_paths or b"tensorflow/" in piece
            self.has_loader_lines = self.has_loader_lines or LOADER_LINE.search(piece) is not None
            yield piece


def _read_pieces(descriptor: int, parent_pid: int) -> Iterator[bytes]:
    """Yield the data of a pipe until its end or the parent's death, and b"" after 0.3 s without data."""
    while os.getppid() == parent_pid:
        if not select.select([descriptor], [], [], 0.3)[0]:
            yield b""
            continue
        piece = os.read(descriptor, CHUNK_BYTES)
        if not piece:
            return
        yield piece
