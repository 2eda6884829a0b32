"""TFD406, container-nvml-lost."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import container_nvml_lost

CODE = container_nvml_lost.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "docker-with-systemd-cgroups",
            Severity.INFO,
            Cause.CONTAINER_NVML_LOST,
            "A running container can lose its GPUs at `systemctl daemon-reload`",
            "docker run --device nvidia.com/gpu=all IMAGE",
        ),
        (
            "docker-without-cgroups",
            Severity.WARNING,
            Cause.CONTAINER_NVML_LOST,
            "Containers get the card's device nodes without permission to open them",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
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
        ("docker-rootless", OutcomeKind.CLEAN),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
