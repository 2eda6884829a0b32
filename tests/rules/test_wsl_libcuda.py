"""TFD108, wsl-libcuda."""

from __future__ import annotations

import pytest

from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import wsl_libcuda

CODE = wsl_libcuda.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "wsl2-folder-unknown",
            Severity.ERROR,
            Cause.WSL_LIBCUDA,
            "WSL's libcuda is installed, but the loader does not look there",
            "echo /usr/lib/wsl/lib | sudo tee /etc/ld.so.conf.d/ld.wsl.conf",
        ),
        (
            "wsl2-with-a-linux-driver",
            Severity.ERROR,
            Cause.WSL_LIBCUDA,
            "A Linux driver inside WSL comes before WSL's own",
            "dpkg -S /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14",
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
        ("wsl2-healthy", OutcomeKind.CLEAN),
        ("wsl2-with-driver-packages", OutcomeKind.CLEAN),
        ("healthy-one-gpu", OutcomeKind.NOT_APPLICABLE),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind
