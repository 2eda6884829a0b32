"""TFD111, gpu-too-new."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import gpu_too_new

CODE = gpu_too_new.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "blackwell-with-tf218",
            Severity.ERROR,
            Cause.GPU_TOO_NEW,
            "TensorFlow 2.18.1 has kernels that cannot run on this card (compute capability 12.0)",
            "/srv/tf/bin/python -m pip install 'tensorflow[and-cuda]==",
        ),
        (
            "blackwell-with-tf221",
            Severity.WARNING,
            Cause.GPU_TOO_NEW,
            (
                "The first run will be slow, and some operations may fail: TensorFlow 2.21.0 has no machine code "
                "for compute capability 12.0"
            ),
            "export CUDA_CACHE_MAXSIZE=4294967296",
        ),
    ],
)
def test_finding_on_recorded_host(
    host: str, severity: Severity, cause: Cause, title: str, typed: str
) -> None:
    *summary, command = summarize_finding(host, CODE)
    assert summary == [severity, cause, title]
    assert command.startswith(typed)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("healthy-one-gpu", OutcomeKind.CLEAN),
        ("python-hangs", OutcomeKind.COULD_NOT_CHECK),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
