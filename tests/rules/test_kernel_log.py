"""TFD116, kernel-log."""

from __future__ import annotations

import pytest

from rules.kernel_facts import find_findings, load_facts, make_report, outcome_kind, with_events
from tfdoctor.core.facts import KernelEvent
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import kernel_log
from tfdoctor.rules.shared import xids


def test_check_of_an_unreadable_log_could_not_run() -> None:
    report = make_report(load_facts("log-for-root-only"))
    assert outcome_kind(report, "TFD116") is OutcomeKind.COULD_NOT_CHECK
    assert report.verdict.gpu_usable is True


def test_check_without_a_log_is_skipped() -> None:
    assert outcome_kind(make_report(load_facts("healthy-one-gpu")), "TFD116") is OutcomeKind.NOT_APPLICABLE


@pytest.mark.parametrize("number", [*xids.XIDS, 7, 999])
def test_xid_does_not_make_a_working_gpu_unusable(number: int) -> None:
    event = KernelEvent("xid", f"NVRM: Xid (PCI:0000:01:00): {number}, x", number, "0000:01:00.0")
    report = make_report(with_events("healthy-one-gpu", event))
    (finding,) = find_findings(report, kernel_log.RULE.code)
    assert finding.severity < Severity.ERROR
    assert report.root_finding is None
    assert report.verdict.gpu_usable is True
    assert f"Xid {number}" in finding.explanation


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_xid_of_a_program_is_an_info(number: int) -> None:
    event = KernelEvent("xid", "NVRM: Xid", number, "0000:01:00.0")
    (finding,) = find_findings(make_report(with_events("healthy-one-gpu", event)), kernel_log.RULE.code)
    assert finding.severity is Severity.INFO


def test_recovery_action_of_the_driver_is_reported() -> None:
    text = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    (finding,) = find_findings(
        make_report(with_events("healthy-one-gpu", KernelEvent("xid", text, 154))), kernel_log.RULE.code
    )
    assert "(Node Reboot Required)" in finding.explanation
