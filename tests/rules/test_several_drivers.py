"""TFD120, several-drivers."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import several_drivers

CODE = several_drivers.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "runfile-over-packages",
            Severity.WARNING,
            Cause.DRIVER_LIB_MISMATCH,
            "Several NVIDIA drivers are installed over each other",
            "sudo nvidia-uninstall",
        ),
        (
            "wsl2-with-driver-packages",
            Severity.WARNING,
            Cause.WSL_LIBCUDA,
            "A Linux driver is installed inside WSL",
            "sudo apt-get purge libnvidia-compute-550",
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
        ("wsl2-healthy", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
