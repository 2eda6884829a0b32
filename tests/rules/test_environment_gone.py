"""TFD318, environment-gone."""

from __future__ import annotations

from rules.of_hosts import commands, finding, report
from tfdoctor.findings import Severity


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
