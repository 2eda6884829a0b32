"""TFD404, engine-misconfigured."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import engine_misconfigured

CODE = engine_misconfigured.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "docker-daemon-json-broken",
            Severity.WARNING,
            Cause.NO_NVIDIA_RUNTIME,
            "Docker's configuration is not valid JSON",
            "sudo python3 -m json.tool /etc/docker/daemon.json",
        ),
        (
            "docker-default-runtime-gone",
            Severity.WARNING,
            Cause.NO_NVIDIA_RUNTIME,
            "Docker's runtime 'nvidia' points to a program that is not there",
            "sudo systemctl restart docker",
        ),
        (
            "docker-rootless",
            Severity.WARNING,
            Cause.NO_NVIDIA_RUNTIME,
            "Rootless Docker is refused when it gives GPUs: the toolkit wants to change cgroups",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
        ),
        (
            "docker-toolkit-in-cdi-mode",
            Severity.INFO,
            Cause.NO_NVIDIA_RUNTIME,
            "`docker run --gpus` is refused: the toolkit's mode is 'cdi'",
            "docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all IMAGE",
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
        ("docker-stopped", OutcomeKind.CLEAN),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
