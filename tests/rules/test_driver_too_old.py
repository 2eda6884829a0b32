"""TFD103, driver-too-old."""

from __future__ import annotations

import pytest

from rules.of_hosts import ended, told
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import driver_too_old

CODE = driver_too_old.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "driver-below-cuda-12",
            Severity.ERROR,
            Cause.DRIVER_TOO_OLD,
            "The driver is too old for CUDA 12.5: 525.60.13 or newer is needed",
            "sudo ubuntu-drivers install",
        ),
        (
            "driver-too-old-for-libcuda",
            Severity.ERROR,
            Cause.DRIVER_TOO_OLD,
            "The driver is too old",
            "sudo ubuntu-drivers install",
        ),
    ],
)
def test_what_is_told_and_typed(host: str, severity: Severity, cause: Cause, title: str, typed: str) -> None:
    assert told(host, CODE) == (severity, cause, title, typed)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("healthy-one-gpu", OutcomeKind.CLEAN),
        ("blackwell-with-tf221", OutcomeKind.CLEAN),
    ],
)
def test_where_it_says_nothing(host: str, kind: OutcomeKind) -> None:
    assert ended(host, CODE) is kind
