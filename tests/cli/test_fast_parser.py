"""The plain command lines of `check` mean what Typer says they mean."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys

import pytest

from tfdoctor.cli import check
from tfdoctor.cli.fast_parser import FLAGS, VALUES, plain
from tfdoctor.cli.main import command_line

CHECK = command_line().commands["check"]
LEFT = {"--simulate", "--driver"}
"""What takes seconds anyway: Typer reads it."""
SAMPLES = {
    "--python": ["p", "/a b/python", "é", "a\nb"],
    "--facts": ["bundle"],
    "--against": ["./x/../y"],
    "--html": ["page.html"],
    "--timeout": ["1", "1.5", "999.125"],
    "--fail-on": ["error", "warning", "never"],
}
WORDS = [
    *([flag] for flag in FLAGS),
    *([option, value] for option, values in SAMPLES.items() for value in values),
]


def call_by_typer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the command is called with."""
    found: dict[str, object] = {}
    monkeypatch.setattr(
        check, "check", functools.wraps(check.check)(lambda **options: found.update(options) or 0)
    )
    assert command_line()(["check", *words], standalone_mode=False) == 0
    return found


@pytest.mark.parametrize(
    "words",
    [
        [],
        *WORDS,
        *([*one, *two] for one, two in itertools.combinations(WORDS, 2) if one[0] < two[0]),
        ["--python", "a", "--python", "b", "-q", "-v"],
    ],
    ids=" ".join,
)
def test_as_typer_reads_it(words, monkeypatch):
    mine, theirs = plain(["check", *words]), call_by_typer(words, monkeypatch)
    assert mine == theirs
    assert {name: type(value) for name, value in mine.items()} == {
        name: type(value) for name, value in theirs.items()
    }


def test_every_option_is_known_or_left_to_typer():
    options = [param for param in CHECK.params if param.param_type_name == "option"]
    known = {word for option in options for word in option.opts} - {"--help", "-h"}
    assert known == FLAGS.keys() | VALUES.keys() | LEFT


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "check --help",
        "check x",
        "check --deep --simulate T4",
        "check --pyth a",
        "check --python=a",
        "check -vq",
        "check --python",
        "check --python -v",
        "check --timeout 0",
        "check --timeout nan",
        "check --timeout 1e3",
        "check --timeout ٣",
        "check --fail-on Error",
        "check --fail-on error\n",
        "check --",
        "--version",
        "capture",
    ],
)
def test_all_else_is_typers(line):
    assert plain(line.split(" ")) is None


def test_a_plain_check_loads_no_typer(tmp_path):
    code = (
        "import sys\n"
        "from tfdoctor.cli.startup import run\n"
        f"sys.argv = ['tfdoctor', 'check', '-q', '--python', {str(tmp_path / 'none')!r}]\n"
        "try:\n    run()\nexcept SystemExit as end:\n    assert end.code == 2, end.code\n"
        "assert 'tfdoctor.cli.check' in sys.modules\n"
        "heavy = {'typer', 'rich', 'packaging', 'tfdoctor.rules', 'tfdoctor.compat'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
