"""TFD319, not-permitted."""

from __future__ import annotations

import pytest

from rules.of_hosts import commands, finding, report
from tfdoctor.findings import Cause


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
