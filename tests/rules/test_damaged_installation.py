"""TFD311, damaged-installation."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    COMPAT,
    context,
    finding,
    healthy,
    run,
    with_environment,
)
from tfdoctor.core.facts import Absent, Known, value_of
from tfdoctor.core.findings import Cause, OutcomeKind
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.rules import (
    damaged_installation,
    tensorflow_not_installed,
)


def test_tensorflow_in_an_archive() -> None:
    tensorflow = value_of(healthy().tensorflow)
    assert tensorflow is not None
    tensorflow = replace(
        tensorflow, package_dir="/d/x.zip/tensorflow", missing_files=("__init__.py",), archive="/d/x.zip"
    )
    facts = replace(healthy(), tensorflow=Known(tensorflow, "python"))
    facts = with_environment(facts, PYTHONPATH="/d/x.zip:/mine")
    result = finding(damaged_installation.RULE, facts)
    assert result.cause is Cause.DAMAGED_FILE
    assert "/d/x.zip" in result.title
    commands = result.remedies[0].commands
    assert commands[0] == "export PYTHONPATH=/mine"
    assert " install tensorflow" in commands[1]
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
