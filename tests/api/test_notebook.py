"""`%load_ext tfdoctor` and `%tfdoctor`: with IPython where it is installed, else with what its protocol asks for."""

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
from recorded import report
from tfdoctor.api import notebook
from tfdoctor.api.notebook import Shown, tfdoctor_magic
from tfdoctor.environment.models import Offer
from tfdoctor.render.notebook import COLOURS, report_html

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
KERNELS_OWN = f"{sys.executable} (Python {sys.version.split()[0]})"


class Shell:
    """As much of IPython's as an extension uses: https://ipython.readthedocs.io, "Writing extensions"."""

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
    shell = Shell()
    shell.load("tfdoctor")
    return shell.magics["tfdoctor"]


@pytest.mark.parametrize("line", ["", "check", "check --timeout 20"])
def test_it_checks_the_kernels_own_python(line: str, magic: Callable[[str], Any]) -> None:
    shown = magic(line)
    assert isinstance(shown, Shown)
    assert KERNELS_OWN in repr(shown)
    assert KERNELS_OWN in shown._repr_html_()
    answer = tfdoctor.check(sys.executable)
    assert shown.answer["verdict"] == answer["verdict"]
    here = [one["facts"]["python"]["known"] for one in (shown.answer, answer)]
    assert here[0]["executable"] == here[1]["executable"] == sys.executable
    assert "More: " in repr(shown) or "See it compute" in repr(shown)


def test_another_python_can_be_named(magic: Callable[[str], Any], tmp_path: Path) -> None:
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
        ("fix --dry-run", "Fix can do nothing here"),
        ("check -h", "tfdoctor check [OPTIONS]"),
    ],
)
def test_all_else_is_the_command_lines(
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
        ("check --facts x -v", False),
        ("explain", False),
        ("install", False),
    ],
)
def test_the_python_that_is_meant_is_the_kernels(
    line: str, adds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(notebook, "_run", lambda words: ran.append(list(words)))
    tfdoctor_magic(line)
    assert ran == [line.split() + ["--python", sys.executable] * adds]


@pytest.mark.parametrize(
    ("line", "said"),
    [("check --python /nowhere", "/nowhere does not exist"), ('check "', "No closing quotation")],
)
def test_what_is_wrong_is_said_in_a_sentence(
    line: str, said: str, magic: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert magic(line) is None
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err + out


LATE = """
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
def test_what_the_loader_does_not_see_any_more_is_said() -> None:
    env = {**os.environ, "LD_LIBRARY_PATH": "/from/the/start"}
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True, env=env)
    first, rest = done.stdout.split("\n", 1)
    assert "'LD_LIBRARY_PATH': '/from/the/start'" in first
    assert "'CUDA_VISIBLE_DEVICES': '5'" in first
    assert " ".join(rest.split()).count("LD_LIBRARY_PATH was changed since this Python started.") == 2


# ---------------------------------------------------------------- HTML


class Tags(html.parser.HTMLParser):
    """What an HTML is made of; fails where tags are not closed in order."""

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
def test_the_page_says_what_the_screen_says(host: str) -> None:
    one = report(HOSTS / host)
    page = Tags(report_html(one))
    assert page.tags <= {"div", "p", "b", "pre", "table", "tr", "td"}
    assert page.attributes <= {"style"}
    words = " ".join(page.text.split())
    assert " ".join(one.verdict.headline.split()) in words
    for area in one.areas:
        assert area.name in words
    if one.main is not None and one.main.remedies:
        for command in one.main.remedies[0].commands:
            assert " ".join(command.split()) in words


def test_everything_is_escaped() -> None:
    evil = "<script>alert('x')</script>&amp; \"quoted\"\x1b[31m"
    one = report(HOSTS / "nouveau")
    assert one.main is not None
    remedy = replace(one.main.remedies[0], text=evil, commands=(evil,))
    finding = replace(one.main, title=evil, explanation=evil, remedies=(remedy,))
    evil_report = replace(
        one,
        root=finding,
        findings=(finding,),
        verdict=replace(one.verdict, headline=evil),
        areas=tuple(replace(area, text=evil, name=evil) for area in one.areas),
    )
    for fix in (None, Offer(evil, (finding,))):
        shown = report_html(evil_report, fix=fix, notes=[evil])
        assert "<script" not in shown
        assert "\x1b" not in shown
        page = Tags(shown)
        assert page.text.count("<script>alert('x')</script>&amp;") >= 5


def test_what_fix_can_do_comes_first() -> None:
    one = report(HOSTS / "nouveau")
    assert one.main is not None
    words = Tags(report_html(one, fix=Offer("tfdoctor fix --python /srv/x", (one.main,)))).text
    assert "tfdoctor fix --python /srv/x" in words
    assert one.main.remedies[0].commands[0] not in words


def luminance(colour: str) -> float:
    """Of `#rrggbb`, by WCAG."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#111111", "#1e1e1e"])
def test_the_marks_are_seen_on_light_and_dark(background: str) -> None:
    """3:1, which WCAG asks for signs."""
    for colour in COLOURS.values():
        if colour != "inherit":
            low, high = sorted((luminance(colour), luminance(background)))
            assert (high + 0.05) / (low + 0.05) >= 3


# ---------------------------------------------------------------- the real one


def test_in_ipython() -> None:
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
    done = subprocess.run(
        command, input=script, capture_output=True, text=True, check=True, env={**os.environ, "TERM": "dumb"}
    )
    assert KERNELS_OWN in " ".join(done.stdout.split())
    assert f"tfdoctor {tfdoctor.__version__}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
