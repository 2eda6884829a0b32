"""The width, the colour and the encoding of a stream."""

from __future__ import annotations

import io
import sys

import pytest

from tfdoctor.render import terminal
from tfdoctor.render.terminal import OUT


@pytest.mark.parametrize(
    ("columns", "width"),
    [
        ("19", 20),
        ("20", 20),
        ("21", 21),
        ("200", 200),
        ("201", 200),
        ("9" * 30, 200),
        ("0", 80),
        ("x", 80),
        ("", 80),
    ],
)
def test_width_of_a_pipe(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert OUT.width == width


@pytest.mark.parametrize(
    ("no_color", "force_color", "term", "is_terminal", "colour"),
    [
        ("", "", "xterm", True, True),
        ("", "", "dumb", True, False),
        ("", "", "", True, True),
        ("", "", "xterm", False, False),
        ("", "1", "dumb", False, True),
        ("1", "1", "xterm", True, False),
    ],
)
def test_colour(
    monkeypatch: pytest.MonkeyPatch,
    no_color: str,
    force_color: str,
    term: str,
    is_terminal: bool,
    colour: bool,
) -> None:
    for name, value in (("NO_COLOR", no_color), ("FORCE_COLOR", force_color), ("TERM", term)):
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    assert OUT.colour is colour


@pytest.mark.parametrize(
    ("variables", "choice", "colour"),
    [
        ({"CLICOLOR": "0"}, "auto", False),
        ({"CLICOLOR": "1"}, "auto", True),
        ({"CLICOLOR_FORCE": "1", "TERM": "dumb"}, "auto", True),
        ({"CLICOLOR_FORCE": "0", "TERM": "dumb"}, "auto", False),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, "auto", False),
        ({"NO_COLOR": "1"}, "always", True),
        ({"FORCE_COLOR": "1"}, "never", False),
    ],
)
def test_option_and_clicolor(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], choice: str, colour: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(terminal, "_color_choice", "auto")
    terminal.set_color(choice)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stream)
    assert OUT.colour is colour


@pytest.mark.parametrize(
    ("encoding", "written"), [("ascii", "+ ... ?"), ("latin-1", "+ ... é"), ("utf-8", "✓ … é")]
)
def test_missing_characters_are_replaced(
    monkeypatch: pytest.MonkeyPatch, encoding: str, written: str
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    OUT.write_document("✓ … é")
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == written  # type: ignore[attr-defined]
