"""Progress of long work: plain lines in a log, updated lines in a terminal, nothing with --quiet."""

from __future__ import annotations

import io
import itertools
import re
import sys
import time

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


def draw_last_line(monkeypatch: pytest.MonkeyPatch, lines: list[str], seconds: float) -> str:
    """Return the line of the running step after these lines of an installer, `seconds` after its beginning."""
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    clock = itertools.count(100.0, seconds)
    step = "TensorFlow 2.21.0 and what it needs, CUDA 12.9 with cuDNN 9.10.2.21"
    with open_progress(quiet=False) as display:
        display.begin_step(3, 4, step)
        monkeypatch.setattr(time, "monotonic", lambda: next(clock))
        display._start_time, display._last_update = 100.0, 0.0  # type: ignore[attr-defined]
        for line in lines:
            display.report_line(line)
        text = str(display._live_display._renderable)  # type: ignore[attr-defined]
    return text.partition("\n")[0]


def test_running_step_fits_and_keeps_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    uv_lines = ["Downloading tensorflow (600.0MiB)", "Downloading nvidia-cublas-cu12 (400.0MiB)"]
    line = draw_last_line(monkeypatch, uv_lines, 10)
    assert line.startswith("  … [3/4] TensorFlow 2.21.0 and")
    assert line.endswith(" s, 0 of 1049 MB")
    assert len(line) <= 80
    line = draw_last_line(monkeypatch, [*uv_lines, " Downloaded nvidia-cublas-cu12"], 10)
    assert re.search(r" s, 419 of 1049 MB, \d+:\d\d left$", line), line
    assert len(line) <= 80
