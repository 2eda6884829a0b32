"""TFD405, cdi-spec-stale."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import cdi_spec_stale

CODE = cdi_spec_stale.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "podman-with-stale-cdi",
            Severity.WARNING,
            Cause.CONTAINER_DRIVER_LIBS,
            "The CDI specification does not match the driver",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
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
        ("podman-with-cdi", OutcomeKind.CLEAN),
        ("docker-with-cdi", OutcomeKind.CLEAN),
        ("podman-without-cdi", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
