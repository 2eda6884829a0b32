"""The exit status of `check` if facts are unknown: it differs from the status of a healthy machine."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from faults.harness import HOSTS
from tfdoctor.cli.check import choose_exit_status
from tfdoctor.compat import Compat
from tfdoctor.core.facts import Absent, Facts, Unknown
from tfdoctor.core.findings import Observation, Report
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.system import RecordedSystem

NO_ANSWER = Unknown("it did not answer within 8 s", "the target Python")


@functools.cache
def healthy() -> Facts:
    recorded = RecordedSystem(HOSTS / "healthy-one-gpu")
    return run_probes(recorded, Compat.load(), requested_python=recorded.python)


def make_report(observed: Observation | None = None, **changes: Any) -> Report:
    return diagnose(dataclasses.replace(healthy(), **changes), Compat.load(), observed)


@pytest.mark.parametrize("silent", [("python", "tensorflow"), ("tensorflow",)])
def test_silent_python_exits_with_3(silent: tuple[str, ...]) -> None:
    report = make_report(**dict.fromkeys(silent, NO_ANSWER))
    assert report.verdict.gpu_usable is None
    assert choose_exit_status(report, "error") == 3
    assert choose_exit_status(report, "never") == 0
    assert choose_exit_status(report, "warning") == 1  # TFD903 is a warning


@pytest.mark.parametrize("silent", ["driver", "loader", "rehearsal"])
def test_probe_timeout_exits_with_3(silent: str) -> None:
    """Exit with 3 if a probe timed out, though Python and TensorFlow answered."""
    timed_out = Unknown("no time was left", "the look")
    fact = dataclasses.replace(healthy().driver, cuda=timed_out) if silent == "driver" else timed_out
    report = make_report(**{silent: fact})
    assert [finding.code for finding in report.findings] == ["TFD903"]
    assert choose_exit_status(report, "error") == 3
    assert choose_exit_status(report, "never") == 0


def test_error_findings_take_precedence() -> None:
    recorded = RecordedSystem(HOSTS / "card-without-driver")
    facts = run_probes(recorded, Compat.load(), requested_python=recorded.python)
    report = diagnose(dataclasses.replace(facts, python=NO_ANSWER, tensorflow=NO_ANSWER), Compat.load())
    assert choose_exit_status(report, "error") == 1


def test_missing_tensorflow_and_minor_gaps_do_not_exit_with_3() -> None:
    assert choose_exit_status(make_report(), "error") == 0
    assert (
        choose_exit_status(
            make_report(nvcc=NO_ANSWER, kernel=dataclasses.replace(healthy().kernel, log=NO_ANSWER)), "error"
        )
        == 0
    )
    report = make_report(
        tensorflow=Absent("tensorflow", "not installed"), loader=Absent("the loader", "no TensorFlow")
    )
    assert choose_exit_status(report, "error") in (0, 1)


def test_observed_tensorflow_run_is_sufficient() -> None:
    observed = Observation(
        import_ok=True, gpu_registered=True, gpu_count=1, missing_libraries=(), seconds=5.0
    )
    assert choose_exit_status(make_report(observed, tensorflow=NO_ANSWER), "error") == 0
