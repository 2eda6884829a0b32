"""What people type gives one screen, on every recorded machine and for every log: at most 24 lines of 80 columns, and
22 where nothing else was printed, so that the command and the next prompt are there, too.

`-v` has the rest and is as long as it needs to be; so is `explain`, and a table that somebody asked for.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from render.screens import (
    HOSTS,
    LOGS,
    check_screen,
    fix_screen,
    lines_at,
    log_of,
    log_screen,
    report_of,
    verify_screen,
)
from tfdoctor.cli.machine import host_for
from tfdoctor.compat import Compat
from tfdoctor.fit.matrix import MatrixQuery, matrix
from tfdoctor.plan import Request, recommend
from tfdoctor.render.matrix import render_rows
from tfdoctor.render.page import Page, cells, command_lines, cut, few
from tfdoctor.render.plan import render_recommendation
from tfdoctor.render.report import render_report
from tfdoctor.render.run import render_run

if TYPE_CHECKING:
    from pathlib import Path

COMPAT = Compat.load()
MOST = 24


def too_wide(text: str, width: int) -> list[str]:
    """Lines that are wider than the terminal, but for one word of a command that no shell could go on in."""
    return [
        line
        for line in text.splitlines()
        if cells(line) > width and len(shlex.split(line.removesuffix(" \\").replace("`", ""))) > 1
    ]


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.parametrize("here", [True, False])
def test_check_is_one_screen(host: Path, here: bool) -> None:
    text = check_screen(host, here=here)
    assert lines_at(text, 80) <= MOST - 2, text
    for width in (80, 40):
        assert not too_wide(check_screen(host, width, here=here), width)


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_diagnose_is_one_screen(log: Path) -> None:
    text = log_screen(log)
    assert lines_at(text, 80) <= MOST - 2, text
    for width in (80, 40):
        assert not too_wide(log_screen(log, width), width)


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
def test_fix_and_verify_are_one_screen(host: Path) -> None:
    for screen in (fix_screen, verify_screen):
        text = screen(host)
        assert text is None or lines_at(text, 80) <= MOST, text
        for width in (80, 40):
            assert not too_wide(screen(host, width) or "", width)


CARDS = ("GTX 680", "GTX 1080 Ti", "RTX 4090", "RTX 5090")
WISHES = (None, "1.14", "2.15")


@pytest.mark.few(3)
@pytest.mark.parametrize("driver", [None, "470.82"])
@pytest.mark.parametrize("card", CARDS)
def test_recommend_is_one_screen(card: str, driver: str | None) -> None:
    """What fits a card and a driver, and why nothing does."""
    host = host_for(COMPAT, gpus=[card], driver=driver, facts=None)
    for wish in WISHES:
        answer = recommend(COMPAT, Request(tensorflow=wish), host)
        text = render_recommendation(answer)
        assert lines_at(text, 80) <= MOST, text
        for width in (80, 40):
            assert not too_wide(render_recommendation(answer, width=width), width)


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
def test_verbose_has_all_of_it(host: Path) -> None:
    """What the screen leaves out for want of room is there with -v."""
    report = report_of(host)
    shown = "".join(render_report(report, verbose=True, width=200).split()).lower()
    for finding in report.findings:
        texts = [
            finding.title.removeprefix("TensorFlow 2.18.1 "),
            finding.explanation,
            *(one.text for one in finding.evidence),
        ]
        for remedy in finding.remedies:
            texts += [remedy.text.removeprefix("Or ")[1:], *remedy.commands]
        for text in texts:
            assert "".join(text.split())[:300].lower() in shown


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
def test_nothing_is_dim_and_no_colour_runs_over_a_sentence(host: Path) -> None:
    for style, text in re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)", check_screen(host, colour=True)):
        assert "2" not in style.split(";")
        if {"31", "32", "33"} & set(style.split(";")):
            assert len(text) <= 3, text


@pytest.mark.parametrize("width", range(40, 90, 7))
@pytest.mark.parametrize(
    "command",
    [
        "python3 -m pip install 'tensorflow [and-cuda]==2.21.0' --no-deps --force-reinstall --upgrade",
        'export LD_LIBRARY_PATH=/usr/local/cuda-11.8/lib64"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" X=1 Y=2 Z=3',
        "echo 'a'b\"c d\"\\ e  f and a few more words so that it is far too long for one line of it",
        "echo 'never closed and so long that it would be broken if anybody dared to do that",
    ],
)
def test_a_broken_command_is_the_same_command(command: str, width: int) -> None:
    out = Page(width, coloured=False)
    command_lines(out, [f"printf '%s|' {command}"], 4, broken=True)
    if "never" in command:
        assert len(out.text.splitlines()) == 1
        return
    both = [
        subprocess.run([shutil.which("sh") or "/bin/sh", "-c", text], check=True, capture_output=True).stdout
        for text in (f"printf '%s|' {command}", out.text)
    ]
    assert both[0] == both[1]


def test_few_lines_of_a_text() -> None:
    text = "The driver is old. It was made for CUDA 11. Nothing newer runs on it; others say so, too."
    assert few(text, 80, 2) == text
    assert few(text, 40, 1) == "The driver is old."
    assert few("One; two that is very much longer than that", 20, 1) == "One."
    assert cells(few("word " * 40, 20, 2)) <= 40
    assert cut("/a/path/without/any/space/that/is/long", 12).endswith(" …")
    assert cells(cut("日本" * 30, 15)) <= 15


@pytest.mark.few(8)
@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_run_is_one_screen(log: Path) -> None:
    """What `run` adds at a program's end, with the program's name above it and what was done for it below."""
    notes = (
        "tfdoctor set TF_CPP_MAX_VLOG_LEVEL for this program, so that TensorFlow names what it could not open.",
    )
    text = render_run(
        ["python", "train.py"],
        1,
        log_of(log),
        known=True,
        failures=(),
        lost=0,
        notes=notes,
        verbose=False,
        quiet=False,
    )
    assert lines_at(text, 80) <= MOST, text


def test_the_newest_releases_are_one_screen() -> None:
    """`matrix` in a terminal; the whole table (`--all`, conditions, a pipe) is as long as somebody asked for."""
    for name in ("linux", "windows"):
        rows = matrix(COMPAT, MatrixQuery(os=name))
        windows = name == "windows"
        text = render_rows(rows, as_of=COMPAT.as_of, newest=True, windows=windows)
        assert lines_at(text, 80) <= MOST - 2, text
        assert f"{len(rows)} releases" in text
        older = re.search(r"The older ones, (\S+) to (\S+): `tfdoctor matrix --all`", text)
        assert older is not None
        assert older[2].startswith("1.")
        for width in (80, 40):
            text = render_rows(rows, as_of=COMPAT.as_of, newest=True, windows=windows, width=width)
            assert all(cells(line) <= width for line in text.splitlines())
