"""TFD318, environment-gone."""

from __future__ import annotations

from rules.of_hosts import commands, finding, report
from tfdoctor.core.findings import Severity


def test_new_folder_of_a_moved_environment_is_named() -> None:
    gone = finding("environment-moved", "TFD318")
    assert commands(gone).splitlines()[0] == "tfdoctor check --python /srv/new"
    assert "mv /srv/new /srv/old" in commands(gone)
    missing = finding("environment-moved", "TFD301")
    assert "tfdoctor check --python /srv/new/bin/python" in commands(missing)
    assert any("has TensorFlow 2.18.1" in line.text for line in missing.evidence)


def test_warning_if_the_other_python_works() -> None:
    result = finding("environment-gone-and-another-works", "TFD318")
    assert result.severity is Severity.WARNING
    assert report("environment-gone-and-another-works").verdict.gpu_usable is True
    assert "conda activate NAME" in commands(result)
