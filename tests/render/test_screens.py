"""What people type gives one screen, on every recorded machine and for every log: at most 24 lines of 80 columns, and
22 where nothing else was printed, so that the command and the next prompt are there, too.

`-v` (of a matrix `--all`) has the rest and is as long as it needs to be.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from render.screens import (
    CARDS,
    HOSTS,
    LOGS,
    WISHES,
    build_screen,
    check_screen,
    codes,
    explain_screen,
    fix_screen,
    install_screen,
    lines_at,
    log_of,
    log_screen,
    matrix_screen,
    releases,
    report_of,
    run_question,
    verify_screen,
)
from tfdoctor import versions
from tfdoctor.cli.machine import host_for
from tfdoctor.compat import Compat
from tfdoctor.explain import lookup
from tfdoctor.facts import Known, value_of
from tfdoctor.findings import Cause, Severity, Status
from tfdoctor.fit import Host
from tfdoctor.fit.matrix import MatrixQuery, find_code_on_card, select_rows
from tfdoctor.plan import Method, Request, recommend
from tfdoctor.plan.overview import overview
from tfdoctor.render.explain import render_explanation
from tfdoctor.render.matrix import render_overview, render_rows
from tfdoctor.render.paragraphs import Page, cells, command_lines, cut, few
from tfdoctor.render.plan import render_recommendation
from tfdoctor.render.report import render_report
from tfdoctor.render.run_summary import render_run
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import ALL_RULES

if TYPE_CHECKING:
    from pathlib import Path

COMPAT = Compat.load()
MOST = 24


def find_too_wide(text: str, width: int) -> list[str]:
    """Lines that are wider than the terminal, but for one word of a command that has no room in a line that goes on."""
    wide = [line for line in text.splitlines() if cells(line) > width]
    return [
        line
        for line in wide
        if cells(line.strip()) + 4 <= width or len(shlex.split(line.removesuffix(" \\").replace("`", ""))) > 1
    ]


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.parametrize("here", [True, False])
@pytest.mark.few(60)
def test_check_is_one_screen(host: Path, here: bool) -> None:
    text = check_screen(host, here=here)
    assert lines_at(text, 80) <= MOST - 2, text
    for width in (80, 40):
        assert not find_too_wide(check_screen(host, width, here=here), width)


def commands_in(coloured: str) -> list[str]:
    """What is bold in the block that says what to do, but for its labels."""
    todo = re.split(r"^\x1b\[1m  (?:Do|Fix it) ", coloured, maxsplit=1, flags=re.MULTILINE)[1:]
    bold = re.findall(r"\x1b\[1m([^\x1b]+)", todo[0].partition("\n\n")[0]) if todo else []
    return [one.strip() for one in bold if one.strip() not in {"Or", "No root?", "By hand"}]


NOTHING_TO_TYPE = "nothing needs to be installed"
CHANGES = re.compile(
    "Undo: |To undo|cannot be undone|nothing to undo|only looks|takes all of it back|It holds |It lasts |It applies |"
    "A restart |Nothing here changes|What runs in"
)


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.few(40)
def test_the_first_screen_answers_five_questions(host: Path) -> None:
    """Is my GPU used, why not, what do I type, can that be taken back, and what without root?"""
    report, text = report_of(host), check_screen(host)
    lines = text.splitlines()
    used = {
        True: "will use",
        False: "will not use|cannot use it|not installed",
        None: "[Cc]ould not|cannot be",
    }
    assert re.search(used[report.verdict.gpu_usable], " ".join(lines[1:6])), text
    if report.main is None or NOTHING_TO_TYPE in " ".join(text.split()):
        return
    assert "  Why " in text
    assert re.search(r"^  (Fix it|Do) ", text, re.MULTILINE), text
    typed = commands_in(check_screen(host, colour=True))
    assert typed, text
    assert CHANGES.search(" ".join(text.split())), text
    if report.main.remedies[0].changes_system or any("sudo " in one for one in typed):
        assert "  No root? " in text, text


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
@pytest.mark.few(60)
def test_the_first_screen_of_a_log_answers_them_too(log: Path) -> None:
    report, text = log_of(log), " ".join(log_screen(log).split())
    if report.root is None or report.root.severity < Severity.ERROR or report.cause is Cause.HEALTHY:
        return
    assert re.search("did not use the GPU|failed on it|may not have used|does not say", text), text
    assert " Why " in text
    assert commands_in(log_screen(log, colour=True)), text
    assert CHANGES.search(text), text
    assert "No root needed" in text or "No root? " in text, text


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
@pytest.mark.few(60)
def test_what_a_log_leaves_open_is_told_in_words(log: Path) -> None:
    report = log_of(log)
    open_ = report.root.explanation.partition("does not rule out: ")[2] if report.root is not None else ""
    assert not any(one.value in open_ for one in report.undecided if "-" in one.value)
    assert not re.search("(?:^|; )A ", open_)


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.few(40)
def test_a_dry_run_of_fix_answers_them_too(host: Path) -> None:
    report, screen = report_of(host), fix_screen(host)
    if screen is None or report.main is None or not report.main.remedies:
        return
    text = " ".join(screen.split())
    assert re.search("will use|will not use|cannot use it|could not|cannot be|not installed", text), text
    commands = any(one.commands for one in report.main.remedies)
    assert "To have it done: tfdoctor fix" in text or "Fix can do nothing here." in text
    assert CHANGES.search(text) or "--undo" in text or not commands or "(-v)" in text, text
    assert "No root" in text or not commands or "(-v)" in text, text


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.few(40)
def test_check_cuts_nothing_short(host: Path) -> None:
    for width in (80, 60, 40):
        text = check_screen(host, width)
        assert "…" not in text.replace(", …)", ""), text


def test_a_row_names_what_is_missing_and_not_who_needs_it() -> None:
    facts = report_of(next(host for host in HOSTS if host.name == "healthy-tf221")).facts
    loader = value_of(facts.loader)
    assert loader is not None
    for who, needs in (("libcusolver.so.11", "libnvJitLink.so.12"), ("libcudnn.so.9", "libcudnn_graph.so.9")):
        lost = tuple(
            dataclasses.replace(
                one, error=f"{needs}: cannot open shared object file", really_missing=(needs,)
            )
            if one.soname == who
            else one
            for one in loader.resolutions
        )
        changed = Known(dataclasses.replace(loader, resolutions=lost), "the loader")
        report = diagnose(dataclasses.replace(facts, loader=changed), COMPAT)
        row = next(one for one in report.areas if one.name == ("cuDNN" if "cudnn" in who else "CUDA"))
        assert needs in row.text
        for width in (80, 60, 40):
            assert needs in " ".join(render_report(report, width=width).split("CUDA ")[-1].split())


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.few(40)
def test_a_marked_row_says_itself_what_is_wrong(host: Path) -> None:
    """In a few words of its finding, or by what was seen."""
    report, text = report_of(host), check_screen(host)
    assert "see above" not in text
    rows = {row[0]: row[1] for row in re.findall(r"^[✗!] (\w+) {2,}(.+) \[TFD\d+\]$", text, re.MULTILINE)}
    for area in report.areas:
        if area.name in rows and not area.reason and area.status is not Status.GOOD:
            said = [one.title for one in area.findings] + [one.row for one in area.findings if one.row]
            assert any(one in rows[area.name] for one in said), text


def test_every_check_has_a_few_words_for_its_row() -> None:
    for rule in ALL_RULES:
        if rule.shown_in is not None:
            assert 5 < len(rule.row) <= 40, rule.code
            assert not rule.row.endswith("."), rule.code


def test_a_row_tells_which_card_or_release_it_is_about() -> None:
    for name, row in (
        ("pascal-with-cudnn-9-11", "GTX 1080 Ti: too old for cuDNN 9.11.0.98"),
        ("driver-below-cuda-12", "Driver       470.256.02, for CUDA up to 11.4: too old for CUDA 12.5"),
        ("hidden-by-slurm", "Environment  CUDA_VISIBLE_DEVICES='NoDevFiles': hides every GPU"),
        ("compute-prohibited", ": its compute mode forbids computing"),
    ):
        assert row in check_screen(next(host for host in HOSTS if host.name == name))


def test_several_problems_are_all_named() -> None:
    texts = {host.name: check_screen(host) for host in HOSTS}
    for name, text in texts.items():
        for count, what in re.findall(r"^(\d+) (problem|warning)s?\b", text, re.MULTILINE):
            if int(count) > 1:
                assert re.search(rf"{count} {what}s \(TFD\d+", text), name


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
@pytest.mark.few(60)
def test_diagnose_is_one_screen(log: Path) -> None:
    text = log_screen(log)
    assert lines_at(text, 80) <= MOST - 2, text
    for width in (80, 40):
        assert not find_too_wide(log_screen(log, width), width)


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.few(40)
def test_fix_and_verify_are_one_screen(host: Path) -> None:
    for screen in (fix_screen, verify_screen):
        text = screen(host)
        assert text is None or lines_at(text, 80) <= MOST, text
        for width in (80, 40):
            assert not find_too_wide(screen(host, width) or "", width)


ASKED = run_question()


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.few(60)
def test_what_is_asked_for_is_one_screen(name: str) -> None:
    """matrix of one release, the dry runs of build and install, recommend, explain."""
    text = ASKED[name]()
    if text is not None:
        assert lines_at(text, 80) <= MOST - 2, text
        assert not find_too_wide(text, 80), text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_of_what_is_asked_for_is_too_wide(width: int) -> None:
    for version in ("1.14.0", "2.5.0", "2.21.0"):
        for screen in (matrix_screen, build_screen, install_screen):
            assert not find_too_wide(screen(version, width=width) or "", width)
    for code in codes()[::7]:
        assert not find_too_wide(explain_screen(code, width), width)


def test_verbose_explains_what_a_screen_leaves_out() -> None:
    shorter = 0
    for code in codes():
        screen, whole = explain_screen(code), render_explanation(lookup(code))
        if screen != whole:
            shorter += 1
            assert screen.endswith(f"More: tfdoctor explain {code} -v\n")
            assert "What it means" in screen
            assert "What to do" in screen
    assert shorter > 3


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
            assert not find_too_wide(render_recommendation(answer, width=width), width)


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.name)
@pytest.mark.few(40)
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
@pytest.mark.few(40)
def test_nothing_is_dim_and_no_colour_runs_over_a_sentence(host: Path) -> None:
    for style, text in re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)", check_screen(host, colour=True)):
        assert "2" not in style.split(";")
        if style not in {"0", "1"}:
            assert {"31", "32", "33"} & set(style.split(";"))  # and no other colour
            assert len(text) <= 3, text


@pytest.mark.parametrize("width", range(40, 90, 7))
@pytest.mark.parametrize(
    "command",
    [
        "python3 -m pip install 'tensorflow [and-cuda]==2.21.0' --no-deps --force-reinstall --upgrade",
        'export LD_LIBRARY_PATH=/usr/local/cuda-11.8/lib64"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" X=1 Y=2 Z=3',
        "ln -sf ../../cusolver/lib/libcusolver.so.11 /srv/tf/lib/python3.11/site-packages/nvidia/lib/libcusolver.so",
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


def test_the_minors_are_one_screen() -> None:
    """`matrix` in a terminal."""
    rows = select_rows(COMPAT, MatrixQuery())
    minors = overview(COMPAT, rows)
    text = render_overview(minors, releases=len(rows), as_of=COMPAT.as_of)
    assert lines_at(text, 80) <= MOST - 2, text
    assert f"All {len(rows)} releases, back to 1.0" in text
    assert len(re.findall(r"^\d\.\d+[-\d. !]+ {2,}.* to .* (?:install|build)$", text, re.MULTILINE)) > 12
    for width in (80, 60, 40):
        text = render_overview(minors, releases=len(rows), as_of=COMPAT.as_of, width=width)
        assert all(cells(line) <= width for line in text.splitlines())


def test_a_minors_line_is_true_of_each_release_that_it_is_of() -> None:
    """Its cards, and the command that gives it, by those who are asked about one release."""
    generations = {one.name: one.capability for one in COMPAT.cards.generation}
    minors = overview(COMPAT, select_rows(COMPAT, MatrixQuery()))
    seen = []
    for one in minors:
        spanned = [
            minor
            for minor in releases()
            if versions.compare(one.oldest, versions.major_minor(minor)) <= 0
            and versions.compare(versions.major_minor(minor), one.newest) <= 0
        ]
        assert spanned, one.span
        for version in spanned:
            seen.append(version)
            row = next((r for r in select_rows(COMPAT, MatrixQuery(tf=version, gpu=True))), None)
            if row is None:
                continue
            first, _, last = one.cards.partition(" to ")
            for name in {first, last or first}:
                assert find_code_on_card(COMPAT, row.release, generations[name]) == "native", version
            for method, command in ((Method.PIP, "install"), (Method.CONTAINER, "build")):
                has = bool(recommend(COMPAT, Request(version, method=method), Host()).options)
                if command == one.way:
                    assert has, version
                    break
                assert not has, version
    assert len(seen) > 30


def test_no_newer_card_is_promised_where_the_libraries_end() -> None:
    """CUDA 10.1 has no code for an RTX 30, whatever PTX the wheel has."""
    minors = {one.newest: one for one in overview(COMPAT, select_rows(COMPAT, MatrixQuery()))}
    assert minors["2.3"].newer == ""
    assert minors["2.3"].cards == "K40 to RTX 20"
    assert minors["2.21"].newer == "+"
    assert minors["2.20"].newer == "*"


def test_the_newest_releases_are_one_screen() -> None:
    """`matrix` in a terminal; the whole table (`--all`, conditions, a pipe) is as long as somebody asked for."""
    for name in ("linux", "windows"):
        rows = select_rows(COMPAT, MatrixQuery(os=name))
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
