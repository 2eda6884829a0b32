"""Deadlines on a busy machine, and the message about a probe that takes long."""

from __future__ import annotations

import time

import pytest

from tfdoctor.diagnosis import collect
from tfdoctor.probes import target
from tfdoctor.probes.target import extend_timeout


class LoadedSystem:
    """A system of which only the load is known."""

    def __init__(self, loadavg: str | None) -> None:
        self.loadavg = loadavg

    def read_text(self, path: str) -> str:
        assert path == "/proc/loadavg"
        if self.loadavg is None:
            raise FileNotFoundError(path)
        return self.loadavg


@pytest.mark.parametrize(
    ("loadavg", "timeout", "extended"),
    [
        ("0.30 0.20 0.10 1/345 678\n", 10.0, 10.0),
        ("6.00 2.00 1.00 3/345 678\n", 10.0, 30.0),
        ("0.50 0.20 0.10 8/345 678\n", 10.0, 40.0),  # busy since a moment ago
        ("90.0 2.00 1.00 3/345 678\n", 10.0, 60.0),
        ("6.00 2.00 1.00 3/345 678\n", 100.0, 100.0),
        ("6.00 2.00 1.00 3/345 678\n", 2.0, 2.0),  # the user wants it so
        ("nonsense", 10.0, 10.0),
        (None, 10.0, 10.0),
    ],
)
def test_busy_machine_gets_more_time(monkeypatch, loadavg, timeout, extended):
    monkeypatch.setattr(target.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert extend_timeout(LoadedSystem(loadavg), timeout) == extended


def test_message_says_once_what_is_awaited(monkeypatch):
    monkeypatch.setattr(collect, "NOTICE_AFTER_S", 0.05)
    messages: list[str] = []
    probes = collect._Probes(5.0, messages.append)
    slow = [probes.start("slow", lambda: time.sleep(0.2) or "answer") for _ in range(2)]
    assert [probes.get_value(result, "the driver", lambda unknown: unknown.why) for result in slow] == [
        "answer",
        "answer",
    ]
    assert len(messages) == 1
    assert "the driver" in messages[0]


def test_short_deadline_has_no_message(monkeypatch):
    messages: list[str] = []
    probes = collect._Probes(0.05, messages.append)
    result = probes.start("slow", lambda: time.sleep(1))
    assert "did not finish in time" in str(
        probes.get_value(result, "the driver", lambda unknown: unknown.why)
    )
    assert messages == []
