"""TFD317, python-unusable."""

from __future__ import annotations

from rules.of_hosts import commands, finding, report


def test_a_python_that_hangs_is_not_the_driver() -> None:
    for host in ("python-hangs", "python-hangs-in-a-pth-file"):
        seen = report(host)
        assert [one.code for one in seen.findings] == ["TFD317"]
        assert "This Python" in (seen.root.title if seen.root is not None else "")
        assert "reboot" not in commands(seen.findings[0])
    told = finding("python-hangs-in-a-pth-file", "TFD317")
    assert told.title.endswith("/site-packages/license.pth")
    assert "license.pth.aside" in commands(told)
