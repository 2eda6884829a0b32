"""TFD902, unknown-release."""

from __future__ import annotations

from rules.make_facts import finding, healthy, run, with_tensorflow
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import unknown_release


def test_unknown_release_is_an_info():
    assert run(unknown_release.RULE, healthy()).kind is OutcomeKind.CLEAN
    result = finding(unknown_release.RULE, with_tensorflow(healthy(), version="2.30.0"))
    assert result.severity is Severity.INFO
    assert "2.30.0" in result.title
