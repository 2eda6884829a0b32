"""Findings and remedies if the intended Python cannot be used and another one is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from recorded import HOSTS, load_report
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.render.report import render_report

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding, Report


def report(host: str) -> Report:
    return load_report(HOSTS / host)


def finding(host: str, code: str) -> Finding:
    """Return the first finding with this code; raise StopIteration if there is none."""
    return next(result for result in report(host).findings if result.code == code)


def commands(result: Finding) -> str:
    """Return all commands of the finding's remedies, one per line."""
    return "\n".join(command for remedy in result.remedies for command in remedy.commands)


@pytest.mark.parametrize("host", ["environment-deleted", "environment-moved", "environment-without-its-base"])
def test_nothing_is_installed_into_an_unintended_python(host: str) -> None:
    first = report(host).root_finding
    assert first is not None
    assert (first.code, first.severity) == ("TFD318", Severity.ERROR)
    missing = finding(host, "TFD301")
    assert (missing.cause, missing.severity) == (Cause.TENSORFLOW_MISSING, Severity.WARNING)
    for result in report(host).findings:
        assert "pip install" not in commands(result)
        assert "/usr/bin/python3 " not in commands(result)
        assert not any(remedy.steps for remedy in result.remedies)
    assert (
        "VIRTUAL_ENV"
        in render_report(report(host)).splitlines()[0:2][-1] + render_report(report(host)).splitlines()[0]
    )


def test_header_names_the_python_and_the_reason() -> None:
    assert "the active virtual environment" in " ".join(render_report(report("healthy-one-gpu")).split())
    healthy = report("healthy-one-gpu")
    assert healthy.facts.choice is not None
    choice = replace(healthy.facts.choice, how="$CONDA_PREFIX", on_path="/usr/bin/python3")
    header = " ".join(
        render_report(replace(healthy, facts=replace(healthy.facts, choice=choice)))
        .partition("\n\n")[0]
        .split()
    )
    assert header.endswith("($CONDA_PREFIX), while the shell finds another Python: /usr/bin/python3")
    header = " ".join(render_report(report("environment-deleted")).split())
    assert (
        "/usr/bin/python3 (Python 3.11.9), python3 on PATH; VIRTUAL_ENV (/srv/deleted) cannot be used"
        in header
    )
