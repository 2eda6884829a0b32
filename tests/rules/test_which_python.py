"""What is said, and what is offered, where the Python that is meant is not the one that answers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfdoctor.compat import Compat
from tfdoctor.examine.survey import survey
from tfdoctor.findings import Cause, Severity
from tfdoctor.render.report import render_report
from tfdoctor.report.diagnose import diagnose
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from tfdoctor.findings import Finding, Report

HOSTS = Path(__file__).parents[1] / "hosts"


@cache
def report(host: str) -> Report:
    compat = Compat.load()
    return diagnose(survey(RecordedSystem(HOSTS / host), compat), compat)


def finding(host: str, code: str) -> Finding:
    return next(one for one in report(host).findings if one.code == code)


def commands(one: Finding) -> str:
    return "\n".join(command for remedy in one.remedies for command in remedy.commands)


@pytest.mark.parametrize("host", ["environment-deleted", "environment-moved", "environment-without-its-base"])
def test_nothing_is_to_be_installed_into_a_python_that_nobody_meant(host: str) -> None:
    root = report(host).root
    assert root is not None
    assert (root.code, root.severity) == ("TFD318", Severity.ERROR)
    missing = finding(host, "TFD301")
    assert (missing.cause, missing.severity) == (Cause.TENSORFLOW_MISSING, Severity.WARNING)
    for one in report(host).findings:
        assert "pip install" not in commands(one)
        assert "/usr/bin/python3 " not in commands(one)
        assert not any(remedy.steps for remedy in one.remedies)
    assert (
        "VIRTUAL_ENV"
        in render_report(report(host)).splitlines()[0:2][-1] + render_report(report(host)).splitlines()[0]
    )


def test_an_environment_that_was_moved_is_named_where_it_is() -> None:
    told = finding("environment-moved", "TFD318")
    assert commands(told).splitlines()[0] == "tfdoctor check --python /srv/new"
    assert "mv /srv/new /srv/old" in commands(told)
    other = finding("environment-moved", "TFD301")
    assert "tfdoctor check --python /srv/new/bin/python" in commands(other)
    assert any("has TensorFlow 2.18.1" in line.text for line in other.evidence)


def test_where_the_other_python_works_it_is_a_warning() -> None:
    told = finding("environment-gone-and-another-works", "TFD318")
    assert told.severity is Severity.WARNING
    assert report("environment-gone-and-another-works").verdict.gpu_usable is True
    assert "conda activate NAME" in commands(told)


def test_a_python_that_hangs_is_not_the_driver() -> None:
    for host in ("python-hangs", "python-hangs-in-a-pth-file"):
        seen = report(host)
        assert [one.code for one in seen.findings] == ["TFD317"]
        assert "This Python" in (seen.root.title if seen.root is not None else "")
        assert "reboot" not in commands(seen.findings[0])
    told = finding("python-hangs-in-a-pth-file", "TFD317")
    assert told.title.endswith("/site-packages/license.pth")
    assert "license.pth.aside" in commands(told)


def test_a_slow_start_is_no_fault() -> None:
    told = finding("python-starts-slowly", "TFD903")
    assert commands(told).splitlines()[:2] == ["/srv/tf/bin/python -c pass", "tfdoctor check --timeout 60"]
    assert told.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("host", "command", "system"),
    [
        ("cudnn-of-root", "chmod -R a+rX /srv/tf/lib/python3.11/site-packages/nvidia/cudnn/lib", True),
        ("tensorflow-of-root", "chmod -R a+rX /srv/tf/lib/python3.11/site-packages/tensorflow", True),
        ("noexec", 'tfdoctor install --into "$HOME/tensorflow-env"', False),
    ],
)
def test_what_may_not_be_used_is_opened_up_and_not_installed(host: str, command: str, system: bool) -> None:
    told = finding(host, "TFD319")
    assert [one.code for one in report(host).findings] == ["TFD319"]
    assert command in commands(told)
    assert told.remedies[0].changes_system is system
    assert "pip install" not in commands(told)
    assert report(host).prediction.cause is Cause.NOT_PERMITTED
    assert report(host).prediction.import_ok is (host == "cudnn-of-root")


def test_the_header_says_which_python_and_why() -> None:
    assert "the active virtual environment" in " ".join(render_report(report("healthy-one-gpu")).split())
    healthy = report("healthy-one-gpu")
    assert healthy.facts.choice is not None
    choice = replace(healthy.facts.choice, how="$CONDA_PREFIX", on_path="/usr/bin/python3")
    shown = " ".join(
        render_report(replace(healthy, facts=replace(healthy.facts, choice=choice)))
        .partition("\n\n")[0]
        .split()
    )
    assert shown.endswith("($CONDA_PREFIX), while the shell finds another Python: /usr/bin/python3")
    shown = " ".join(render_report(report("environment-deleted")).split())
    assert (
        "/usr/bin/python3 (Python 3.11.9), python3 on PATH; VIRTUAL_ENV (/srv/deleted) cannot be used"
        in shown
    )
