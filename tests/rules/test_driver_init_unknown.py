"""TFD105, driver-init-unknown."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import driver_init_unknown

CODE = driver_init_unknown.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "after-sleep",
            Severity.ERROR,
            Cause.DRIVER_INIT_UNKNOWN,
            "The driver fails: CUDA_ERROR_UNKNOWN",
            "sudo rmmod nvidia_uvm",
        ),
        (
            "uvm-not-loaded",
            Severity.ERROR,
            Cause.DRIVER_INIT_UNKNOWN,
            "The kernel module nvidia_uvm is not loaded",
            "sudo modprobe nvidia-uvm",
        ),
        (
            "adapter-does-not-start",
            Severity.ERROR,
            Cause.DRIVER_INIT_UNKNOWN,
            "The kernel module cannot start the card",
            "sudo poweroff",
        ),
        (
            "driver-hangs",
            Severity.ERROR,
            Cause.DRIVER_INIT_UNKNOWN,
            "The driver does not answer",
            "tfdoctor check --timeout 60",
        ),
        (
            "mps-of-somebody-else",
            Severity.ERROR,
            Cause.DRIVER_INIT_UNKNOWN,
            "The Multi-Process Service (MPS) is in the way",
            "unset CUDA_MPS_PIPE_DIRECTORY",
        ),
        (
            "no-fabric-manager",
            Severity.ERROR,
            Cause.DRIVER_INIT_UNKNOWN,
            "The system is not ready: Fabric Manager is not running",
            "sudo systemctl enable --now nvidia-fabricmanager",
        ),
        (
            "container-fails-for-no-reason",
            Severity.ERROR,
            Cause.DRIVER_INIT_UNKNOWN,
            "The driver fails: CUDA_ERROR_UNKNOWN",
            "nvidia-smi",
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
        ("healthy-two-gpus", OutcomeKind.CLEAN),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
