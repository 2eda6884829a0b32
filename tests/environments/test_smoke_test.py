"""What the test of a new environment concludes from a report, and with which variables it examines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rules.make_facts import COMPAT, healthy, make_missing, with_loader, without_tensorflow
from tfdoctor.core.facts import Facts, Known, Unknown, value_of
from tfdoctor.core.findings import Observation, Report
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.environments import smoke_test
from tfdoctor.environments.smoke_test import examine_installed, is_gpu_missing, is_intact


def make_report(facts: Facts | None = None, **prediction: Any) -> Report:
    report = diagnose(facts or healthy(), COMPAT)
    return dataclasses.replace(report, prediction=dataclasses.replace(report.prediction, **prediction))


def observe(import_ok: bool, registered: bool | None) -> Observation:
    return Observation(import_ok, registered, 0, (), 1.0)


def test_intact_environment() -> None:
    intact = make_report()
    assert is_intact(intact)
    assert is_intact(make_report(missing_libraries=("libcuda.so.1",)))
    assert not is_intact(make_report(missing_libraries=("libcuda.so.1", "libcudart.so.12")))
    assert is_intact(make_report(import_ok=None))
    assert not is_intact(make_report(import_ok=False))
    assert not is_intact(diagnose(without_tensorflow(healthy()), COMPAT))
    broken = diagnose(with_loader(healthy(), make_missing("libcudart.so.12")), COMPAT)
    assert not is_intact(dataclasses.replace(broken, prediction=intact.prediction))
    driver = healthy()
    cuda = value_of(driver.driver.cuda)
    assert cuda is not None
    no_gpu = Known(dataclasses.replace(cuda, init=100, count=0, devices=()), "x")
    report = diagnose(
        dataclasses.replace(driver, driver=dataclasses.replace(driver.driver, cuda=no_gpu)), COMPAT
    )
    assert report.findings
    assert is_intact(report)  # the machine's fault
    assert is_intact(dataclasses.replace(intact, observed=observe(True, False)))
    assert not is_intact(dataclasses.replace(intact, observed=observe(False, None)))


@pytest.mark.parametrize(
    ("observed", "predicted", "missing"),
    [
        (observe(True, False), True, True),
        (observe(True, False), False, False),
        (observe(True, False), None, False),
        (observe(True, True), True, False),
        (observe(True, None), True, False),
        (None, True, False),
    ],
)
def test_missing_gpu(observed: Observation | None, predicted: bool | None, missing: bool) -> None:
    report = dataclasses.replace(make_report(gpu_registered=predicted), observed=observed)
    assert is_gpu_missing(report) is missing


def test_examination_has_no_variables_of_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(smoke_test, "LiveSystem", lambda *, env: env)
    monkeypatch.setattr(
        smoke_test, "examine", lambda system, _, **options: calls.append({"env": system, **options})
    )
    names = (
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "TFDOCTOR_INSTALLING",
        "LD_LIBRARY_PATH",
        "A",
    )
    request = cast("Any", SimpleNamespace(env=dict.fromkeys(names, "x"), folder=Path("/env")))
    progress = cast("Any", SimpleNamespace(begin_stage=None))
    facts = healthy()
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    for run_tensorflow in (True, False):
        examine_installed(request, COMPAT, progress, run_tensorflow=run_tensorflow)
    assert calls[0]["env"] == {"LD_LIBRARY_PATH": "x", "A": "x"}
    assert calls[0]["python"] == "/env/bin/python"
    for fact, runs in (
        (Known(cuda, "x"), True),
        (Known(dataclasses.replace(cuda, devices=()), "x"), False),
        (Unknown("x", "no"), False),
    ):
        changed = dataclasses.replace(facts, driver=dataclasses.replace(facts.driver, cuda=fact))
        assert [call["deep"](changed) for call in calls] == [runs, False]
