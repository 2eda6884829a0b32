"""TFD113, device-nodes."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import device_nodes

CODE = device_nodes.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "nodes-missing",
            Severity.ERROR,
            Cause.NO_DEVICE,
            "Device nodes of the card are missing",
            "sudo nvidia-modprobe -c 0 -u",
        ),
        (
            "nodes-of-another-group",
            Severity.ERROR,
            Cause.DRIVER_INIT_UNKNOWN,
            "This user may not open the card's device nodes",
            "ls -l /dev/nvidia*",
        ),
        (
            "slurm-job-without-gpu",
            Severity.ERROR,
            Cause.NO_DEVICE,
            "This job was given no GPU: its cgroup refuses the card",
            "srun --gres=gpu:1 --pty nvidia-smi",
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
        ("driver-hangs", OutcomeKind.COULD_NOT_CHECK),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
