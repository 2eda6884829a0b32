"""Tests of Dockerfiles: instructions, stages, variables, copies and commands."""

from __future__ import annotations

import pytest

from tfdoctor.images.read import reader
from tfdoctor.images.read.models import BuildStage, Copy, Setting, ShellCommand
from tfdoctor.images.read.reader import parse_dockerfile
from tfdoctor.images.read.syntax import parse_instructions


def parse_stage(text: str) -> BuildStage:
    return parse_dockerfile(text).stages[-1]


def list_commands(text: str) -> list[tuple[str, int, str | None]]:
    steps = parse_stage(text).steps
    return [(step.command.text, step.line, step.folder) for step in steps if isinstance(step, ShellCommand)]


def list_copies(text: str) -> list[Copy]:
    return [step for step in parse_stage(text).steps if isinstance(step, Copy)]


def list_values(*lines: str) -> dict[str, str | None]:
    steps = parse_stage("\n".join(lines)).steps
    return {step.name: step.value for step in steps if isinstance(step, Setting)}


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from a\nRUN b", [("FROM", " a", 1), ("RUN", " b", 2)]),
        ("\ufeff# x\r\n\r\nRUN a \\\r\n# c\n\n  b\rRUN c", [("RUN", " a   b", 3), ("RUN", " c", 7)]),
        ("# escape=`\nRUN a `\nb \\\nRUN c", [("RUN", " a b \\", 2), ("RUN", " c", 4)]),
        ("# syntax=x\n# Escape = `\nRUN a `\nb", [("RUN", " a b", 3)]),
        ("# escape=\\\nRUN a \\\nb", [("RUN", " a b", 2)]),
        ("# a comment\n# escape=`\nRUN a \\\nb", [("RUN", " a b", 3)]),
        ("RUNNING a\nRUNx\nFOO a\nRUN", [("RUN", "", 4)]),
        ("RUN a \\", [("RUN", " a ", 1)]),
    ],
)
def test_instructions(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert [(item.name, item.body.text, item.line) for item in parse_instructions(text)] == expected


def test_heredocs() -> None:
    text = "RUN <<A cat <<-'B' && x\none\n\nA\n\ttwo\n\tB\nRUN <<C\nRUN d\nCOPY 3<<E /f\nE\nLABEL <<F\nF\n"
    instructions = [*parse_instructions(text)]
    assert [(item.name, item.line) for item in instructions] == [
        ("RUN", 1),
        ("RUN", 7),
        ("RUN", 8),
        ("COPY", 9),
        ("LABEL", 11),
    ]
    assert [[body.text for body in item.heredocs] for item in instructions] == [
        ["one\n", "\ttwo"],
        [],
        [],
        [""],
        [],
    ]
    one, two = instructions[0].heredocs
    assert (one.line_at(0), one.line_at(4), two.line_at(3)) == (2, 3, 5)
    assert instructions[3].heredocs[0].line_at(0) == 10


def test_characters_keep_their_lines() -> None:
    (instruction,) = parse_instructions("RUN \\\n aa \\\n # no\n bb")
    body = instruction.body
    assert body.text == "  aa  bb"
    assert [body.line_at(offset) for offset in (0, 1, 2, body.text.index("bb"), 99)] == [1, 2, 2, 4, 4]


# ---------------------------------------------------------------- stages and variables


@pytest.mark.parametrize(
    ("text", "base", "platform"),
    [
        ("ARG A=x\nARG B=${A}:1 C\nFROM --platform=linux/$A $B", "x:1", "linux/x"),
        ("ARG A\nFROM $A", None, None),
        ("FROM ${A:-x}", "x", None),
        ("FROM --platform=$TARGETPLATFORM 'x' as y", "x", None),
        ("FROM", None, None),
        ("FROM x as", "x", None),
        ("FROM $TARGETOS", None, None),
        ("ENV A=x\nRUN b\nFROM x", "x", None),
    ],
)
def test_base_of_a_stage(text: str, base: str | None, platform: str | None) -> None:
    stage = parse_stage(text)
    assert (stage.base, stage.platform) == (base, platform)


def test_stage_builds_on_another() -> None:
    file = parse_dockerfile(
        'FROM x AS One\nENV A=1\nWORKDIR /w\nSHELL ["pwsh"]\nFROM y AS one\nARG B=2\nENV A=3\nWORKDIR /v\n'
        "FROM z two\nFROM ONE\nENV C=$A$B D=${B:-4}\nRUN a\nFROM one:1\n"
    )
    assert [stage.name for stage in file.stages] == ["one", "one", "", "", ""]
    assert [stage.parent_index for stage in file.stages] == [None, None, None, 1, None]
    child = file.stages[3]
    assert (child.base, child.written_base, child.line) == (None, "ONE", 10)
    assert [step.value for step in child.steps if isinstance(step, Setting)] == [None, "4"]
    assert [step.folder for step in child.steps if isinstance(step, ShellCommand)] == ["/v"]
    assert [stage.index for stage in parse_dockerfile("FROM a AS b\nFROM c\nFROM b").stage_chain] == [0, 2]
    assert parse_dockerfile("RUN a").stage_chain == ()
    assert file.find_stage("ONE", 4) is file.stages[1]
    assert file.find_stage("one", 1) is file.stages[0]
    assert file.find_stage("1", 2) is file.stages[1]
    assert file.find_stage("1", 1) is None
    assert file.find_stage("123456", 999_999) is None
    assert file.find_stage("nginx", 4) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("ENV A=1 B='x y' C=\"$A z\"",), {"A": "1", "B": "x y", "C": None}),
        (("ENV A=1", "ENV B=$A A=2 C=$A"), {"A": "2", "B": "1", "C": "1"}),
        (("ENV A  b c ",), {"A": "b c"}),
        (("ENV A 'b c'",), {"A": "b c"}),
        (("ENV A",), {"A": ""}),
        (("ENV 1A b",), {}),
        (("ENV A=b\\ c",), {"A": "b c"}),
        (("ENV A='",), {"A": ""}),
        (("ENV A \"'",), {"A": "\"'"}),
        (("ENV A ''",), {"A": ""}),
        (("ENV A '",), {"A": "'"}),
        (("ARG A=1", "ENV B=$A", "ENV A=2", "ARG A=3", "ENV C=$A"), {"B": "1", "A": "2", "C": "2"}),
        (("ARG A=1 B=$A C", "ENV D=$B E=$C"), {"D": "1", "E": None}),
        (("ARG G", "ENV A=$G"), {"A": "g"}),
        (("ENV A=$G",), {"A": None}),
        (("ARG A=1 =x B=2", "ENV C=$A D=$B"), {"C": "1", "D": None}),
    ],
)
def test_variables(lines: tuple[str, ...], expected: dict[str, str | None]) -> None:
    assert list_values("ARG G=g", "FROM x", *lines) == expected


