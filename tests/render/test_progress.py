"""What long work tells a person: plain lines in a log, lines that move in a terminal, nothing where asked so."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tfdoctor.render.progress import progress


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def build(*, quiet: bool = False, verbose: bool = False, fail: bool = False) -> None:
    """As an image or an environment is made."""
    with progress(quiet=quiet, verbose=verbose) as told:
        told.stage("Building x\x1b[31m")
        told.step(1, 2, "FROM y")
        told.cached()
        told.step(2, 2, "RUN pip")
        told.line("Collecting z")
        told.layer("a", "Downloading", 1_000_000, 2_000_000)
        if fail:
            told.failed("RUN pip install", ["one", "two\x07"])
        else:
            told.done()


def test_a_log_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    build()
    lines = ["Building x", "  [1/2] FROM y", "        from the cache", "  [2/2] RUN pip"]
    assert capsys.readouterr().err.splitlines() == lines
    build(verbose=True)
    assert capsys.readouterr().err.splitlines() == [*lines, "        Collecting z"]


def test_a_failed_step_shows_its_last_lines_once(capsys: pytest.CaptureFixture[str]) -> None:
    last = ["  its last lines:", "    | one", "    | two\ufffd"]
    build(fail=True)
    assert capsys.readouterr().err.splitlines()[-3:] == last
    build(fail=True, verbose=True)
    assert "last lines" not in capsys.readouterr().err
    build(fail=True, quiet=True)
    assert capsys.readouterr().err.splitlines() == last
    build(quiet=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("fail", [False, True])
def test_a_terminal_keeps_what_has_ended(monkeypatch: pytest.MonkeyPatch, fail: bool) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    build(fail=fail)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "✓ [1/2] FROM y  cached" in text
    assert ("✗ [2/2] RUN pip install" in text) is fail
    assert ("✓ [2/2] RUN pip  0 s" in text) is not fail
    assert "\x07" not in text
