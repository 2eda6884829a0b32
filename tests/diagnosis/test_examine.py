"""Examination in one place: probes, an optional run of TensorFlow, evaluation, and prompt handling of signals."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.facts import Absent
from tfdoctor.core.findings import Observation
from tfdoctor.diagnosis import RUN_TENSORFLOW_MESSAGE, collect_facts, evaluate_facts, examine, run_tensorflow
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.core.facts import Facts

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
COMPAT = Compat.load()
OBSERVATION = Observation(
    import_ok=True, gpu_registered=True, gpu_count=1, missing_libraries=(), seconds=2.0, devices=("GPU:0",)
)


def load_healthy_host() -> RecordedSystem:
    """Return the recorded host `healthy-one-gpu`."""
    return RecordedSystem(HOSTS / "healthy-one-gpu")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the run of TensorFlow and return the list of the timeouts that it was called with."""
    timeouts: list[float] = []

    def observe(*_: Any, timeout: float, computes: bool) -> Observation:
        assert computes
        timeouts.append(timeout)
        return OBSERVATION

    monkeypatch.setattr("tfdoctor.diagnosis.tensorflow_run.observe_tensorflow", observe)
    return timeouts


def test_examine_equals_its_parts(ran: list[float]) -> None:
    report = examine(load_healthy_host(), COMPAT)
    assert report.observed is None
    facts = replace(collect_facts(load_healthy_host(), COMPAT), seconds=report.facts.seconds)
    assert evaluate_facts(facts, COMPAT) == report
    assert not ran


@pytest.mark.parametrize(
    ("deep", "runs"),
    [
        (False, False),
        (True, True),
        (lambda facts: facts.machine.system == "Linux", True),
        (lambda facts: facts.machine.system == "Windows", False),
    ],
)
def test_tensorflow_is_run_only_on_request(
    deep: bool | Callable[[Facts], bool], runs: bool, ran: list[float]
) -> None:
    messages: list[str] = []
    report = examine(load_healthy_host(), COMPAT, timeout=500, deep=deep, on_message=messages.append)
    assert (report.observed is OBSERVATION) is runs
    assert messages == [RUN_TENSORFLOW_MESSAGE] * runs
    assert ran == [500] * runs


def test_missing_tensorflow_is_not_run(ran: list[float]) -> None:
    messages: list[str] = []
    facts = collect_facts(RecordedSystem(HOSTS / "no-card-no-driver"), COMPAT)
    without = replace(facts, tensorflow=Absent("x", "there is none"))
    assert run_tensorflow(load_healthy_host(), COMPAT, without, on_message=messages.append) is None
    assert not messages
    assert not ran


INTERRUPT_SCRIPT = """
import os, signal, sys
from types import SimpleNamespace

import tfdoctor.diagnosis as package
from tfdoctor.verification import session, target_stages
from tfdoctor.diagnosis import collect, tensorflow_run
from tfdoctor.probes import python
from tfdoctor.core.facts import Known
from tfdoctor.system.signals import handle_termination_signals

stopped = []
system = SimpleNamespace(stop=lambda: stopped.append("stop"), read_text=lambda path: "")


def part(*_, **__):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass  # as CPython does where it is within one of its own callbacks
    return ("answer", "result")


collect.run_probes = python.probe = tensorflow_run.observe_tensorflow = target_stages.run_payload = part
one, tensorflow = SimpleNamespace(executable="python"), SimpleNamespace()
facts = SimpleNamespace(python=Known(one, "x"), tensorflow=Known(tensorflow, "x"))
run = session.VerificationRun("x", session.VerifyRequest(device="CPU"), print)
calls = {
    "examine": lambda: package.examine(system, None),
    "look": lambda: package.collect_facts(system, None),
    "run_tensorflow": lambda: package.run_tensorflow(system, None, facts),
    "ask_python": lambda: package.query_chosen_python(system, None, is_requested=False),
    "verify": lambda: target_stages._run_payload(run, system, "python", facts),
}
try:
    with handle_termination_signals():
        calls[sys.argv[1]]()
except KeyboardInterrupt:
    print("heard", stopped)
"""


@pytest.mark.parametrize("name", ["examine", "look", "run_tensorflow", "ask_python", "verify"])
def test_interrupt_dropped_by_cpython_is_handled(name: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPT_SCRIPT, name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.stdout == "heard ['stop']\n", process.stderr
