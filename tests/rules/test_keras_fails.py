"""TFD321, keras-fails."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import keras_fails

CODE = keras_fails.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "without-keras",
            Severity.WARNING,
            Cause.PACKAGE_CONFLICT,
            "tf.keras fails: Keras is not installed",
            "/srv/tf/bin/python -m pip install keras==",
        ),
    ],
)
def test_finding_on_recorded_host(
    host: str, severity: Severity, cause: Cause, title: str, typed: str
) -> None:
    *summary, command = summarize_finding(host, CODE)
    assert summary == [severity, cause, title]
    assert command.startswith(typed)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("requirement", OutcomeKind.CLEAN),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
        ("python-hangs", OutcomeKind.COULD_NOT_CHECK),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
