"""The process that analyzes a program's output: what is sent to it, what is dropped, and what it answers."""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tfdoctor.verification.running import log_worker
from tfdoctor.verification.running.log_worker import LogAnalysis, LogMarks, LogWorker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX"),
    pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning"),
]
SKIPPED = b"I x.cc:1] Skipping registering GPU devices...\n"
MISSING = (
    b"W tensorflow/x.cc:60] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: "
    b"cannot open shared object file: No such file or directory\n"
)


class Sender(LogWorker):
    """A worker without a child process: the test reads what is sent, and writes the answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pipes = [os.pipe(), os.pipe()]
        self.child_reads, self.child_writes = os.dup(pipes[0][0]), os.dup(pipes[1][1])
        ends = iter(pipes)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pipe", lambda: next(ends))
            patch.setattr(os, "fork", lambda: 999_999_999)
            super().__init__()

    def read_sent(self, size: int = 1 << 20) -> bytes:
        os.set_blocking(self.child_reads, False)
        try:
            return os.read(self.child_reads, size)
        except BlockingIOError:
            return b""

    def answer(self, message: object) -> bytes:
        data = pickle.dumps(message)
        return len(data).to_bytes(8, "big") + data

    def close(self) -> None:
        for descriptor in (self.child_reads, self.child_writes, self._feed_pipe, self.answer_pipe):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    worker = Sender(monkeypatch)
    yield worker
    worker.close()


def test_only_whole_lines_are_sent(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    sender.queue_output(1, b"one\ntw")
    sender.queue_output(2, b"err")
    assert sender.read_sent() == b"one\n"
    sender.queue_output(1, b"o\nrest")
    assert sender.read_sent() == b"two\n"
    sender.queue_output(1, b"\rmore")  # a progress bar
    assert sender.read_sent() == b"rest\r"
    sender.queue_output(2, b"or\n\n")
    assert sender.read_sent() == b"error\n\n"
    monkeypatch.setattr(log_worker, "MAX_PARTIAL_BYTES", 8)
    sender.queue_output(1, b"abc")
    assert sender.read_sent() == b""
    sender.queue_output(1, b"d")  # eight bytes are too many for an unfinished line
    assert sender.read_sent() == b"moreabcd"
    sender.queue_output(1, b"x")
    assert sender.read_sent() == b""


def test_oldest_output_is_dropped(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_worker, "MAX_QUEUED_BYTES", 10)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(BlockingIOError))
        sender.queue_output(1, b"1\n2\n3\n")
        sender.queue_output(1, b"4567\n")
        assert (sender.dropped_bytes, sender._queued_bytes, sender._skipped_lines) == (6, 5, 3)
        sender.queue_output(1, b"89a\n")
        assert sender.dropped_bytes == 6
        sender.queue_output(1, b"b\n")
        assert (sender.dropped_bytes, sender._queued_bytes) == (11, 6)
        # Of a single chunk the last lines stay.
        sender.queue_output(1, b"aaaa\nbbbb\ncccc\n")
        assert list(sender._queued_chunks) == [b"cccc\n"]
        sender.queue_output(1, b"x" * 20 + b"\n")
        assert list(sender._queued_chunks) == []
        assert sender._queued_bytes == 0
    sender.flush()
    assert sender.read_sent() == b""  # nothing is queued: the empty lines wait for the next output
    sender.queue_output(1, b"end\n")
    assert sender.read_sent() == b"\n" * 10 + b"end\n"
    assert sender._skipped_lines == 0


def test_full_pipe_does_not_block(sender: Sender) -> None:
    size = fcntl.fcntl(sender._feed_pipe, fcntl.F_GETPIPE_SZ)
    data = b"x" * (size - 1) + b"\n"
    sender.queue_output(1, data)
    sender.queue_output(1, b"one\ntwo\n")
    assert sender._queued_bytes == 8
    assert sender.read_sent(size) == data
    with sender._lock:  # another thread is sending
        sender.flush()
        assert sender.read_sent() == b""
    sender.flush()
    assert sender.read_sent() == b"one\ntwo\n"
    assert sender._queued_bytes == 0


def test_dead_child_is_not_noticed(sender: Sender) -> None:
    os.close(sender.child_reads)
    sender.queue_output(1, b"one\n")
    sender.queue_output(1, b"two\n")
    assert (sender._is_feed_closed, len(sender._queued_chunks)) == (True, 0)
    sender.child_reads = os.open(os.devnull, os.O_RDONLY)
    os.close(sender.child_writes)
    sender.child_writes = os.open(os.devnull, os.O_WRONLY)
    assert sender.receive() is None
    assert sender.wait_for_answer() is None
    sender.kill()


def test_messages_arrive_in_pieces(sender: Sender) -> None:
    first, second = sender.answer("a line"), sender.answer("b" * 300)
    os.write(sender.child_writes, first[:5])
    os.write(sender.child_writes, first[5:] + second[:20])
    assert sender.receive() == "a line"
    os.write(sender.child_writes, second[20:])
    assert sender.receive() == "b" * 300
    assert sender._received_bytes == b""


def test_answer_is_awaited(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    result = LogAnalysis(None, True, False)  # type: ignore[arg-type]
    sender.queue_output(1, b"no line end")
    sender.queue_output(2, b"two\nnor here")
    os.write(sender.child_writes, sender.answer("a line") + sender.answer(result))
    os.close(sender.child_writes)  # the child ends
    sender.child_writes = os.open(os.devnull, os.O_WRONLY)
    assert sender.wait_for_answer() == result
    assert sender.read_sent() == b"two\nno line endnor here"
    assert sender._feed_pipe == -1  # the child sees the end
    assert sender.wait_for_answer() == result


def test_answer_is_not_awaited_for_ever(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_worker, "ANSWER_TIMEOUT_S", 0.2)
    assert sender.wait_for_answer() is None


def test_late_output_is_cut_to_its_end(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_worker, "ANSWER_TIMEOUT_S", 0.3)
    monkeypatch.setattr(log_worker, "FEED_TIMEOUT_S", 0.0)
    monkeypatch.setattr(log_worker, "TAIL_BYTES", 10)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(BlockingIOError))
        for number in range(5):
            sender.queue_output(1, b"line %d\n" % number)
    assert sender.wait_for_answer() is None
    assert sender.read_sent() == b"\nline 4\n"


def test_whole_worker() -> None:
    """The line about the missing GPU comes as soon as it is known. Only the answer names a cause."""
    worker = LogWorker()
    try:
        worker.queue_output(2, MISSING + SKIPPED)
        assert worker.receive() == (
            "tfdoctor: TensorFlow is not using a GPU. The report when the program ends says why."
        )
        worker.queue_output(1, b"I tsl/platform/default/dso_loader.cc:1] x\nunfinished")
        analysis = worker.wait_for_answer()
    finally:
        worker.kill()
    assert analysis is not None
    assert (analysis.report.cause.value, analysis.report.gpu_registered) == ("libs-not-installed", False)
    assert (analysis.is_tensorflow_log, analysis.has_loader_lines, analysis.placement) == (True, True, None)


def test_worker_with_placement_and_without_tensorflow() -> None:
    worker = LogWorker(with_placement=True)
    try:
        worker.queue_output(1, b"hello\n")
        analysis = worker.wait_for_answer()
    finally:
        worker.kill()
    assert analysis is not None
    assert (analysis.is_tensorflow_log, analysis.has_loader_lines) == (False, False)
    assert analysis.placement is not None


@pytest.mark.parametrize(
    ("pieces", "paths", "loader"),
    [
        ([b"tensorflow/x", b"y"], True, False),
        ([b"I external/local_tsl/tsl/platform/default/dso_loader.cc:5", b"y"], False, True),
        ([b"W tsl/platform/default/dso_loader.cc"], False, False),
        ([b"y", b"tensorflow/x"], True, False),
    ],
)
def test_marks_of_tensorflow(pieces: list[bytes], paths: bool, loader: bool) -> None:
    marks = LogMarks()
    assert list(marks.record(iter(pieces))) == pieces
    assert (marks.has_tensorflow_paths, marks.has_loader_lines) == (paths, loader)


@pytest.mark.parametrize(
    ("lines", "placement", "messages", "recognized", "loader"),
    [
        (MISSING + SKIPPED, False, 1, True, False),
        (b"hello\n", False, 0, False, False),
        (b"from tensorflow/x\n", True, 0, True, False),
        (b"I tsl/platform/default/dso_loader.cc:1] x\n", False, 0, False, True),
    ],
)
def test_analysis_of_an_output(
    lines: bytes, placement: bool, messages: int, recognized: bool, loader: bool
) -> None:
    read_end, write_end = os.pipe()
    answers_read, answers_write = os.pipe()
    os.write(write_end, lines)
    # A pause in the output is needed for the line about the missing GPU.
    threading.Timer(0.7 * messages, os.close, (write_end,)).start()
    analysis = log_worker._analyze_output(read_end, answers_write, os.getppid(), placement=placement)
    os.close(answers_write)
    answer = os.read(answers_read, 10_000)
    for descriptor in (read_end, answers_read):
        os.close(descriptor)
    assert answer.count(b"tfdoctor: TensorFlow is not using a GPU") == messages
    assert (analysis.is_tensorflow_log, analysis.has_loader_lines) == (recognized, loader)
    assert (analysis.placement is not None) is placement


def test_output_is_read_until_its_end_or_the_death_of_the_parent() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"one")
    pieces = log_worker._read_pieces(read_end, os.getppid())
    assert [next(pieces), next(pieces)] == [b"one", b""]
    os.close(write_end)
    assert list(pieces) == []
    assert list(log_worker._read_pieces(read_end, -1)) == []
    os.close(read_end)
