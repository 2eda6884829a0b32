"""TFD121, card-health."""

from __future__ import annotations

import pytest

from rules.kernel_facts import find_findings, make_report, with_health
from tfdoctor.facts import CardHealth
from tfdoctor.findings import Severity
from tfdoctor.rules import card_health


@pytest.mark.parametrize(
    ("health", "severity"),
    [
        (CardHealth(), None),
        (CardHealth(ecc=True, uncorrected=0, remap_pending=False, remap_failure=False), None),
        (CardHealth(uncorrected_ever=4), None),
        (CardHealth(remap_pending=True), Severity.INFO),
        (CardHealth(retirement_pending=True), Severity.INFO),
        (CardHealth(uncorrected=1), Severity.WARNING),
        (CardHealth(remap_failure=True), Severity.WARNING),
        (CardHealth(recovery="Drain and Reset"), Severity.WARNING),
    ],
)
def test_card_health(health: CardHealth, severity: Severity | None) -> None:
    report = make_report(with_health(health))
    findings = find_findings(report, card_health.RULE.code)
    assert [finding.severity for finding in findings] == ([severity] if severity is not None else [])
    assert report.root is None
