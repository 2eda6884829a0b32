"""TFD107, stub-libcuda."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import stub_libcuda

CODE = stub_libcuda.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "stub-before-the-driver",
            Severity.ERROR,
            Cause.STUB_LIBCUDA,
            "The toolkit's stub stands in for the driver",
            "unset LD_LIBRARY_PATH",
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
