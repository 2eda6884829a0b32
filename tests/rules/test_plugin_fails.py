"""TFD320, plugin-fails."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import plugin_fails

CODE = plugin_fails.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "broken-plugin",
            Severity.ERROR,
            Cause.DAMAGED_FILE,
            "The plugin libitex_gpu.so stops the import of TensorFlow",
            "mv /srv/tf/lib/python3.11/site-packages/tensorflow-plugins/libitex_gpu.so ",
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
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
        ("python-hangs", OutcomeKind.COULD_NOT_CHECK),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
