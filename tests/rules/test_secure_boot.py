"""TFD118, secure-boot."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import secure_boot

CODE = secure_boot.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "secure-boot-refuses",
            Severity.ERROR,
            Cause.NO_DEVICE,
            "The kernel refuses to load NVIDIA's module (Secure Boot)",
            "sudo apt-get install linux-modules-nvidia-BRANCH-generic",
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
        ("secure-boot-with-a-signed-module", OutcomeKind.CLEAN),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
