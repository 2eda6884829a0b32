"""TFD901, prediction-differs."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import SAW_ONE, commands, finding, healthy, remove_libraries, run
from tfdoctor.core.findings import Observation, OutcomeKind, Severity
from tfdoctor.rules import prediction_differs

SAW_NONE = Observation(True, False, 0, ("libcufft.so.11",), 5.0)


def test_agreement_passes():
    assert run(prediction_differs.RULE, healthy(), SAW_ONE).kind is OutcomeKind.CLEAN
    assert run(prediction_differs.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE


def test_difference_asks_for_a_report():
    result = finding(prediction_differs.RULE, healthy(), SAW_NONE)
    assert result.severity is Severity.WARNING
    assert commands(result) == ["tfdoctor check --deep --json > tfdoctor-report.json"]
    assert finding(prediction_differs.RULE, remove_libraries(healthy()), SAW_ONE)
    assert finding(prediction_differs.RULE, healthy(), replace(SAW_ONE, gpu_count=2))
    failed_import = Observation(False, None, None, (), 1.0, error="ImportError")
    assert finding(prediction_differs.RULE, healthy(), failed_import)


def test_libraries_are_not_compared_after_the_first():
    facts = remove_libraries(healthy())
    observation = Observation(True, False, 0, (), 5.0)
    assert run(prediction_differs.RULE, facts, observation).kind is OutcomeKind.CLEAN


def test_check_of_a_silent_run_could_not_run():
    outcome = run(prediction_differs.RULE, healthy(), Observation(True, None, None, (), 180.0))
    assert outcome.kind is OutcomeKind.COULD_NOT_CHECK
