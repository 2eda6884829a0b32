"""Tests of the shell parser: words, redirections, assignments and expansions."""

from __future__ import annotations

import pytest

from tfdoctor.images.read import shell
from tfdoctor.images.read.shell import Command, expand_variables, parse_commands


def parse(
    text: str, variables: dict[str, str | None] | None = None, *, exec_form: bool = False
) -> list[Command]:
    def line_at(index: int) -> int:
        return text.count("\n", 0, index) + 1

    return [*parse_commands(text, line_at, variables if variables is not None else {}, exec_form=exec_form)]


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b;c&&d||e&f\ng", [["a", "b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("(a; b) ;; c", [["a"], ["b"], ["c"]]),
        ("a \\\n b", [["a", "b"]]),
        ('a\\\nb c\\ d \\"', [["ab", "c d", '"']]),
        ("a # b\nc#d", [["a"], ["c#d"]]),
        ("a # b", [["a"]]),
        ("'a b'\"c d\"e 'open", [["a bc de", "open"]]),
        ('"a\\"b\\\\c\\`d\\x\\\ny" z', [['a"b\\c`d\\xy', "z"]]),
        ('"open', [["open"]]),
        ("sudo -H env A=1 -i pip x", [["pip", "x"]]),
        ("-x pip", [["-x", "pip"]]),
        ("export A=1 B; c", [["c"]]),
        ("if a; then b; fi", [["a"], ["b"], ["fi"]]),
        ("bash -exc 'a b; c'", [["a", "b"], ["c"]]),
        ("bash --rcfile x -c a", [["bash", "--rcfile", "x", "-c", "a"]]),
        ("bash --norc -c a", [["a"]]),
        ("bash -c", [["bash", "-c"]]),
        ("bash x -c a", [["bash", "x", "-c", "a"]]),
        ("/bin/sh -c \"sh -c 'sh -c a'\"", [["a"]]),
        ("a `b c` d `open", [["a", "", "d", ""]]),
        ("a $(b) c $", [["a", "", "c", "$"]]),
        ("", []),
    ],
)
def test_words_of_commands(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


def test_nested_shells_are_read_to_a_depth() -> None:
    commands = [*parse_commands("sh -c a", lambda _: 1, {}, depth=shell.MAX_SHELL_DEPTH - 1)]
    assert [command.text for command in commands] == ["a"]
    commands = [*parse_commands("sh -c a", lambda _: 1, {}, depth=shell.MAX_SHELL_DEPTH)]
    assert [command.text for command in commands] == ["sh -c a"]


def test_number_of_commands_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MAX_COMMANDS", 2)
    assert words("a;b;c") == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a >f b", [(">", "f", 1, False)]),
        ("a>f", [(">", "f", 1, True)]),
        ("a 2>f", [(">", "f", 1, False)]),
        ("tensorflow2>f", [(">", "f", 1, True)]),
        ("a >> f", [(">>", "f", 1, False)]),
        ("a 2>&1", [(">&", "1", 1, False)]),
        ("a &> f", [(">", "f", 1, False)]),
        ("a < f > g", [("<", "f", 1, False), (">", "g", 1, False)]),
        (">f a", [(">", "f", 0, False)]),
        ("sudo a>=2.4", [(">", "=2.4", 1, True)]),
        ("a >", []),
        ("a > ;b", []),
    ],
)
def test_redirections(text: str, expected: list[tuple[str, str, int, bool]]) -> None:
    (command, *_) = parse(text)
    redirects = command.redirects
    assert [(item.operator, item.target, item.word_count, item.is_attached) for item in redirects] == expected


def test_pipe_is_noticed() -> None:
    assert [command.is_piped for command in parse("a | b |& c || d; e")] == [False, True, True, False, False]


