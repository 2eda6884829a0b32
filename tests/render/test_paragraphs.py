"""Paragraphs break as Rich breaks them at every width, and a colour ends with its text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdoctor.render.paragraphs import (
    Page,
    Text,
    count_columns,
    format_commands,
    print_hanging,
    select_commands,
    shorten_text,
    truncate_text,
)
from tfdoctor.render.screen import print_more_commands
from tfdoctor.render.tables import ProseText, get_text
from tfdoctor.render.tables import make_console as rich_page

WORDS = st.lists(st.text("aé✓W. 日本/", max_size=30), max_size=12).map(" ".join)


def format_by_rich(text: str, width: int) -> str:
    from rich.text import Text as RichText

    page = rich_page(width, coloured=False)
    page.print(RichText(text))
    return get_text(page)


@given(text=WORDS, width=st.integers(20, 60))
def test_lines_break_as_in_rich(text: str, width: int) -> None:
    page = Page(width, coloured=False)
    page.print(Text(text))
    assert page.text == format_by_rich(text, width)


@given(text=WORDS, width=st.integers(20, 60), coloured=st.booleans())
def test_hanging_text_fits_and_is_complete(text: str, width: int, coloured: bool) -> None:
    page = Page(width, coloured=coloured)
    print_hanging(page, Text("  Why   ", style="bold"), text, style="bold red")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", page.text)
    assert all(count_columns(line) <= width for line in plain.splitlines())
    assert "".join(plain.split()) == "Why" + "".join(text.split())
    assert all(line.count("\x1b[0m") * 2 == line.count("\x1b") for line in page.text.splitlines())


@pytest.mark.parametrize(
    ("text", "wide"), [("", 0), ("abc", 3), ("✓ é", 3), ("日本", 4), ("e\u0301", 1), ("\uff21", 2)]
)
def test_cells_of_a_text(text: str, wide: int) -> None:
    assert count_columns(text) == wide


def test_each_text_keeps_its_style() -> None:
    page = Page(36, coloured=True)
    print_hanging(
        page, Text("✗ ", style="bold red") + Text("GPU  ", style="bold"), "one two three four five six seven"
    )
    assert page.text == "\x1b[1;31m✗ \x1b[0m\x1b[1mGPU  \x1b[0mone two three four five six\n       seven\n"


@pytest.mark.parametrize(
    ("text", "columns", "lines", "expected"),
    [
        ("One two. Three four.", 20, 1, "One two. Three four."),
        ("One two. Three four.", 19, 1, "One two."),
        ("One two. Three four.", 19, 2, "One two. Three four."),
        ("One two; three four five.", 14, 1, "One two."),
        ("One (two; three) four five six seven.", 16, 1, "One (two; three) four five six seven."),
        ("One two three four five.", 10, 1, "One two three four five."),
        ("One two three four five.", 8, 1, "One …"),
        ("One two three four five.", 6, 1, "One …"),
        ("One two three. Four", 7, 1, "One two three."),
        ("abcdefghijklmnop", 4, 1, "ab …"),
    ],
)
def test_shortened_text_keeps_whole_sentences(text: str, columns: int, lines: int, expected: str) -> None:
    assert shorten_text(text, columns, lines) == expected


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("abc def", 7, "abc def"),
        ("abc def", 6, "abc …"),
        ("abc, de", 6, "abc …"),
        ("abcdefgh ij", 7, "abcde …"),
    ],
)
def test_truncated_text(text: str, columns: int, expected: str) -> None:
    assert truncate_text(text, columns) == expected


@pytest.mark.parametrize(
    ("command", "width", "lines"),
    [
        ("a b", 13, ["          a b"]),
        ("aaaa bbbb cccc", 24, ["          aaaa bbbb cccc"]),
        ("aaaa bbbb cccc", 23, ["          aaaa bbbb \\", "              cccc"]),
        ("aaaaaaaaaaaa bbb", 20, ["    aaaaaaaaaaaa bbb"]),
        ("cat << E aaaa bbbb", 20, ["  cat << E aaaa bbbb"]),
        ("aaaa bbbb # cccc dddd", 20, ["          aaaa bbbb # cccc dddd"]),
        ("a\nb", 20, ["          a", "          b"]),
    ],
)
def test_lines_of_a_command(command: str, width: int, lines: list[str]) -> None:
    assert list(format_commands([command], 10, width)) == lines


def test_selected_commands_fit() -> None:
    commands = ["a b", "aaaa bbbb cccc", "d"]
    assert [select_commands(commands, 10, 23, count) for count in (0, 1, 2, 3, 4)] == [
        ["a b"],
        ["a b"],
        ["a b"],
        ["a b", "aaaa bbbb cccc"],
        commands,
    ]


@pytest.mark.parametrize("width", [30, 60, 80])
def test_command_of_the_last_line_is_not_broken(width: int) -> None:
    """Without the continuations, the lines are the commands, and none is broken inside its quotes."""
    commands = [
        (
            "tfdoctor check --from '/srv/my recorded machines/a b c.tar.gz' --python /srv/tf/bin/python -v",
            "all",
        ),
        ("tfdoctor explain TFD201", ""),
        ("tfdoctor matrix --gpu 'NVIDIA RTX 6000 Ada Generation' --driver 550 --python-version 3.11", ""),
    ]
    page = Page(width, coloured=False)
    print_more_commands(page, "More", commands)
    joined = re.sub(r" \\\n +", " ", page.text.removeprefix("More: "))
    lines = [part.strip().removesuffix(" (all)") for part in re.split(r"\n| · ", joined) if part.strip()]
    assert lines == [command for command, _ in commands]


@pytest.mark.parametrize("width", [46, 53, 60, 64, 70, 80])
def test_code_in_a_sentence_is_not_broken(width: int) -> None:
    sentence = (
        "The commands are `tfdoctor check --python PATH` and (`tfdoctor fix --undo`), then `tfdoctor run`."
    )
    page, rich = Page(width, coloured=False), rich_page(width, coloured=False)
    print_hanging(page, Text("  Do  "), sentence)
    rich.print(ProseText(sentence))
    for text in (page.text, get_text(rich)):
        assert all(line.count("`") % 2 == 0 for line in text.splitlines()), text
        assert " ".join(text.replace("Do", "").split()) == sentence
