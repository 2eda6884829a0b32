"""Where the answer could not be known, `check` does not end as where all is well."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from faults.harness import HOSTS
from tfdoctor.cli.check import exit_status
from tfdoctor.compat import Compat
from tfdoctor.examine.collect import survey
from tfdoctor.facts import Absent, Facts, Unknown
from tfdoctor.findings import Observation, Report
from tfdoctor.report.diagnose import diagnose
from tfdoctor.system import RecordedSystem

SILENT = Unknown("it did not answer within 8 s", "the target Python")


@functools.cache
def healthy() -> Facts:
    recorded = RecordedSystem(HOSTS / "healthy-one-gpu")
    return survey(recorded, Compat.load(), requested_python=recorded.python)


def make_report(observed: Observation | None = None, **changed: Any) -> Report:
    return diagnose(dataclasses.replace(healthy(), **changed), Compat.load(), observed)


@pytest.mark.parametrize("silent", [("python", "tensorflow"), ("tensorflow",)])
def test_a_python_that_says_nothing_is_3(silent: tuple[str, ...]) -> None:
    report = make_report(**dict.fromkeys(silent, SILENT))
    assert report.verdict.gpu_usable is None
    assert exit_status(report, "error") == 3
    assert exit_status(report, "never") == 0
    assert exit_status(report, "warning") == 1  # TFD903 is one


@pytest.mark.parametrize("silent", ["driver", "loader", "rehearsal"])
def test_a_look_that_ran_out_of_time_is_3(silent: str) -> None:
    """The Python and its TensorFlow answered; what stands between them and the GPU did not."""
    late = Unknown("no time was left", "the look")
    changed = dataclasses.replace(healthy().driver, cuda=late) if silent == "driver" else late
    report = make_report(**{silent: changed})
    assert [finding.code for finding in report.findings] == ["TFD903"]
    assert exit_status(report, "error") == 3
    assert exit_status(report, "never") == 0


def test_what_is_found_counts_more() -> None:
    recorded = RecordedSystem(HOSTS / "card-without-driver")
    seen = survey(recorded, Compat.load(), requested_python=recorded.python)
    report = diagnose(dataclasses.replace(seen, python=SILENT, tensorflow=SILENT), Compat.load())
    assert exit_status(report, "error") == 1


def test_no_tensorflow_and_smaller_gaps_are_no_such_case() -> None:
    assert exit_status(make_report(), "error") == 0
    assert (
        exit_status(
            make_report(nvcc=SILENT, kernel=dataclasses.replace(healthy().kernel, log=SILENT)), "error"
        )
        == 0
    )
    without = make_report(
        tensorflow=Absent("tensorflow", "not installed"), loader=Absent("the loader", "no TensorFlow")
    )
    assert exit_status(without, "error") in (0, 1)


def test_tensorflow_that_was_run_is_known() -> None:
    observed = Observation(
        import_ok=True, gpu_registered=True, gpu_count=1, missing_libraries=(), seconds=5.0
    )
    assert exit_status(make_report(observed, tensorflow=SILENT), "error") == 0
