"""TFD311, damaged-installation."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    COMPAT,
    commands,
    context,
    finding,
    healthy,
    run,
    with_tensorflow,
)
from tfdoctor.core.facts import Absent
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.rules import (
    damaged_installation,
    tensorflow_not_installed,
)


def test_missing_files_are_reinstalled():
    facts = with_tensorflow(healthy(), missing_files=("python/_pywrap_tensorflow_internal.so",))
    result = finding(damaged_installation.RULE, facts)
    assert "--force-reinstall --no-deps tensorflow==2.18.1" in commands(result)[0]
    assert context(facts).prediction.import_ok is False


def test_registered_tensorflow_without_files():
    facts = replace(healthy(), tensorflow=Absent("python", "no tensorflow package"))
    assert "its files are gone" in finding(damaged_installation.RULE, facts).title
    assert run(tensorflow_not_installed.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    prediction = context(facts).prediction
    assert (prediction.import_ok, prediction.gpu_registered, prediction.gpu_count) == (False, False, 0)
    report = diagnose(facts, COMPAT)
    assert report.verdict.gpu_usable is False
    assert "its files are gone" in report.verdict.summary


def test_unregistered_tensorflow_is_an_info():
    assert (
        finding(damaged_installation.RULE, with_tensorflow(healthy(), distribution=None)).severity
        is Severity.INFO
    )
