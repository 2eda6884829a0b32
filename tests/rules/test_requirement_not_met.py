"""TFD322, requirement-not-met."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import requirement_not_met

CODE = requirement_not_met.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "requirement",
            Severity.INFO,
            Cause.PACKAGE_CONFLICT,
            "tensorflow asks for protobuf<6.0.0,>=3.20.3, and 6.33.0 is installed",
            "/srv/tf/bin/python -m pip install 'protobuf<6.0.0,>=3.20.3'",
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
        ("python-hangs", OutcomeKind.COULD_NOT_CHECK),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
