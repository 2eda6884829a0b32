"""TFD104, driver-lib-mismatch."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import driver_lib_mismatch

CODE = driver_lib_mismatch.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "updated-without-restart",
            Severity.ERROR,
            Cause.DRIVER_LIB_MISMATCH,
            "The driver was updated, and the old kernel module is still loaded",
            "sudo reboot",
        ),
        (
            "updated-without-restart-on-geforce",
            Severity.ERROR,
            Cause.DRIVER_LIB_MISMATCH,
            "The driver was updated, and the old kernel module is still loaded",
            "sudo reboot",
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