def test_commands_have_lines_and_names() -> None:
    first, second = parse("a \\\n b\n/usr/bin/c")
    assert ([word.line for word in first.words], second.line, second.name) == ([1, 2], 3, "c")
    assert (Command(()).name, Command(()).line) == ("", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["a", "b c"]', [["a", "b c"]]),
        (' ["sh", "-c", "x y"]', [["x", "y"]]),
        ('["a", 1]', [['["a",', "1]"]]),
        ('["a"', [["[a"]]),
        ("a", [["a"]]),
    ],
)
def test_exec_form_is_json(text: str, expected: list[list[str]]) -> None:
    assert [[word.text for word in command.words] for command in parse(text, exec_form=True)] == [
        [word.replace('"', "") for word in command] for command in expected
    ]


def test_assignments_last_if_they_stand_alone() -> None:
    variables: dict[str, str | None] = {"K": "k"}
    parse("A=1; B=2 cmd; export C=$K D=$U; declare E+=x; F=$(date); env G=1 cmd", variables)
    assert variables == {"K": "k", "A": "1", "C": "k", "D": None, "E": "x", "F": None}


VARIABLES = {"A": "1.2.3", "E": "", "U": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x$A.y", "x1.2.3.y"),
        ("${A}", "1.2.3"),
        ("$E", ""),
        ("$U", None),
        ("$N", None),
        ("$", "$"),
        ("$1", "$1"),
        ("${A:-x}", "1.2.3"),
        ("${E:-x}", "x"),
        ("${E-x}", "x"),
        ("${N:-$A}", "1.2.3"),
        ("${N-x}", "x"),
        ("${U:-x}", None),
        ("${N:-$U}", None),
        ("${A:+x}", "x"),
        ("${A+x}", "x"),
        ("${E:+x}", ""),
        ("${N:+x}", ""),
        ("${U:+x}", None),
        ("${A:?x}", "1.2.3"),
        ("${A?x}", "1.2.3"),
        ("${N:?x}", None),
        ("${A/./-}", "1-2.3"),
        ("${A//./-}", "1-2-3"),
        ("${A//./}", "123"),
        ("${A/?/x}", None),
        ("${A/}", None),
        ("${A%.*}", "1.2"),
        ("${A%%.*}", "1"),
        ("${A%.3}", "1.2"),
        ("${A%?}", None),
        ("${A#1.}", "2.3"),
        ("${A#*.}", None),
        ("${A^^}", None),
        ("${E%.*}", ""),
        ("${1}", None),
        ("${A", "${A"),
        ("$(date)x", None),
        ("$(date", None),
        ("${N:-${N:-${N:-${N:-${N:-x}}}}}", "x"),
        ("${N:-${N:-${N:-${N:-${N:-${N:-x}}}}}}", None),
    ],
)
def test_expansion(text: str, expected: str | None) -> None:
    result = expand_variables(text, VARIABLES)
    assert (result.text if result.is_known else None) == expected


def test_unknown_part_is_left_out() -> None:
    result = expand_variables("a$(x $(y))b${U}c", VARIABLES)
    assert (result.text, result.is_known) == ("abc", False)
    assert expand_variables("a${}b}c", VARIABLES).text == "ab}c"


def test_undeclared_name_has_the_default() -> None:
    assert expand_variables("a${N}b$N", VARIABLES, default="").text == "ab"
    assert expand_variables("${N%x}", VARIABLES, default="ax").text == "a"


def test_long_value_is_unknown() -> None:
    size = shell.MAX_VALUE_CHARS
    assert expand_variables("$A", {"A": "x" * size}).is_known
    long = expand_variables("$A", {"A": "x" * (size + 1)})
    assert (len(long.text), long.is_known) == (size, False)
    assert expand_variables("x" * (size + 1), {}).is_known, "no expansion made it long"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("$U", False),
        ('"$U"', False),
        ("'$U'", True),
        ('"`x`"', False),
        ("`x`", False),
        ("$A", True),
        ("\\$U", True),
    ],
)
def test_unknown_words(text: str, known: bool) -> None:
    (command,) = parse(f"echo {text}", dict(VARIABLES))
    assert command.words[1].is_known is known
