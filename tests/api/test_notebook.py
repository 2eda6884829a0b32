"""`%load_ext tfdoctor` and `%tfdoctor`, with a minimal shell and, if it is installed, with IPython."""

from __future__ import annotations

import html.parser
import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tfdoctor
from recorded import load_report
from tfdoctor.api import notebook
from tfdoctor.api.notebook import CheckResult, tfdoctor_magic
from tfdoctor.environments.models import FixOffer
from tfdoctor.render.notebook import COLOURS, make_report_html

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
KERNEL_PYTHON = f"{sys.executable} (Python {sys.version.split()[0]})"


class MinimalShell:
    """The part of IPython's shell that an extension uses: https://ipython.readthedocs.io, "Writing extensions"."""

    def __init__(self) -> None:
        self.magics: dict[str, Callable[[str], Any]] = {}

    def register_magic_function(self, func: Callable[[str], Any], magic_kind: str, magic_name: str) -> None:
        assert magic_kind == "line"
        self.magics[magic_name] = func

    def load(self, name: str) -> None:
        module = importlib.import_module(name)
        assert hasattr(module, "load_ipython_extension")
        module.load_ipython_extension(self)


@pytest.fixture
def magic() -> Callable[[str], Any]:
    shell = MinimalShell()
    shell.load("tfdoctor")
    return shell.magics["tfdoctor"]


@pytest.mark.parametrize("line", ["", "check", "check --timeout 20"])
def test_magic_checks_the_kernels_python(line: str, magic: Callable[[str], Any]) -> None:
    shown = magic(line)
    assert isinstance(shown, CheckResult)
    assert KERNEL_PYTHON in repr(shown)
    assert KERNEL_PYTHON in shown._repr_html_()
    answer = tfdoctor.check(sys.executable)
    assert shown.answer["verdict"] == answer["verdict"]
    pythons = [result["facts"]["python"]["known"] for result in (shown.answer, answer)]
    assert pythons[0]["executable"] == pythons[1]["executable"] == sys.executable
    assert "More: " in repr(shown) or "See it compute" in repr(shown)


