"""TFD116, kernel-log."""

from __future__ import annotations

import pytest

from rules.kernel_facts import find_findings, make_report, with_events
from tfdoctor.core.facts import KernelEvent
from tfdoctor.core.findings import Severity
from tfdoctor.rules import kernel_log
from tfdoctor.rules.shared import xids


@pytest.mark.parametrize("number", [*xids.XIDS, 7, 999])
def test_xid_does_not_make_a_working_gpu_unusable(number: int) -> None:
    event = KernelEvent("xid", f"NVRM: Xid (PCI:0000:01:00): {number}, x", number, "0000:01:00.0")
    report = make_report(with_events("healthy-one-gpu", event))
    (finding,) = find_findings(report, kernel_log.RULE.code)
    assert finding.severity < Severity.ERROR
    assert report.root_finding is None
    assert report.verdict.gpu_usable is True
    assert f"Xid {number}" in finding.explanation
