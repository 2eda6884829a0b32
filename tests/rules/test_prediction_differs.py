"""TFD901, prediction-differs."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import SAW_ONE, commands, finding, healthy, remove_libraries, run
from tfdoctor.findings import Observation, OutcomeKind, Severity
from tfdoctor.rules import prediction_differs

SAW_NONE = Observation(True, False, 0, ("libcufft.so.11",), 5.0)


def test_agreement_is_clean():
    assert run(prediction_differs.RULE, healthy(), SAW_ONE).kind is OutcomeKind.CLEAN
    assert run(prediction_differs.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE


def test_a_difference_asks_for_a_report():
    one = finding(prediction_differs.RULE, healthy(), SAW_NONE)
    assert one.severity is Severity.WARNING
    assert commands(one) == ["tfdoctor check --deep --json > tfdoctor-report.json"]
    assert finding(prediction_differs.RULE, remove_libraries(healthy()), SAW_ONE)
    assert finding(prediction_differs.RULE, healthy(), replace(SAW_ONE, gpu_count=2))
    broken = Observation(False, None, None, (), 1.0, error="ImportError")
    assert finding(prediction_differs.RULE, healthy(), broken)


def test_an_import_error_names_only_the_first():
    facts = remove_libraries(healthy())
    first = Observation(True, False, 0, (), 5.0)
    assert run(prediction_differs.RULE, facts, first).kind is OutcomeKind.CLEAN


def test_silence_is_not_agreement():
    outcome = run(prediction_differs.RULE, healthy(), Observation(True, None, None, (), 180.0))
    assert outcome.kind is OutcomeKind.COULD_NOT_CHECK
