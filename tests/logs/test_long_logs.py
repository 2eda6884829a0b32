"""Long and hostile logs: the same result as line by line, in bounded time and memory."""

from __future__ import annotations

import gc
import json
import random
import re
import time
import tracemalloc
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logs.everything import CATALOGUE, collect_results
from tfdoctor.compat import Compat
from tfdoctor.logs import blocks, reader
from tfdoctor.logs.blocks import is_binary
from tfdoctor.logs.processes import ProcessSplitter
from tfdoctor.logs.reader import read_lines
from tfdoctor.logs.report import diagnose_log
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import Catalogue
from tfdoctor.render.log import make_log_json, render_log
from tfdoctor.render.log_markdown import make_log_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdoctor.logs.report import LogReport
    from tfdoctor.logs.signatures import Match

COMPAT = Compat.load()
TIME = "2020-05-01 10:00:00.000001: "
CREATED = (
    TIME
    + "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1247] Created TensorFlow device (/job:localhost/replica:0"
    "/task:0/device:GPU:{0} with 7000 MB memory) -> physical GPU (device: {0}, name: GeForce GTX 1080, pci bus id:"
    " 0000:{1:02x}:00.0, compute capability: 6.1)"
)
MISSING = (
    TIME
    + "W tensorflow/stream_executor/platform/default/dso_loader.cc:55] Could not load dynamic library '{0}'; "
    "dlerror: {0}: cannot open shared object file"
)


def read_events(data: bytes, *, fast: bool) -> tuple[Sequence[tuple[object, ...]], tuple[int, int]]:
    """Return every event of a log, and its numbers of lines and bytes."""
    log = scan([data], CATALOGUE, without_cache=not fast)
    events = [
        (
            e.id,
            e.line,
            e.text,
            tuple(e.captures.items()),
            e.message_number,
            e.next_message_number,
            e.prefix,
        )
        for e in log
    ]
    return events, (log.line_count, log.byte_count)