def test_python_option_selects_another_python(magic: Callable[[str], Any], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    shown = magic(f"check --python {tmp_path}")
    assert f"{tmp_path}/bin/python (Python" in shown._repr_html_()
    assert shown.answer["facts"]["python"]["known"]["executable"] == f"{tmp_path}/bin/python"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("explain libs-unlisted", "TFD801 libs-unlisted"),
        ("version", tfdoctor.__version__),
        ("check --nonsense", "No such option"),
        ("check -v", sys.executable),
        ("fix --dry-run", "Nothing to fix automatically"),
        ("check -h", "tfdoctor check [OPTIONS]"),
    ],
)
def test_other_commands_run_as_on_the_command_line(
    line: str, said: str, magic: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert magic(line) is None
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "adds"),
    [
        ("fix", True),
        ("fix --python x", False),
        ("capture", True),
        ("check -v", True),
        ("check x", False),
        ("check --from x -v", False),
        ("explain", False),
        ("install", False),
    ],
)
def test_kernels_python_is_the_default(line: str, adds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(notebook, "_run_command", lambda words: calls.append(list(words)))
    tfdoctor_magic(line)
    assert calls == [line.split() + ["--python", sys.executable] * adds]


@pytest.mark.parametrize(
    ("line", "said"),
    [("check --python /nowhere", "/nowhere does not exist"), ('check "', "No closing quotation")],
)
def test_invalid_request_prints_a_message(
    line: str, said: str, magic: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert magic(line) is None
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err + out


LATE_CHANGE_PROGRAM = """
import os, sys
os.environ["LD_LIBRARY_PATH"] = "/set/too/late"
os.environ["CUDA_VISIBLE_DEVICES"] = "5"
from tfdoctor.api.notebook import tfdoctor_magic
shown = tfdoctor_magic("")
print(shown.answer["facts"]["environment"]["variables"])
print(repr(shown))
print(shown._repr_html_())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what was at the start")
def test_late_change_of_the_library_path_is_reported() -> None:
    env = {**os.environ, "LD_LIBRARY_PATH": "/from/the/start"}
    result = subprocess.run(
        [sys.executable, "-c", LATE_CHANGE_PROGRAM], capture_output=True, text=True, check=True, env=env
    )
    variables, text = result.stdout.split("\n", 1)
    assert "'LD_LIBRARY_PATH': '/from/the/start'" in variables
    assert "'CUDA_VISIBLE_DEVICES': '5'" in variables
    assert " ".join(text.split()).count("LD_LIBRARY_PATH was changed since this Python started.") == 2


# ---------------------------------------------------------------- HTML


class TagCollector(html.parser.HTMLParser):
    """The tags, attributes and text of an HTML document; fails if tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.few(4)
@pytest.mark.parametrize("host", sorted(path.parent.name for path in HOSTS.glob("*/host.json")))
def test_html_has_the_content_of_the_text_report(host: str) -> None:
    host_report = load_report(HOSTS / host)
    page = TagCollector(make_report_html(host_report))
    assert page.tags <= {"div", "p", "b", "pre", "table", "tr", "td"}
    assert page.attributes <= {"style"}
    text = " ".join(page.text.split())
    assert " ".join(host_report.verdict.headline.split()) in text
    for area in host_report.areas:
        assert area.name in text
    if host_report.main_finding is not None and host_report.main_finding.remedies:
        for command in host_report.main_finding.remedies[0].commands:
            assert " ".join(command.split()) in text


def test_everything_is_escaped() -> None:
    hostile = "<script>alert('x')</script>&amp; \"quoted\"\x1b[31m"
    host_report = load_report(HOSTS / "nouveau")
    assert host_report.main_finding is not None
    remedy = replace(host_report.main_finding.remedies[0], text=hostile, commands=(hostile,))
    finding = replace(host_report.main_finding, title=hostile, explanation=hostile, remedies=(remedy,))
    evil_report = replace(
        host_report,
        root_finding=finding,
        findings=(finding,),
        verdict=replace(host_report.verdict, headline=hostile),
        areas=tuple(replace(area, text=hostile, name=hostile) for area in host_report.areas),
    )
    for fix in (None, FixOffer(hostile, (finding,))):
        markup = make_report_html(evil_report, offer=fix, notes=[hostile])
        assert "<script" not in markup
        assert "\x1b" not in markup
        page = TagCollector(markup)
        assert page.text.count("<script>alert('x')</script>&amp;") >= 5


def test_fix_command_comes_first() -> None:
    host_report = load_report(HOSTS / "nouveau")
    assert host_report.main_finding is not None
    text = TagCollector(
        make_report_html(
            host_report, offer=FixOffer("tfdoctor fix --python /srv/x", (host_report.main_finding,))
        )
    ).text
    assert "tfdoctor fix --python /srv/x" in text
    assert host_report.main_finding.remedies[0].commands[0] not in text


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour `#rrggbb` as WCAG defines it."""
    channels = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#111111", "#1e1e1e"])
def test_marks_are_visible_on_light_and_dark(background: str) -> None:
    """Require a contrast of 3:1, as WCAG does for graphical objects."""
    for colour in COLOURS.values():
        if colour != "inherit":
            low, high = sorted((luminance(colour), luminance(background)))
            assert (high + 0.05) / (low + 0.05) >= 3


# ---------------------------------------------------------------- IPython


def test_magic_in_ipython() -> None:
    pytest.importorskip("IPython")
    script = "%load_ext tfdoctor\n%tfdoctor\n%tfdoctor version\n"
    command = [
        sys.executable,
        "-m",
        "IPython",
        "--colors=NoColor",
        "--no-banner",
        "--simple-prompt",
        "--quick",
    ]
    result = subprocess.run(
        command, input=script, capture_output=True, text=True, check=True, env={**os.environ, "TERM": "dumb"}
    )
    assert KERNEL_PYTHON in " ".join(result.stdout.split())
    assert f"tfdoctor {tfdoctor.__version__}" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
