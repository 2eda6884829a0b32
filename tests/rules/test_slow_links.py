"""TFD125, slow-links."""

from __future__ import annotations

import pytest

from rules.of_hosts import finding, outcome_kind
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import slow_links

CODE = slow_links.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title"),
    [
        (
            "cards-at-two-processors",
            Severity.INFO,
            Cause.HEALTHY,
            "Some cards are connected only over a slow path",
        ),
    ],
)
def test_finding_on_recorded_host(host: str, severity: Severity, cause: Cause, title: str) -> None:
    result = finding(host, CODE)
    assert (result.severity, result.cause, result.title) == (severity, cause, title)
    assert not result.remedies


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("healthy-two-gpus", OutcomeKind.CLEAN),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