EXAMPLES = [line for signature in CATALOGUE.signatures for line in signature.matching_examples]
MESSAGES = st.sampled_from(
    [
        *EXAMPLES,
        "12/1534 [=>....] - ETA: 35s - loss: 0.7321 - accuracy: 0.51",
        "INFO:tensorflow:loss = 0.6931472, step = 1200 (0.412 sec)",
        "The caller indicates that this is not a failure",
        '{"log": "2.4.1\\n", "stream": "stdout"}',
        "<span>Num GPUs Available: &nbsp;1</span>",
        "> 2.3.0",
        "\x1b[32mINFO\x1b[0m step 3",
        "\\u001b[31mfailed call to cuInit: CUDA_ERROR_NO_DEVICE\\u001b[0m",
        "Could&#32;not load dynamic library 'libcudart.so.10.1'; dlerror: x",
        "caf\xe9 \u4e2d\u6587 loss 0.1",
        "Success\bfully opened dynamic library libcuda.so.1",
        "",
        " ",
    ]
)
LINES = st.lists(
    st.tuples(
        st.one_of(MESSAGES, st.text(max_size=80)), st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\b\b\r"])
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(LINES, st.sampled_from(["", "(pid=7) ", "0: ", "# "]), st.booleans())
def test_reading_by_shapes_matches_line_by_line(
    pieces: list[tuple[str, str]], mark: str, broken: bool
) -> None:
    dull_lines = "step 0\n" * 450
    text = dull_lines + "".join(mark + message + line_end for message, line_end in pieces)
    data = text.encode("utf-8", "replace") + (b"\xff\xfe broken \xe9" if broken else b"") + b" end"
    with mock.patch.object(reader, "_FULL_READ_BYTES", 1), mock.patch.object(blocks, "_BLOCK_BYTES", 700):
        fast, slow = read_events(data, fast=True), read_events(data, fast=False)
    assert fast == slow


STAMPS = (
    "2024-03-01 10:00:{0:02d}.{1:06d}: ",
    "I0000 00:00:17123456{0:02d}.{1:06d}    {1} ",
    "(pid={1}) 2024-03-01 10:00:{0:02d}.000001: ",
    "[1,{1}]<stderr>:2024-03-01 10:00:{0:02d}.{1:06d}: ",
    "",
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(EXAMPLES), min_size=1, max_size=6),
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(STAMPS), st.integers(0, 3), st.integers(1, 20)),
        max_size=10,
    ),
)
@example(
    [EXAMPLES[0], 'I0000 00:00:1775118342.960484  222489 x.cc:160] env: CUDA_VISIBLE_DEVICES="-1"'],
    [(1, STAMPS[1], 0, 2)],
)
def test_repeated_lines_lose_no_event_and_no_count(
    examples: list[str], repetitions: list[tuple[int, str, int, int]]
) -> None:
    text = "".join(
        f"{stamp.format(n % 60, writer)}{examples[number % len(examples)]}\n"
        for number, stamp, writer, times in repetitions
        for n in range(times)
    )
    assert collect_results(text.encode()) == collect_results(text.encode(), each=True)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(EXAMPLES), min_size=1, max_size=4),
    st.sampled_from(STAMPS),
    st.integers(0, 1 << 30),
    st.integers(20, 300),
)
@example([CREATED.format(0, 1)], STAMPS[0], 5, 300)
@example([MISSING.format("libcudart.so.10.1"), CREATED.format(0, 1)], STAMPS[2], 6, 300)
def test_random_digits_give_the_same_results(examples: list[str], stamp: str, seed: int, times: int) -> None:
    rng = random.Random(seed)
    lines = []
    for n in range(times):
        message = "".join(
            rng.choice("0123456789") if char.isdigit() else char for char in rng.choice(examples)
        )
        lines.append(f"{stamp.format(n % 60, rng.randrange(3))}{message}\n")
    data = "".join(lines).encode()
    assert_same_results(data)


MEANINGFUL_DIGITS = {
    "more threads than are told apart": (
        "I0000 00:00:1700000000.{0:06d}  {1} gpu_device.cc:2022] Created device /job:localhost/replica:0/task:0/"
        "device:GPU:{2} with {1} MB memory:  -> device: {2}, name: Tesla T4, pci bus id: 0000:0{2}:00.0, compute"
        " capability: 7.5\n"
        "E0000 00:00:1700000000.{0:06d}  {1} cuda_driver.cc:265] failed call to cuInit: UNKNOWN ERROR (303)\n"
    ),
    "a digit that changes what is matched": (
        "I0000 00:00:{2}700000000.{0:06d}  7 gpu_device.cc:20{2}2] failed call to cuInit: CUDA_ERROR_NO_DEVICE\n"
    ),
    "escapes": "I0000 00:00:1700000000.{0:06d}  7 x.cc:1] \\x{2}b[31mfailed call &#{1}; cuInit: CUresult({2})\n",
    "several messages on a line": (
        "2024-03-01 10:00:00.{0:06d}: I a.cc:{1}] one {1} 2024-03-01 10:00:00.{0:06d}: E"
        " tensorflow/stream_executor/cuda/cuda_driver.cc:2{2}5] failed call to cuInit: CUDA_ERROR_NO_DEVICE `\n"
    ),
}


@pytest.mark.parametrize("form", MEANINGFUL_DIGITS.values(), ids=MEANINGFUL_DIGITS)
def test_meaningful_digits_are_not_merged(form: str) -> None:
    rng = random.Random(1)
    assert_same_results(
        "".join(form.format(n, rng.randrange(10**4, 10**5), rng.randrange(4)) for n in range(600)).encode()
    )


