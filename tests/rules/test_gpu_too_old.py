"""TFD110, gpu-too-old."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import gpu_too_old

CODE = gpu_too_old.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "kepler-k40",
            Severity.ERROR,
            Cause.GPU_TOO_OLD,
            "TensorFlow 2.18.1 has no code for this card (compute capability 3.5)",
            "/srv/tf/bin/python -m pip install tensorflow==2.14.1 nvidia-",
        ),
        (
            "kepler-below-the-floor",
            Severity.ERROR,
            Cause.GPU_TOO_OLD,
            "The card is too old: TensorFlow 2.18.1 needs compute capability 3.5",
            "python3.6 -m venv tf-env",
        ),
        (
            "old-card-without-driver",
            Severity.WARNING,
            Cause.GPU_TOO_OLD,
            "TensorFlow 2.18.1 has no code for this card (compute capability 3.5)",
            "/srv/tf/bin/python -m pip install tensorflow==2.14.1 nvidia-",
        ),
        (
            "pascal-with-cudnn-9-11",
            Severity.ERROR,
            Cause.GPU_TOO_OLD,
            "cuDNN 9.11.0.98 has no code for this card (compute capability 6.1)",
            "/srv/tf/bin/python -m pip install 'nvidia-cudnn-cu12>=9.3,<9.11'",
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
