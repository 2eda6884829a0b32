"""TFD101, no-driver."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import no_driver

CODE = no_driver.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "card-without-driver",
            Severity.ERROR,
            Cause.NO_DRIVER,
            "NVIDIA's driver is not installed",
            "sudo ubuntu-drivers install",
        ),
        (
            "old-card-without-driver",
            Severity.ERROR,
            Cause.NO_DRIVER,
            "NVIDIA's driver is not installed",
            "sudo ubuntu-drivers install nvidia:470",
        ),
        (
            "nouveau",
            Severity.ERROR,
            Cause.NO_DRIVER,
            "The card runs on nouveau; NVIDIA's driver is not installed",
            "sudo apt-get update",
        ),
        (
            "libcuda-where-nobody-looks",
            Severity.ERROR,
            Cause.NO_DRIVER,
            "The driver's library exists, but the loader does not find it",
            "echo /usr/local/nvidia/lib64 | sudo tee /etc/ld.so.conf.d/nvidia-driver.conf",
        ),
        (
            "no-card-no-driver",
            Severity.ERROR,
            Cause.NO_DRIVER,
            "No NVIDIA driver, and no NVIDIA card on the PCI bus",
            "",
        ),
    ],
)
def test_finding_on_recorded_host(
    host: str, severity: Severity, cause: Cause, title: str, typed: str
) -> None:
    assert summarize_finding(host, CODE) == (severity, cause, title, typed)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("healthy-one-gpu", OutcomeKind.CLEAN),
        ("adapter-does-not-start", OutcomeKind.CLEAN),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
