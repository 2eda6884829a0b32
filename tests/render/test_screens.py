"""Every command gives one screen for every recorded machine and every log: at most 24 lines of 80 columns, and
22 if nothing else was printed, which leaves lines for the command and the next prompt.

`-v` (`--all` for a matrix) shows the rest and is as long as necessary.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import subprocess
from functools import cache

import pytest

from recorded import FOLDERS, HOSTS, load_report
from render.screens import (
    LOGS,
    build_screen,
    check_screen,
    codes,
    explain_screen,
    fix_screen,
    install_screen,
    lines_at,
    load_log_report,
    log_screen,
    matrix_screen,
    releases,
    screens,
    verify_screen,
)
from tfdoctor.cli.explain import load_documentation
from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.core.facts import Known, value_of
from tfdoctor.core.findings import Cause, Severity, Status
from tfdoctor.diagnosis.explain import find_entries
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning import Method, Request, recommend
from tfdoctor.planning.overview import list_overviews
from tfdoctor.prediction.fit.matrix import MatrixQuery, find_code_on_gpu, select_rows
from tfdoctor.prediction.fit.models import Host
from tfdoctor.render.explain import render_explanation
from tfdoctor.render.finding import merge_library_evidence
from tfdoctor.render.matrix import render_overview, render_rows
from tfdoctor.render.paragraphs import Page, count_columns, print_commands, shorten_text, truncate_text
from tfdoctor.render.report import render_report
from tfdoctor.render.run_summary import render_run
from tfdoctor.rules import ALL_RULES

COMPAT = Compat.load()
MAX_SCREEN_LINES = 24


def find_too_wide(text: str, width: int) -> list[str]:
    """Return the lines that are wider than the terminal, except for single words of a command."""
    wide = [line for line in text.splitlines() if count_columns(line) > width]
    return [
        line
        for line in wide
        if count_columns(line.strip()) + 4 <= width
        or len(shlex.split(line.removesuffix(" \\").replace("`", ""))) > 1
    ]


@cache
def list_screens() -> dict[str, str]:
    return {name: text for name, text in screens() if text is not None}


def test_every_screen_fits() -> None:
    texts = list_screens()
    assert len(texts) > 1000
    too_long = [
        name
        for name, text in texts.items()
        if lines_at(text, 80) > MAX_SCREEN_LINES - 2 * (not name.startswith(("fix", "verify", "recommend")))
    ]
    too_wide = [line for text in texts.values() for line in find_too_wide(text, 80)]
    assert (too_long, too_wide) == ([], [])


def test_every_screen_fits_a_narrow_terminal() -> None:
    texts = [screen(host, 40) for host in FOLDERS for screen in (check_screen, fix_screen, verify_screen)]
    texts += [log_screen(log, 40) for log in LOGS]
    texts += [
        screen(version, width=40)
        for version in ("1.14.0", "2.5.0", "2.21.0")
        for screen in (matrix_screen, build_screen, install_screen)
    ]
    texts += [explain_screen(code, 40) for code in codes()]
    assert [line for text in texts for line in find_too_wide(text or "", 40)] == []


def find_bold_commands(coloured: str) -> list[str]:
    """Return the bold texts of the remedy block, without its labels."""
    block = re.split(r"^\x1b\[1m  (?:Do|Fix it) ", coloured, maxsplit=1, flags=re.MULTILINE)[1:]
    bold = re.findall(r"\x1b\[1m([^\x1b]+)", block[0].partition("\n\n")[0]) if block else []
    return [text.strip() for text in bold if text.strip() not in {"Or", "No root?", "By hand"}]


NOTHING_TO_TYPE = "nothing needs to be installed"
CHANGES = re.compile(
    "Undo: |To undo|cannot be undone|nothing to undo|Read-only|reverts everything|It holds |It lasts |It applies |"
    "A restart |It changes nothing|What runs in"
)
VERDICTS = {
    True: "will use",
    False: "will not use|cannot use it|not installed",
    None: "[Cc]ould not|cannot be|not installed",
}


@pytest.mark.parametrize("command", ["check", "fix --dry-run"])
def test_first_screen_answers_five_questions(command: str) -> None:
    """Is the GPU used, why not, what to type, can it be undone, and what can be done without root?"""
    for host in FOLDERS:
        report, screen = load_report(host), list_screens().get(f"{command} {host.name}", "")
        text, finding = " ".join(screen.split()), report.main_finding
        if command == "check":
            assert re.search(VERDICTS[report.verdict.gpu_usable], " ".join(screen.splitlines()[1:6])), screen
        if not screen or finding is None or not finding.remedies or NOTHING_TO_TYPE in text:
            continue
        if command == "check":
            assert "  Why " in screen, screen
            commands = find_bold_commands(check_screen(host, colour=True))
            assert commands, screen
            assert CHANGES.search(text), screen
            if finding.remedies[0].changes_system or any("sudo " in typed for typed in commands):
                assert "  No root? " in screen, screen
        else:
            has_commands = any(remedy.commands for remedy in finding.remedies)
            assert "To apply: tfdoctor fix" in text or "Nothing to fix automatically." in text
            assert CHANGES.search(text) or "--undo" in text or not has_commands or "(-v)" in text, text
            assert "No root" in text or not has_commands or "(-v)" in text, text


def test_first_screen_of_a_log_answers_five_questions() -> None:
    for log in LOGS:
        report, text = load_log_report(log), " ".join(log_screen(log).split())
        root = report.root_finding
        if root is None or root.severity < Severity.ERROR or report.cause is Cause.HEALTHY:
            continue
        assert re.search("did not use the GPU|failed on it|may not have used|does not say", text), text
        assert " Why " in text
        assert find_bold_commands(log_screen(log, colour=True)), text
        assert CHANGES.search(text), text
        assert "No root needed" in text or "No root? " in text, text
        undecided = root.explanation.partition("It may also be that ")[2]
        assert not any(cause.value in undecided for cause in report.other_causes if "-" in cause.value)
        assert not re.search("(?:^|that )A ", undecided)


def test_no_log_screen_repeats_a_remedy() -> None:
    for log in LOGS:
        for finding in load_log_report(log).findings:
            remedies = [(remedy.text, remedy.commands) for remedy in finding.remedies]
            assert len(remedies) == len(set(remedies)), log.name


@pytest.mark.parametrize(
    ("name", "words"), [("1.13.2-init-804", "cuda-compat"), ("1.13.2-init-999", "Load the module")]
)
def test_first_remedy_of_a_log_is_for_its_cause(name: str, words: str) -> None:
    report = load_log_report(next(log for log in LOGS if log.stem == name))
    assert report.root_finding is not None
    assert words in report.root_finding.remedies[0].text


def test_quoted_lines_are_in_the_log() -> None:
    """A reader can find each quoted line: it is only shortened at its ends."""
    for log in LOGS:
        content = log.read_text(encoding="utf-8", errors="replace")
        for quote in re.findall(r"^ +\d+ │ (.+)$", log_screen(log), re.MULTILINE):
            assert quote.removesuffix("…").strip() in content, f"{log.name}: {quote}"


def test_check_truncates_nothing() -> None:
    for host in FOLDERS:
        for width in (80, 60, 40):
            text = check_screen(host, width)
            assert "…" not in text.replace(", …)", ""), text


def test_text_before_fix_announces_nothing() -> None:
    """`tfdoctor fix` stands for the commands, so that no text above the undo note may end with a colon."""
    for name, text in list_screens().items():
        block = re.search(r"^  Fix it .*?(?=^$|No root needed)", text, re.MULTILINE | re.DOTALL)
        assert block is None or not re.search(r":\s*\Z", block[0]), f"{name}\n{text}"


def test_row_names_the_missing_library() -> None:
    facts = load_report(HOSTS / "healthy-tf221").facts
    loader = value_of(facts.loader)
    assert loader is not None
    for soname, missing in (
        ("libcusolver.so.11", "libnvJitLink.so.12"),
        ("libcudnn.so.9", "libcudnn_graph.so.9"),
    ):
        resolutions = tuple(
            dataclasses.replace(
                item, error=f"{missing}: cannot open shared object file", really_missing=(missing,)
            )
            if item.soname == soname
            else item
            for item in loader.resolutions
        )
        changed = Known(dataclasses.replace(loader, resolutions=resolutions), "the loader")
        report = diagnose(dataclasses.replace(facts, loader=changed), COMPAT)
        row = next(item for item in report.areas if item.name == ("cuDNN" if "cudnn" in soname else "CUDA"))
        assert missing in row.text
        for width in (80, 60, 40):
            assert missing in " ".join(render_report(report, width=width).split("CUDA ")[-1].split())


def test_marked_row_states_its_problem() -> None:
    """The row contains the short text or the title of one of its findings."""
    for host in FOLDERS:
        report, text = load_report(host), check_screen(host)
        assert "see above" not in text
        rows = {row[0]: row[1] for row in re.findall(r"^[✗!] (\w+) {2,}(.+) \[TFD\d+\]$", text, re.MULTILINE)}
        for area in report.areas:
            if area.name in rows and not area.explains_status and area.status is not Status.GOOD:
                titles = [
                    title for item in area.findings for title in (item.title, item.short_title) if title
                ]
                assert any(title in rows[area.name] for title in titles), text
        for count, kind in re.findall(r"^(\d+) (problem|warning)s?\b", text, re.MULTILINE):
            assert count == "1" or re.search(rf"{count} {kind}s \(TFD\d+", text), text


def test_every_rule_has_a_short_row_text() -> None:
    for rule in ALL_RULES:
        if rule.summary_area is not None:
            assert 5 < len(rule.short_title) <= 40, rule.code
            assert not rule.short_title.endswith("."), rule.code


def test_verbose_explanation_is_longer() -> None:
    shorter = 0
    for code in codes():
        screen, verbose = explain_screen(code), render_explanation(find_entries(code, load_documentation()))
        if screen != verbose:
            shorter += 1
            assert screen.endswith(f"More: tfdoctor explain {code} -v\n")
            assert "What it means" in screen
            assert "What to do" in screen
    assert shorter > 3


def test_verbose_shows_everything() -> None:
    """What the screen omits is shown with -v."""
    for host in FOLDERS:
        report = load_report(host)
        verbose = "".join(render_report(report, verbose=True, width=200).split()).lower()
        for finding in report.findings:
            texts = [
                finding.title.removeprefix("TensorFlow 2.18.1 "),
                finding.explanation,
                *(evidence.text for evidence in merge_library_evidence(finding.evidence)),
            ]
            for remedy in finding.remedies:
                texts += [remedy.text.removeprefix("Or ")[1:], *remedy.commands]
            for text in texts:
                assert "".join(text.split())[:300].lower() in verbose


def test_nothing_is_dim_and_only_marks_are_coloured() -> None:
    for host in FOLDERS:
        for style, text in re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)", check_screen(host, colour=True)):
            assert "2" not in style.split(";")
            if style not in {"0", "1"}:
                assert {"31", "32", "33"} & set(style.split(";"))  # no other colour is used
                assert len(text) <= 3, text


@pytest.mark.parametrize("width", [40, 61, 82])
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
def test_wrapped_command_is_the_same_command(command: str, width: int) -> None:
    page = Page(width, coloured=False)
    print_commands(page, [f"printf '%s|' {command}"], 4, with_continuations=True)
    if "never" in command:
        assert len(page.text.splitlines()) == 1
        return
    outputs = [
        subprocess.run([shutil.which("sh") or "/bin/sh", "-c", text], check=True, capture_output=True).stdout
        for text in (f"printf '%s|' {command}", page.text)
    ]
    assert outputs[0] == outputs[1]


def test_text_is_shortened_to_few_lines() -> None:
    text = "The driver is old. It was made for CUDA 11. Nothing newer runs on it; others say so, too."
    assert shorten_text(text, 80, 2) == text
    assert shorten_text(text, 40, 1) == "The driver is old."
    assert shorten_text("One; two that is very much longer than that", 20, 1) == "One."
    assert count_columns(shorten_text("word " * 40, 20, 2)) <= 40
    assert truncate_text("/a/path/without/any/space/that/is/long", 12).endswith(" …")
    assert count_columns(truncate_text("日本" * 30, 15)) <= 15


def test_run_is_one_screen() -> None:
    """Show what `run` adds at a program's end, with the program's name above it and the notes below."""
    notes = (
        "tfdoctor set TF_CPP_MAX_VLOG_LEVEL for this program, so that TensorFlow names what it could not open.",
    )
    for log in LOGS:
        text = render_run(
            ["python", "train.py"],
            1,
            load_log_report(log),
            has_messages=True,
            failures=(),
            lost_bytes=0,
            notes=notes,
            verbose=False,
            quiet=False,
        )
        assert lines_at(text, 80) <= MAX_SCREEN_LINES, text


def test_overview_of_minors_is_one_screen() -> None:
    """Show `matrix` in a terminal."""
    releases_ = select_rows(COMPAT, MatrixQuery())
    minors = list_overviews(COMPAT, releases_)
    text = render_overview(minors, release_count=len(releases_), as_of=COMPAT.as_of)
    assert lines_at(text, 80) <= MAX_SCREEN_LINES - 2, text
    assert f"All {len(releases_)} releases, back to 1.0" in text
    assert len(re.findall(r"^\d\.\d+[-\d. !]+ {2,}.* to .* (?:install|build)$", text, re.MULTILINE)) > 12
    for width in (80, 60, 40):
        text = render_overview(minors, release_count=len(releases_), as_of=COMPAT.as_of, width=width)
        assert all(count_columns(line) <= width for line in text.splitlines())


def test_overview_line_holds_for_each_release() -> None:
    """Compare the GPUs and the command of each line with the answers for each of its releases."""
    generations = {line.name: line.capability for line in COMPAT.cards.generations}
    minors = list_overviews(COMPAT, select_rows(COMPAT, MatrixQuery()))
    checked = []
    for line in minors:
        covered = [
            minor
            for minor in releases()
            if versions.compare(line.oldest_minor, versions.major_minor(minor)) <= 0
            and versions.compare(versions.major_minor(minor), line.newest_minor) <= 0
        ]
        assert covered, line.span
        for version in covered:
            checked.append(version)
            row = next(
                (candidate for candidate in select_rows(COMPAT, MatrixQuery(tf=version, gpu=True))), None
            )
            if row is None:
                continue
            first, _, last = line.cards.partition(" to ")
            for name in {first, last or first}:
                assert find_code_on_gpu(COMPAT, row.release, generations[name]) == "native", version
            for method, command in ((Method.PIP, "install"), (Method.CONTAINER, "build")):
                available = bool(recommend(COMPAT, Request(version, method=method), Host()).options)
                if command == line.way:
                    assert available, version
                    break
                assert not available, version
    assert len(checked) > 30


def test_libraries_limit_the_newest_gpu() -> None:
    """CUDA 10.1 has no code for an RTX 30, whatever PTX the wheel has."""
    minors = {line.newest_minor: line for line in list_overviews(COMPAT, select_rows(COMPAT, MatrixQuery()))}
    assert minors["2.3"].newer == ""
    assert minors["2.3"].cards == "K40 to RTX 20"
    assert minors["2.21"].newer == "+"
    assert minors["2.20"].newer == "*"


def test_newest_releases_are_one_screen() -> None:
    """Show `matrix` in a terminal; the whole table (`--all`, conditions, a pipe) may be longer."""
    for system in ("linux", "windows"):
        rows = select_rows(COMPAT, MatrixQuery(os=system))
        windows = system == "windows"
        text = render_rows(rows, as_of=COMPAT.as_of, only_newest=True, for_windows=windows)
        assert lines_at(text, 80) <= MAX_SCREEN_LINES - 2, text
        assert f"{len(rows)} releases" in text
        older = re.search(r"The older ones, (\S+) to (\S+): `tfdoctor matrix --all`", text)
        assert older is not None
        assert older[2].startswith("1.")
        for width in (80, 40):
            text = render_rows(rows, as_of=COMPAT.as_of, only_newest=True, for_windows=windows, width=width)
            assert all(count_columns(line) <= width for line in text.splitlines())