@pytest.mark.parametrize("threads", [1, 4_000])
def test_lines_that_differ_in_digits_are_matched_rarely(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched = []
    matches = Catalogue.iter_matches

    def count_calls(self: Catalogue, line: str) -> Iterator[Match]:
        matched.append(line)
        return matches(self, line)

    monkeypatch.setattr(Catalogue, "iter_matches", count_calls)
    created = CREATED[CREATED.index("gpu_device.cc") :]
    lines = "".join(
        f"I0000 00:00:1700000000.{n:06d}  {n % threads + 10_000} {created.format(n % 4, n % 4)}\n".replace(
            "7000", f"{n:04d}"
        )
        for n in range(4_000)
    )
    scan([lines.encode()], CATALOGUE, ProcessSplitter())
    assert len(matched) < 1_500


def assert_same_results(data: bytes) -> None:
    """Assert that cached reading gives the same results as matching each line."""
    assert collect_results(data) == collect_results(data, each=True)


def test_last_occurrence_of_a_repeated_line_is_known() -> None:
    line = MISSING.format("libcudart.so.10.1") + "\n"
    data = line * 5_000 + "step 1\n" * 7 + line + "step 2\n"
    log = scan([data.encode()], CATALOGUE)
    last = log.find_last("dso-failed")
    assert last is not None
    assert last.line == 5_008
    assert log.event_counts["dso-failed"] == 5_001


def test_message_inside_a_long_log_is_found() -> None:
    bar = "".join(f"\r{n}/1534 [{'=' * (n // 60)}>] - loss: 0.{n:04}" for n in range(1534))
    erased = "\b" * 60 + "\r" + "9/9 [====]"
    dull = f"{bar}\nINFO:tensorflow:loss = 0.1, step = 3\n{erased}\n" * 30
    for signature in ("cuinit", "oom", "device-created", "tf-version-alone", "answer-line"):
        line = CATALOGUE.signatures_by_id[signature].matching_examples[0]
        events, (lines, size) = read_events(f"{dull}{line}\n{dull}".encode(), fast=True)
        assert [event[:2] for event in events if event[0] == signature] == [(signature, 91)]
        assert (lines, size) == (181, len(f"{dull}{line}\n{dull}".encode()))


def test_progress_bar_is_neither_binary_nor_wrapped() -> None:
    bar = b"".join(b"\x08" * 70 + b"\r%4d/1534 [==>....] - loss: 0.5" % n for n in range(200))
    assert not is_binary(bar[:8192])
    lines = [
        f"{n:4d}/1534 [{'=' * (n // 50):30s}] - ETA: 35s - loss: 0.{n:04d} - accuracy: 0.5123"
        for n in range(900)
    ]
    assert reader._detect_width(lines) == 0
    assert len(list(read_lines(["\n".join(lines).encode()]))) == 900


# ---------------------------------------------------------------- hostile logs


def measure_report(chunks: Iterable[bytes]) -> tuple[LogReport, float]:
    """Return the report of a log, and the peak memory of reading it in MB."""
    tracemalloc.start()
    report = diagnose_log(chunks, COMPAT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return report, peak / 1e6


MANY = 1_500
HOSTILE = {
    "one long line": [b"x" * 100_000] * 10,
    "one long line of messages": [(MISSING.format("libcudart.so.10.1") + " ").encode() * 300] * 4,
    "carriage returns": [b"\r" * 60_000],
    "lines without a text": [b"\n" * 60_000],
    "libraries": ["".join(MISSING.format(f"libcu{n}.so.1") + "\n" for n in range(MANY)).encode()],
    "devices": ["".join(CREATED.format(n % 1000, n % 256) + "\n" for n in range(MANY)).encode()],
    "processes": [
        "".join(f"(pid={n}) " + MISSING.format("libcudart.so.10.1") + "\n" for n in range(MANY)).encode()
    ],
    "runs": [f"{TIME}E cuda_driver.cc:1] failed call to cuInit: CUDA_ERROR_UNKNOWN\n".encode() * MANY],
    "escapes in escapes": [
        b'"' + b"\\" * 50_000 + b'n"',
        b"&amp;" * 20_000,
        b"\x1b[" * 20_000,
        b"<pre " * 20_000,
    ],
    "quotes in quotes": [b"> # | ` - " * 20_000],
}
"""Logs with too much of something: `MANY` is above every limit."""


@pytest.mark.few(4)
@pytest.mark.parametrize("chunks", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.timeout(180)
def test_hostile_log_has_bounded_memory_and_output(chunks: list[bytes]) -> None:
    report, memory = measure_report(chunks)
    assert memory < 100
    assert report.byte_count == sum(map(len, chunks))
    assert len(report.processes) <= 256 + 5
    for text in (
        render_log(report, verbose=True),
        make_log_markdown(report),
        json.dumps(make_log_json(report)),
    ):
        assert len(text) < 400_000
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


@pytest.mark.parametrize("text", [b"x", b"\\", b"&lt;", b"(pid=1) ", b"\r", b"<a ", b"[1,0]<stderr>:", b"] "])
@pytest.mark.few(3)
def test_time_is_linear_in_the_length_of_a_line(text: bytes) -> None:
    def measure(size: int) -> float:
        data = text * (size // len(text))
        fastest = 99.0
        gc.collect()
        gc.disable()  # a collection would also visit the objects of earlier tests
        try:
            for _ in range(4):
                start = time.process_time()
                diagnose_log([data], COMPAT)
                fastest = min(fastest, time.process_time() - start)
        finally:
            gc.enable()
        return fastest

    assert measure(320_000) < 10 * max(measure(80_000), 0.01)


TRAINING_LOG = b"".join(
    b"%4d/1534 [%s] - ETA: 35s - loss: 0.%04d - accuracy: 0.5123\n" % (n % 1534, b"=" * (n % 30), n % 9973)
    for n in range(40_000)
)
UNUSUAL_LOGS = {
    "messages": "".join(
        f"2024-03-01 10:00:{n % 60:02d}.{n:06d}: {MISSING[len(TIME) :].format('libcudart.so.10.1')}\n"
        for n in range(20_000)
    ).encode(),
    "messages of many processes": "".join(
        f"(pid={n % 40}) 2024-03-01 10:00:{n % 60:02d}.{n:06d}: {CREATED[len(TIME) :].format(n % 4, n % 4)}\n"
        for n in range(15_000)
    ).encode(),
    "messages whose numbers differ": "".join(
        f"2024-03-01 10:00:{n % 60:02d}.{n:06d}: {CREATED[len(TIME) :].format(n % 4, n % 4).replace('7000', str(n))}\n"
        for n in range(8_000)
    ).encode(),
    "one line": b"x" * 3_000_000,
    "one line of hex": bytes(range(256)).hex().encode() * 6_000,
    "lines of hex, all as long": b"\n".join(b"%076x" % (n**9) for n in range(40_000)),
    "NULs": bytes(3_000_000),
    "backslashes": b"\\" * 3_000_000,
}


def measure_seconds(data: bytes) -> float:
    data = (data * (1_500_000 // len(data) + 1))[:1_500_000]
    fastest = 99.0
    for _ in range(2):
        start = time.process_time()
        diagnose_log(
            [data[start_byte : start_byte + 65536] for start_byte in range(0, len(data), 65536)], COMPAT
        )
        fastest = min(fastest, time.process_time() - start)
    return fastest


@pytest.fixture(scope="module")
def training_seconds() -> float:
    return measure_seconds(TRAINING_LOG)


@pytest.mark.parametrize("name", UNUSUAL_LOGS)
@pytest.mark.few(3)
def test_unusual_log_is_as_fast_as_a_training_log(name: str, training_seconds: float) -> None:
    # the 0.1 s stand for the fixed cost of starting a process, the time of reading some 15 MB
    assert measure_seconds(UNUSUAL_LOGS[name]) < 3 * (training_seconds + 0.1)
