"""TFD121, card-health."""

from __future__ import annotations

import pytest

from rules.kernel_facts import find_findings, make_report, with_health
from tfdoctor.core.facts import GpuCondition
from tfdoctor.core.findings import Severity
from tfdoctor.rules import card_health


@pytest.mark.parametrize(
    ("health", "severity"),
    [
        (GpuCondition(), None),
        (GpuCondition(ecc=True, uncorrected=0, remap_pending=False, remap_failure=False), None),
        (GpuCondition(uncorrected_ever=4), None),
        (GpuCondition(remap_pending=True), Severity.INFO),
        (GpuCondition(retirement_pending=True), Severity.INFO),
        (GpuCondition(uncorrected=1), Severity.WARNING),
        (GpuCondition(remap_failure=True), Severity.WARNING),
        (GpuCondition(recovery="Drain and Reset"), Severity.WARNING),
    ],
)
def test_card_health(health: GpuCondition, severity: Severity | None) -> None:
    report = make_report(with_health(health))
    findings = find_findings(report, card_health.RULE.code)
    assert [finding.severity for finding in findings] == ([severity] if severity is not None else [])
    assert report.root_finding is None
