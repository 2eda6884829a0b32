"""TFD311, damaged-installation."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    COMPAT,
    context,
    finding,
    healthy,
    run,
)
from tfdoctor.core.facts import Absent
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.rules import (
    damaged_installation,
    tensorflow_not_installed,
)


def test_registered_tensorflow_without_files():
    facts = replace(healthy(), tensorflow=Absent("python", "no tensorflow package"))
    assert "its files are gone" in finding(damaged_installation.RULE, facts).title
    assert run(tensorflow_not_installed.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    prediction = context(facts).prediction
    assert (prediction.import_ok, prediction.gpu_registered, prediction.gpu_count) == (False, False, 0)
    report = diagnose(facts, COMPAT)
    assert report.verdict.gpu_usable is False
    assert "its files are gone" in report.verdict.summary
