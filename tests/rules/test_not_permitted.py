"""TFD319, not-permitted."""

from __future__ import annotations

import pytest

from rules.of_hosts import commands, finding, report
from tfdoctor.core.findings import Cause


@pytest.mark.parametrize(
    ("host", "command", "system"),
    [
        ("cudnn-of-root", "chmod -R a+rX /srv/tf/lib/python3.11/site-packages/nvidia/cudnn/lib", True),
        ("tensorflow-of-root", "chmod -R a+rX /srv/tf/lib/python3.11/site-packages/tensorflow", True),
        ("noexec", 'tfdoctor install --into "$HOME/tensorflow-env"', False),
    ],
)
def test_permissions_are_changed_instead_of_reinstalling(host: str, command: str, system: bool) -> None:
    permission = finding(host, "TFD319")
    assert [result.code for result in report(host).findings] == ["TFD319"]
    assert command in commands(permission)
    assert permission.remedies[0].changes_system is system
    assert "pip install" not in commands(permission)
    assert report(host).prediction.cause is Cause.NOT_PERMITTED
    assert report(host).prediction.import_ok is (host == "cudnn-of-root")
