"""Lines of many kinds: each kind is read once, and the answer is that of reading every line."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.everything import CATALOGUE, keep_outcome
from tfdoctor.compat import Compat
from tfdoctor.logs import blocks, events, line_cache, processes, reader, sources
from tfdoctor.logs import scan as scanning
from tfdoctor.logs.events import Event, Log
from tfdoctor.logs.processes import Splitter
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.logs.signatures import Match

EXAMPLES = [line for signature in CATALOGUE.signatures for line in signature.match]
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
def narrow(chance: random.Random) -> Iterator[None]:
    """Every bound is soon reached."""
    with contextlib.ExitStack() as stack:
        for room, name, values in (
            (events, "MAX_KEPT_EVENTS", (2, 5)),
            (scanning, "TURNS", (0, 2, 8)),
            (line_cache, "REMEMBERED", (1, 9000, 1 << 23)),
            (processes, "MAX_PROCESSES", (2, 5)),
            (processes, "_EVENTS", (5, 40)),
            (processes, "_EVENTS_OF_ONE", (3, 12)),
            (blocks, "_BLOCK", (300, 2000)),
            (reader, "_FULL_READ_BYTES", (300, 300, 1 << 18)),
            (line_cache, "_ENDS", (1, 64)),
            (line_cache, "_RESTS", (2, 4096)),
        ):
            stack.enter_context(mock.patch.object(room, name, chance.choice(values)))
        yield


def mix_kinds(chance: random.Random) -> bytes:
    """Some kinds of lines in any order, some of their digits others each time, behind whatever comes before them."""
    said = (
        chance.sample(EXAMPLES, chance.randrange(1, 12))
        + [CUINIT, PROMPT, "step 3 loss 0.5", ""][: chance.randrange(5)]
    )
    stamps = chance.sample(STAMPS, chance.randrange(1, 4))
    often, people = chance.random(), chance.choice((2, 6, 40))
    lines = []
    for number in range(chance.randrange(5, 120)):
        text = chance.choice(said)
        if chance.random() < often:
            digits = "0123456789"
            text = "".join(
                chance.choice(digits) if c.isdigit() and chance.random() < 0.5 else c for c in text
            )
        stamp = chance.choice(stamps).format(number % 60, chance.randrange(people))
        end = '\\n","stream":"stderr"}' if stamp.startswith("{") else ""
        more = f" {chance.choice(said)}" if chance.random() < 0.05 else ""
        lines.append(f"{stamp}{text}{end}{more}")
    return (chance.choice(["\n", "\n", "\r\n"]).join(lines) + "\n").encode()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 40), st.booleans())
def test_kinds_in_any_order_tell_what_each_line_tells(seed: int, bounded: bool) -> None:
    chance = random.Random(seed)
    data = mix_kinds(chance)
    with narrow(chance) if bounded else contextlib.nullcontext():
        assert keep_outcome(data, each=False) == keep_outcome(data, each=True)


def test_lines_that_all_begin_with_the_time_are_counted_by_what_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(7)
    said = [*EXAMPLES[:40], "nothing that is known", "step 3 loss 0.5"]
    lines = [f"2024-03-01 10:00:{n % 60:02d}.{n:06d}: {chance.choice(said)}" for n in range(6000)]
    data = "".join(f"{line}\n".replace("\n", " ").rstrip() + "\n" for line in lines).encode()
    counted = []
    alike = line_cache.Kinds._alike
    monkeypatch.setattr(
        line_cache.Kinds, "_alike", lambda self, rows: counted.append(alike(self, rows)) or counted[-1]
    )
    monkeypatch.setattr(blocks, "_BLOCK", 1 << 14)
    assert keep_outcome(data, each=False) == keep_outcome(data, each=True)
    assert counted.count(True) > 5


def test_what_was_said_before_a_process_ended_is_no_other_one() -> None:
    """A process that begins where no more are told apart is counted, and none that spoke before it."""
    line = f"2024-03-01 10:00:00.000001: {CREATED.format(0, 7000)}"
    text = "\n".join([line] * 5 + [PROMPT] * 2 + [line] * 5 + [CUINIT] * 9 + [line, PROMPT, line] * 9) + "\n"
    for most in (1, 2, 3, 256):
        with mock.patch.object(processes, "MAX_PROCESSES", most):
            assert keep_outcome(text.encode(), each=False) == keep_outcome(text.encode(), each=True)


MADE = CREATED.format("{gpu}", "{n}")
LINES = {
    "one message": (20, "{stamp}" + MISSING),
    "numbers differ": (200, "{stamp}" + MADE),
    "threads": (640, "I0000 00:00:17123{n:05d}.{n:06d}  {thread:6d} " + MADE[2:]),
    "ranks": (500, "[1,{rank}]<stderr>:{stamp}" + MISSING),
    "one failure of each process": (400, CUINIT),
    "JSON": (40, '{{"log": "{stamp}' + MISSING + '\\n", "time": "10:00:{n:09d}"}}'),
    "colours": (500, "\x1b[36m(pid={rank})\x1b[0m {stamp}" + MISSING),
    "400 kinds": (13_000, "{stamp}{kind}"),
}
"""How many messages are matched at most, of 15,000 lines."""


@pytest.mark.parametrize("name", LINES)
def test_of_each_kind_a_few_lines_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    matches = Catalogue.matches

    def count_calls(self: Catalogue, line: str) -> Iterator[Match]:
        asked.append(line)
        return matches(self, line)

    monkeypatch.setattr(Catalogue, "matches", count_calls)
    most, line = LINES[name]
    chance = random.Random(1)
    data = "".join(
        line.format(
            stamp=f"2024-03-01 10:{n // 60 % 60:02d}:{n % 60:02d}.{n:06d}: ",
            n=n,
            gpu=n % 4,
            rank=n % 64,
            thread=chance.randrange(10**5),
            kind=f"{chance.choice(EXAMPLES)}{chance.choice(('', ' again'))}",
        )
        + "\n"
        for n in range(15_000)
    ).encode()
    log = scan([data], CATALOGUE, Splitter())
    assert max(log.counts.values()) > 400
    assert len(asked) < most


def test_every_literal_is_found_by_an_anchor() -> None:
    assert all(any(anchor in literal for anchor in CATALOGUE.anchors) for literal in CATALOGUE.literals)


def test_the_abseil_loggers_stamp_has_no_digit_that_matters() -> None:
    assert CATALOGUE.map_ids["format-absl"].blind
    assert [m.signature.id for m in CATALOGUE.matches("I0000 00:00:2795275006.158031 7590 a.h:1] b")] == [
        "format-absl"
    ]


def test_a_log_without_a_numbered_line_does_not_load_the_table_of_them() -> None:
    compat = mock.Mock(spec=Compat)
    type(compat).source_lines = mock.PropertyMock(side_effect=AssertionError)
    assert sources.identify_sources(Log(), compat) == sources.LogSources()


def test_of_each_event_the_first_and_the_last_are_kept_in_whatever_order_they_come() -> None:
    def make_output(number: int, value: str) -> Event:
        return Event(CATALOGUE.map_ids["cuinit"], number, number, "", {"code": value})

    log = Log()
    for event in (
        make_output(1, "a"),
        make_output(2, "b"),
        make_output(9, "a"),
        make_output(7, "a"),
        make_output(5, "b"),
    ):
        log.add(event)
    log.finish()
    assert [event.line for event in log.list_events("cuinit")] == [1, 2, 5, 9]
    assert log.counts == {"cuinit": 5}
