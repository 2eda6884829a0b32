"""TFD605, odd-variables."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import odd_variables

CODE = odd_variables.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "odd-words",
            Severity.WARNING,
            Cause.INCONCLUSIVE,
            "TF_FORCE_GPU_ALLOW_GROWTH is 'True', which TensorFlow does not understand",
            "export TF_FORCE_GPU_ALLOW_GROWTH=true",
        ),
        (
            "odd-library-path",
            Severity.WARNING,
            Cause.INCONCLUSIVE,
            "LD_LIBRARY_PATH has entries that do not do what they appear to do",
            'export LD_LIBRARY_PATH="$HOME"/cuda/lib64',
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
