"""TFD112, smi-unanswered."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import smi_unanswered

CODE = smi_unanswered.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "smi-hangs",
            Severity.WARNING,
            Cause.INCONCLUSIVE,
            "nvidia-smi hangs, and the driver's library answers",
            "nvidia-smi",
        ),
        (
            "smi-prints-garbage",
            Severity.WARNING,
            Cause.INCONCLUSIVE,
            "nvidia-smi does not answer as expected",
            "type -a nvidia-smi",
        ),
        (
            "container-cut-off",
            Severity.ERROR,
            Cause.CONTAINER_NVML_LOST,
            "The container was cut off from the GPUs while it ran",
            "docker restart CONTAINER",
        ),
        ("driver-hangs", Severity.INFO, Cause.INCONCLUSIVE, "nvidia-smi fails, too", ""),
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
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
