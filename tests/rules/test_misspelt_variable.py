"""TFD602, misspelt-variable."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import misspelt_variable

CODE = misspelt_variable.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "misspelt",
            Severity.WARNING,
            Cause.INCONCLUSIVE,
            "CUDA_VISIBLE_DEVIES looks like a misspelt CUDA_VISIBLE_DEVICES",
            'export CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVIES"',
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
        ("hidden-by-minus-one", OutcomeKind.CLEAN),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
