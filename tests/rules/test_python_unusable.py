"""TFD317, python-unusable."""

from __future__ import annotations

from rules.of_hosts import commands, finding, report


def test_hanging_python_is_not_blamed_on_the_driver() -> None:
    for host in ("python-hangs", "python-hangs-in-a-pth-file"):
        host_report = report(host)
        assert [result.code for result in host_report.findings] == ["TFD317"]
        assert "This Python" in (
            host_report.root_finding.title if host_report.root_finding is not None else ""
        )
        assert "reboot" not in commands(host_report.findings[0])
    hanging = finding("python-hangs-in-a-pth-file", "TFD317")
    assert hanging.title.endswith("/site-packages/license.pth")
    assert "license.pth.aside" in commands(hanging)
