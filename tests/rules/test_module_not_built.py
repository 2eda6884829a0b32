"""TFD117, module-not-built."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import module_not_built

CODE = module_not_built.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "build-failed",
            Severity.ERROR,
            Cause.NO_DEVICE,
            "NVIDIA's kernel module is not installed",
            "tail -n 40 /var/lib/dkms/nvidia/550.54.14/build/make.log",
        ),
        (
            "kernel-updated",
            Severity.ERROR,
            Cause.NO_DEVICE,
            "NVIDIA's kernel module is built for another kernel, not for the running one",
            "sudo apt-get install linux-headers-$(uname -r)",
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
        ("module-blacklisted", OutcomeKind.CLEAN),
        ("secure-boot-refuses", OutcomeKind.CLEAN),
        ("kernel-module-not-loaded", OutcomeKind.COULD_NOT_CHECK),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
