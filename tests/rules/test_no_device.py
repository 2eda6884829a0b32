"""TFD102, no-device."""

from __future__ import annotations

import dataclasses

import pytest

from rules.kernel_facts import load_facts, make_report, outcome_kind, with_events
from tfdoctor.core.facts import KernelEvent, Unknown
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.rules import no_device


@pytest.mark.parametrize(
    ("kind", "xid", "words"),
    [
        ("xid", 79, "fallen off the bus"),
        ("bus-lost", None, "fallen off the bus"),
        ("bad-bar", None, "address space"),
        ("firmware-missing", None, "firmware"),
        ("needs-open", None, "open kernel module"),
        ("not-supported", None, "does not know the card"),
        ("init-failed", None, "cannot start the card"),
    ],
)
def test_kernel_log_explains_the_missing_device(kind: str, xid: int | None, words: str) -> None:
    facts = with_events("fallen-off-the-bus", KernelEvent(kind, "NVRM: it says so", xid))
    report = make_report(facts)
    assert report.root_finding is not None
    assert report.root_finding.code == no_device.RULE.code
    assert words in report.root_finding.title


def test_general_rule_leads_if_module_files_are_unknown() -> None:
    facts = load_facts("kernel-updated")
    kernel = dataclasses.replace(facts.kernel, modules=Unknown("not to be seen"))
    report = make_report(dataclasses.replace(facts, kernel=kernel))
    assert report.root_finding is not None
    assert report.root_finding.code == no_device.RULE.code
    assert outcome_kind(report, "TFD117") is OutcomeKind.COULD_NOT_CHECK


def test_gpu_lost_from_the_bus_is_reported() -> None:
    facts = with_events("fallen-off-the-bus")
    kernel = dataclasses.replace(facts.kernel, lost_cards=("0000:01:00.0",))
    report = make_report(dataclasses.replace(facts, kernel=kernel))
    assert report.root_finding is not None
    assert "does not answer on the bus" in report.root_finding.title


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("kernel-updated", "TFD117"),
        ("secure-boot-refuses", "TFD118"),
        ("module-blacklisted", "TFD119"),
        ("prime-select-intel", "TFD119"),
    ],
)
def test_specific_rule_replaces_the_general_one(host: str, code: str) -> None:
    report = make_report(load_facts(host))
    assert report.root_finding is not None
    assert report.root_finding.code == code
    assert outcome_kind(report, no_device.RULE.code) is OutcomeKind.NOT_APPLICABLE
