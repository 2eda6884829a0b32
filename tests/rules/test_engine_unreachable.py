"""TFD402, engine-unreachable."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import engine_unreachable

CODE = engine_unreachable.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "docker-stopped",
            Severity.INFO,
            Cause.INCONCLUSIVE,
            "Docker's engine is not running",
            "sudo systemctl start docker",
        ),
        (
            "docker-socket-closed",
            Severity.INFO,
            Cause.INCONCLUSIVE,
            "This user has no permission to use Docker's engine",
            'sudo usermod -aG docker "$USER"',
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
        ("docker-with-nvidia-runtime", OutcomeKind.CLEAN),
        ("docker-without-toolkit", OutcomeKind.CLEAN),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
