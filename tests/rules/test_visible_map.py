"""TFD604, visible-map."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import visible_map

CODE = visible_map.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "zero-seven-one",
            Severity.WARNING,
            Cause.HIDDEN_BY_ENV,
            "CUDA_VISIBLE_DEVICES is only partly used: 1 of 3 entries name a card",
            "export CUDA_VISIBLE_DEVICES=0",
        ),
        ("the-other-order", Severity.INFO, Cause.HEALTHY, "Which card is which for TensorFlow", ""),
    ],
)
def test_finding_on_recorded_host(
    host: str, severity: Severity, cause: Cause, title: str, typed: str
) -> None:
    assert summarize_finding(host, CODE) == (severity, cause, title, typed)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
        ("driver-hangs", OutcomeKind.COULD_NOT_CHECK),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
