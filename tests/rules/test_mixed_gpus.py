"""TFD114, mixed-gpus."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import mixed_gpus

CODE = mixed_gpus.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "multiprocessor-count-too-high",
            Severity.ERROR,
            Cause.HIDDEN_BY_ENV,
            "TF_MIN_GPU_MULTIPROCESSOR_COUNT excludes every card",
            "unset TF_MIN_GPU_MULTIPROCESSOR_COUNT",
        ),
        (
            "small-card-beside-a-large-one",
            Severity.WARNING,
            Cause.GPU_TOO_OLD,
            "TensorFlow leaves 1 of 2 cards out",
            "export TF_MIN_GPU_MULTIPROCESSOR_COUNT=3",
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
        ("healthy-two-gpus", OutcomeKind.CLEAN),
        ("driver-hangs", OutcomeKind.COULD_NOT_CHECK),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
