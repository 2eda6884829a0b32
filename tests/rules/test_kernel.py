"""What rules about the kernel around the driver leave open, and that a warning never leads the report."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import pytest

from tfdoctor.compat import Compat
from tfdoctor.examine.survey import survey
from tfdoctor.facts import CardHealth, Facts, KernelEvent, Known, SmiFacts, Unknown, value_of
from tfdoctor.findings import Finding, OutcomeKind, Report, Severity
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import card_health, card_slowed, kernel_log, no_device
from tfdoctor.rules.shared import xids
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).parents[1] / "hosts"
COMPAT = Compat.load()


@cache
def seen(host: str) -> Facts:
    return survey(RecordedSystem(HOSTS / host), COMPAT)


def judged(facts: Facts) -> Report:
    return diagnose(facts, COMPAT)


def of(report: Report, code: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == code]


def ended(report: Report, code: str) -> OutcomeKind:
    return next(outcome.kind for outcome in report.outcomes if outcome.code == code)


def with_events(host: str, *events: KernelEvent) -> Facts:
    facts = seen(host)
    return dataclasses.replace(facts, kernel=dataclasses.replace(facts.kernel, log=Known(events, "dmesg")))


def with_health(health: CardHealth) -> Facts:
    facts = seen("healthy-one-gpu")
    smi = value_of(facts.driver.smi)
    assert isinstance(smi, SmiFacts)
    gpus = tuple(dataclasses.replace(gpu, health=health) for gpu in smi.gpus)
    told = Known(dataclasses.replace(smi, gpus=gpus), "nvidia-smi -q -x")
    return dataclasses.replace(facts, driver=dataclasses.replace(facts.driver, smi=told))


def test_a_log_for_root_only_is_a_check_that_could_not_be_made() -> None:
    report = judged(seen("log-for-root-only"))
    assert ended(report, "TFD116") is OutcomeKind.COULD_NOT_CHECK
    assert report.verdict.gpu_usable is True


def test_without_any_log_there_is_nothing_to_check() -> None:
    assert ended(judged(seen("healthy-one-gpu")), "TFD116") is OutcomeKind.NOT_APPLICABLE


@pytest.mark.parametrize("number", [*xids.XIDS, 7, 999])
def test_no_xid_alone_makes_a_card_that_answers_unusable(number: int) -> None:
    event = KernelEvent("xid", f"NVRM: Xid (PCI:0000:01:00): {number}, x", number, "0000:01:00.0")
    report = judged(with_events("healthy-one-gpu", event))
    (finding,) = of(report, kernel_log.RULE.code)
    assert finding.severity < Severity.ERROR
    assert report.root is None
    assert report.verdict.gpu_usable is True
    assert f"Xid {number}" in finding.explanation


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_what_a_program_did_is_no_warning(number: int) -> None:
    event = KernelEvent("xid", "NVRM: Xid", number, "0000:01:00.0")
    (finding,) = of(judged(with_events("healthy-one-gpu", event)), kernel_log.RULE.code)
    assert finding.severity is Severity.INFO


def test_what_the_driver_asks_for_is_told() -> None:
    text = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    (finding,) = of(
        judged(with_events("healthy-one-gpu", KernelEvent("xid", text, 154))), kernel_log.RULE.code
    )
    assert "(Node Reboot Required)" in finding.explanation


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
def test_the_log_tells_why_no_device_is_shown(kind: str, xid: int | None, words: str) -> None:
    facts = with_events("fallen-off-the-bus", KernelEvent(kind, "NVRM: it says so", xid))
    report = judged(facts)
    assert report.root is not None
    assert report.root.code == no_device.RULE.code
    assert words in report.root.title


def test_cards_that_answer_all_ones_are_told() -> None:
    facts = with_events("fallen-off-the-bus")
    kernel = dataclasses.replace(facts.kernel, lost_cards=("0000:01:00.0",))
    report = judged(dataclasses.replace(facts, kernel=kernel))
    assert report.root is not None
    assert "does not answer on the bus" in report.root.title


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("kernel-updated", "TFD117"),
        ("secure-boot-refuses", "TFD118"),
        ("module-blacklisted", "TFD119"),
        ("prime-select-intel", "TFD119"),
    ],
)
def test_the_reason_leads_and_the_general_rule_steps_back(host: str, code: str) -> None:
    report = judged(seen(host))
    assert report.root is not None
    assert report.root.code == code
    assert ended(report, no_device.RULE.code) is OutcomeKind.NOT_APPLICABLE


def test_where_the_modules_files_are_unknown_the_general_rule_leads() -> None:
    facts = seen("kernel-updated")
    kernel = dataclasses.replace(facts.kernel, modules=Unknown("not to be seen"))
    report = judged(dataclasses.replace(facts, kernel=kernel))
    assert report.root is not None
    assert report.root.code == no_device.RULE.code
    assert ended(report, "TFD117") is OutcomeKind.COULD_NOT_CHECK


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
    report = judged(with_health(health))
    found = of(report, card_health.RULE.code)
    assert [finding.severity for finding in found] == ([severity] if severity is not None else [])
    assert report.root is None


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (CardHealth(slowdowns=("sw_power_cap",)), None),
        (CardHealth(slowdowns=("hw_slowdown", "hw_thermal_slowdown"), temperature=97), "97 °C"),
        (CardHealth(slowdowns=("hw_power_brake_slowdown",)), "power supply"),
        (CardHealth(power_limit=300.0, power_default=350.0), None),
        (CardHealth(power_limit=150.0, power_default=350.0), "150 W"),
        (CardHealth(power_limit=150.0), None),
    ],
)
def test_card_slowed(health: CardHealth, said: str | None) -> None:
    found = of(judged(with_health(health)), card_slowed.RULE.code)
    assert bool(found) is (said is not None)
    if said is not None:
        assert said in found[0].explanation


def test_holders_are_named_by_user_program_and_amount() -> None:
    (finding,) = of(judged(seen("earlier-notebook")), "TFD603")
    for words in (
        "(pid 4242) of yours, 14000 MiB",
        "train.py (pid 5151) of alice",
        "no longer there",
        "Xorg",
    ):
        assert words in finding.explanation
    assert "secret" not in finding.explanation
    assert any("kill 4242" in remedy.commands for remedy in finding.remedies)
    assert not any("5151" in command for remedy in finding.remedies for command in remedy.commands)


def test_what_tensorflow_would_take_of_the_rest_is_said() -> None:
    report = judged(seen("one-of-two-busy"))
    (finding,) = of(report, "TFD603")
    assert "about 3040 MiB" in finding.explanation  # 24576 - 20000, less the 1536 that it leaves on 8.x
