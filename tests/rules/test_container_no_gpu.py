"""TFD401, container-no-gpu."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import container_no_gpu

CODE = container_no_gpu.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "container-without-gpu",
            Severity.ERROR,
            Cause.CONTAINER_NO_GPU,
            "The container was started without GPUs",
            "docker run --gpus all IMAGE",
        ),
        (
            "cuda-image-without-gpu",
            Severity.ERROR,
            Cause.CONTAINER_NO_GPU,
            "The container was started without GPUs",
            "docker run --gpus all IMAGE",
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
        ("container-cut-off", OutcomeKind.CLEAN),
        ("docker-without-utility", OutcomeKind.CLEAN),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
