"""The cache of line kinds: each kind is matched once, with the result of matching every line."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.everything import CATALOGUE, collect_results
from tfdoctor.compat import Compat
from tfdoctor.logs import blocks, events, line_cache, processes, reader, sources
from tfdoctor.logs import scan as scanning
from tfdoctor.logs.events import Event, Log
from tfdoctor.logs.processes import ProcessSplitter
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.logs.signatures import Match

EXAMPLES = [line for signature in CATALOGUE.signatures for line in signature.matching_examples]
CUINIT = "2024-03-01 10:00:00.000001: E cuda_driver.cc:1] failed call to cuInit: CUDA_ERROR_NO_DEVICE"
PROMPT = "user@host:~$ python train.py"
MISSING = (
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:55] Could not load dynamic library "
    "'libcudart.so.10.1'; dlerror: libcudart.so.10.1: cannot open shared object file: No such file or directory"
)
CREATED = (
    "I tensorflow/core/common_runtime/gpu/gpu_device.cc:2022] Created device /job:localhost/replica:0/task:0/device:"
    "GPU:{0} with {1} MB memory:  -> device: {0}, name: Tesla T4, pci bus id: 0000:0{0}:00.0, compute capability: 7.5"
)
STAMPS = (
    "2024-03-01 10:00:{0:02d}.{1:06d}: ",
    "I0000 00:00:17123456{0:02d}.{1:06d}    {1} ",
    "(pid={1}) ",
    "rank {1}: ",
    "Mar  1 10:00:{0:02d} host python[{1}]: 2024-03-01 10:00:{0:02d}.000001: W ",
    "\x1b[36m(pid={1})\x1b[0m 2024-03-01 10:00:{0:02d}.000001: ",
    '{{"log":"2024-03-01 10:00:{0:02d}.000001: ',
    "> ",
    "",
)


@contextlib.contextmanager
def lower_limits(rng: random.Random) -> Iterator[None]:
    """Set every limit so low that it is soon reached."""
    with contextlib.ExitStack() as stack:
        for module, name, values in (
            (events, "MAX_KEPT_EVENTS", (2, 5)),
            (scanning, "MAX_CHANGES", (0, 2, 8)),
            (line_cache, "MAX_CACHED_BYTES", (1, 9000, 1 << 23)),
            (processes, "MAX_PROCESSES", (2, 5)),
            (processes, "_MAX_EVENTS", (5, 40)),
            (processes, "_MAX_PROCESS_EVENTS", (3, 12)),
            (blocks, "_BLOCK_BYTES", (300, 2000)),
            (reader, "_FULL_READ_BYTES", (300, 300, 1 << 18)),
            (line_cache, "_MAX_ENDS", (1, 64)),
            (line_cache, "_MAX_RESTS", (2, 4096)),
        ):
            stack.enter_context(mock.patch.object(module, name, rng.choice(values)))
        yield


def make_mixed_log(rng: random.Random) -> bytes:
    """Return a log of some kinds of lines in random order, with random digits, prefixes and line ends."""
    messages = (
        rng.sample(EXAMPLES, rng.randrange(1, 12))
        + [CUINIT, PROMPT, "step 3 loss 0.5", ""][: rng.randrange(5)]
    )
    stamps = rng.sample(STAMPS, rng.randrange(1, 4))
    variation, writers = rng.random(), rng.choice((2, 6, 40))
    lines = []
    for number in range(rng.randrange(5, 120)):
        text = rng.choice(messages)
        if rng.random() < variation:
            digits = "0123456789"
            text = "".join(
                rng.choice(digits) if char.isdigit() and rng.random() < 0.5 else char for char in text
            )
        stamp = rng.choice(stamps).format(number % 60, rng.randrange(writers))
        end = '\\n","stream":"stderr"}' if stamp.startswith("{") else ""
        second = f" {rng.choice(messages)}" if rng.random() < 0.05 else ""
        lines.append(f"{stamp}{text}{end}{second}")
    return (rng.choice(["\n", "\n", "\r\n"]).join(lines) + "\n").encode()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 40), st.booleans())
def test_cached_reading_matches_line_by_line(seed: int, bounded: bool) -> None:
    rng = random.Random(seed)
    data = make_mixed_log(rng)
    with lower_limits(rng) if bounded else contextlib.nullcontext():
        assert collect_results(data, each=False) == collect_results(data, each=True)


def test_timestamped_lines_are_grouped_by_their_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(7)
    messages = [*EXAMPLES[:20], "nothing that is known", "step 3 loss 0.5"]
    lines = [f"2024-03-01 10:00:{n % 60:02d}.{n:06d}: {rng.choice(messages)}" for n in range(6000)]
    data = "".join(f"{line}\n".replace("\n", " ").rstrip() + "\n" for line in lines).encode()
    results = []
    original = line_cache.LineCache._match_timestamped
    monkeypatch.setattr(
        line_cache.LineCache,
        "_match_timestamped",
        lambda self, rows: results.append(original(self, rows)) or results[-1],
    )
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", 1 << 14)
    assert collect_results(data, each=False) == collect_results(data, each=True)
    assert results.count(True) > 5


def test_lines_of_undistinguished_threads_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    original = line_cache.LineCache._find_kinds
    monkeypatch.setattr(
        line_cache.LineCache,
        "_find_kinds",
        lambda self, *rest: results.append(original(self, *rest)) or results[-1],
    )
    monkeypatch.setattr(processes, "MAX_PROCESSES", 2)
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", 2000)
    rng = random.Random(3)
    threads = (
        f"I0000 00:00:17123456{n % 60:02d}.{n:06d}    {rng.randrange(40)} {CREATED.format(n % 4, 7000)[2:]}\n"
        for n in range(2000)
    )
    data = "".join(threads).encode()
    assert collect_results(data, each=False) == collect_results(data, each=True)
    assert sum(result is not None for result in results) > 5


def test_process_limit_counts_no_process_twice() -> None:
    """A process beyond the limit is counted, and no earlier process is counted again."""
    line = f"2024-03-01 10:00:00.000001: {CREATED.format(0, 7000)}"
    text = "\n".join([line] * 5 + [PROMPT] * 2 + [line] * 5 + [CUINIT] * 9 + [line, PROMPT, line] * 9) + "\n"
    for limit in (1, 2, 3, 256):
        with mock.patch.object(processes, "MAX_PROCESSES", limit):
            assert collect_results(text.encode(), each=False) == collect_results(text.encode(), each=True)


CREATED_FORM = CREATED.format("{gpu}", "{n}")
LINES = {
    "one message": (20, "{stamp}" + MISSING),
    "numbers differ": (200, "{stamp}" + CREATED_FORM),
    "threads": (640, "I0000 00:00:17123{n:05d}.{n:06d}  {thread:6d} " + CREATED_FORM[2:]),
    "ranks": (500, "[1,{rank}]<stderr>:{stamp}" + MISSING),
    "one failure of each process": (400, CUINIT),
    "JSON": (40, '{{"log": "{stamp}' + MISSING + '\\n", "time": "10:00:{n:09d}"}}'),
    "colours": (500, "\x1b[36m(pid={rank})\x1b[0m {stamp}" + MISSING),
    "600 kinds": (15_000, "{stamp}{kind}"),
}
"""Name of a log: the maximum number of matched messages among 15,000 lines, and the form of its lines."""


@pytest.mark.parametrize("name", LINES)
def test_few_lines_of_each_kind_are_matched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matched = []
    matches = Catalogue.iter_matches

    def count_calls(self: Catalogue, line: str) -> Iterator[Match]:
        matched.append(line)
        return matches(self, line)

    monkeypatch.setattr(Catalogue, "iter_matches", count_calls)
    limit, line = LINES[name]
    rng = random.Random(1)
    data = "".join(
        line.format(
            stamp=f"2024-03-01 10:{n // 60 % 60:02d}:{n % 60:02d}.{n:06d}: ",
            n=n,
            gpu=n % 4,
            rank=n % 64,
            thread=rng.randrange(10**5),
            kind=f"{rng.choice(EXAMPLES)}{rng.choice(('', ' again'))}",
        )
        + "\n"
        for n in range(15_000)
    ).encode()
    log = scan([data], CATALOGUE, ProcessSplitter())
    assert max(log.event_counts.values()) > 400
    assert len(matched) < limit


def test_every_literal_contains_an_anchor() -> None:
    assert all(any(anchor in literal for anchor in CATALOGUE.anchors) for literal in CATALOGUE.literals)


def test_digits_of_the_abseil_stamp_do_not_matter() -> None:
    assert CATALOGUE.signatures_by_id["format-absl"].ignores_digits
    assert [
        m.signature.id for m in CATALOGUE.iter_matches("I0000 00:00:2795275006.158031 7590 a.h:1] b")
    ] == ["format-absl"]


def test_log_without_source_lines_does_not_load_their_table() -> None:
    compat = mock.Mock(spec=Compat)
    type(compat).source_lines = mock.PropertyMock(side_effect=AssertionError)
    assert sources.identify_sources(Log(), compat) == sources.LogSources()


def test_first_and_last_event_are_kept_in_any_order() -> None:
    def make_event(number: int, value: str) -> Event:
        return Event(CATALOGUE.signatures_by_id["cuinit"], number, number, "", {"code": value})

    log = Log()
    for event in (
        make_event(1, "a"),
        make_event(2, "b"),
        make_event(9, "a"),
        make_event(7, "a"),
        make_event(5, "b"),
    ):
        log.add(event)
    log.finish()
    assert [event.line for event in log.list_events("cuinit")] == [1, 2, 5, 9]
    assert log.event_counts == {"cuinit": 5}