def test_long_file_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_INSTRUCTIONS", 3)
    assert not parse_dockerfile("FROM a\nRUN b\nRUN c").is_truncated
    assert parse_dockerfile("FROM a\nRUN b\nRUN c\nRUN d").is_truncated
    monkeypatch.setattr(reader, "MAX_INSTRUCTIONS", 9)
    monkeypatch.setattr(reader, "MAX_STEPS", 2)
    assert not parse_dockerfile("FROM a\nRUN b; c").is_truncated
    assert parse_dockerfile("FROM a\nRUN b; c\nRUN d").is_truncated
    assert parse_dockerfile("FROM a\nENV A=1\nFROM b\nENV A=1\nRUN d").is_truncated


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("RUN a; cd b && c\nRUN d", [("a", 2, "/"), ("c", 2, "/b"), ("d", 3, "/")]),
        ("WORKDIR w\nWORKDIR $X\nRUN a", [("a", 4, None)]),
        ("WORKDIR w\nWORKDIR ../v\nRUN a", [("a", 4, "/v")]),
        ("RUN cd $X; cd b; a; cd /c; a", [("a", 2, None), ("a", 2, "/c")]),
        ("RUN cd; a", [("cd", 2, "/"), ("a", 2, "/")]),
        ('RUN ["a", "b"]', [("a b", 2, "/")]),
        ("RUN --mount=type=cache,target=/x --network=none a \\\n && b", [("a", 2, "/"), ("b", 3, "/")]),
        ('SHELL ["/bin/bash", "-c"]\nRUN a', [("a", 3, "/")]),
        ('SHELL ["powershell"]\nRUN a', []),
        ("RUN <<E\na\nb\nE", [("a", 3, "/"), ("b", 4, "/")]),
        ("RUN bash -ex <<E\n#!/bin/bash\na\nE", [("a", 4, "/")]),
        ("RUN <<E\n#!/usr/bin/env python3\na\nE", []),
        ("RUN <<E sh -e <<F\na\nE\nb\nF", [("a", 3, "/"), ("b", 5, "/")]),
        ("RUN python3 <<E\na\nE", [("python3", 2, "/")]),
        ("ONBUILD RUN a\nCMD b", []),
    ],
)
def test_commands(lines: str, expected: list[tuple[str, int, str | None]]) -> None:
    assert list_commands(f"FROM x\n{lines}\n") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("COPY a b c/", [(("a", "b"), "/w/c/", None, None)]),
        ("COPY a /", [(("a",), "/", None, None)]),
        ("COPY a .", [(("a",), "/w", None, None)]),
        ("COPY a ./", [(("a",), "/w/", None, None)]),
        ("COPY a b/.", [(("a",), "/w/b/", None, None)]),
        ('ADD ["a b", "c"]', [(("a b",), "/w/c", None, None)]),
        ('COPY ["a", 1, "c"]', [(("a",), "/w/c", None, None)]),
        ('COPY ["a"', []),
        ("COPY a", []),
        ("COPY $X b c", [(("b",), "/w/c", None, None)]),
        ("COPY $X c", []),
        ("COPY a $X", [(("a",), None, None, None)]),
        ("COPY --chown=1 --from=One a b", [(("a",), "/w/b", "One", None)]),
        ("COPY --from=$X a b", [(("a",), "/w/b", "?", None)]),
        ("COPY <<E a /f\ntext\nE", [((), "/f", None, "text"), (("a",), "/f", None, None)]),
        ("RUN --mount=type=bind,source=a,target=b c", [(("a",), "/w/b", None, None)]),
        ("RUN --mount=src=a,dst=/b,from=s c", [(("a",), "/b", "s", None)]),
        ("RUN --mount=type=bind,destination=/b c", [((".",), "/b", None, None)]),
        ("RUN --mount=type=bind,source=a c", []),
        ("RUN --mount=type=cache,target=/b c", []),
        ("RUN --mount c", []),
    ],
)
def test_copies(
    line: str, expected: list[tuple[tuple[str, ...], str | None, str | None, str | None]]
) -> None:
    copies = list_copies(f"FROM x\nWORKDIR /w\n{line}\n")
    assert [(copy.sources, copy.target, copy.source_stage, copy.content) for copy in copies] == expected
