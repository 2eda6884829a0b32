"""Progress of long work: plain lines in a log, updated lines in a terminal, nothing with --quiet."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tfdoctor.render.progress import open_progress


class FakeTerminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def show_build(*, quiet: bool = False, verbose: bool = False, fail: bool = False) -> None:
    """Report progress as the build of an image or an environment does."""
    with open_progress(quiet=quiet, verbose=verbose) as reporter:
        reporter.begin_stage("Building x\x1b[31m")
        reporter.begin_step(1, 2, "FROM y")
        reporter.report_cached()
        reporter.begin_step(2, 2, "RUN pip")
        reporter.report_line("Collecting z")
        reporter.report_layer("a", "Downloading", 1_000_000, 2_000_000)
        if fail:
            reporter.report_failure("RUN pip install", ["one", "two\x07"])
        else:
            reporter.end_step()


def test_log_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show_build()
    lines = ["Building x", "  [1/2] FROM y", "        from the cache", "  [2/2] RUN pip"]
    assert capsys.readouterr().err.splitlines() == lines
    show_build(verbose=True)
    assert capsys.readouterr().err.splitlines() == [*lines, "        Collecting z"]


def test_failed_step_shows_its_last_lines_once(capsys: pytest.CaptureFixture[str]) -> None:
    last_lines = ["  its last lines:", "    | one", "    | two\ufffd"]
    show_build(fail=True)
    assert capsys.readouterr().err.splitlines()[-3:] == last_lines
    show_build(fail=True, verbose=True)
    assert "last lines" not in capsys.readouterr().err
    show_build(fail=True, quiet=True)
    assert capsys.readouterr().err.splitlines() == last_lines
    show_build(quiet=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("fail", [False, True])
def test_terminal_keeps_finished_steps(monkeypatch: pytest.MonkeyPatch, fail: bool) -> None:
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    show_build(fail=fail)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "✓ [1/2] FROM y  cached" in text
    assert ("✗ [2/2] RUN pip install" in text) is fail
    assert ("✓ [2/2] RUN pip  0 s" in text) is not fail
    assert "\x07" not in text
