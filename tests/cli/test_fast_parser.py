"""The fast parser of simple `check` command lines gives the same options as Typer."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from typing import TYPE_CHECKING

from tfdoctor.cli import check
from tfdoctor.cli.fast_parser import PARAMETER_BY_FLAG, VALUE_OPTIONS, parse_check
from tfdoctor.cli.main import make_command_group

if TYPE_CHECKING:
    import pytest

CHECK = make_command_group().commands["check"]
TYPER_OPTIONS = {"--ignore", "--simulate", "--driver", "--json-schema"}
"""Options of slow commands, which Typer parses."""
SAMPLES = {
    "--python": ["p", "/a b/python", "é", "a\nb"],
    "--from": ["bundle"],
    "--against": ["./x/../y"],
    "--html": ["page.html"],
    "--for": ["uv", "dockerfile"],
    "--timeout": ["1", "1.5", "999.125"],
    "--fail-on": ["error", "warning", "never"],
}
OPTION_SAMPLES = [
    *([flag] for flag in PARAMETER_BY_FLAG),
    *([option, value] for option, values in SAMPLES.items() for value in values),
]


def parse_with_typer(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return the options with which Typer calls the command."""
    called_options: dict[str, object] = {}
    monkeypatch.setattr(
        check, "check", functools.wraps(check.check)(lambda **options: called_options.update(options) or 0)
    )
    assert make_command_group()(["check", *arguments], standalone_mode=False) == 0
    return called_options


def test_options_equal_those_of_typer(monkeypatch):
    pairs = [[*one, *two] for one, two in itertools.combinations(OPTION_SAMPLES, 2) if one[0] < two[0]]
    for words in ([], *OPTION_SAMPLES, *pairs, ["--python", "a", "--python", "b", "-q", "-v"]):
        parsed, expected = parse_check(["check", *words]), parse_with_typer(words, monkeypatch)
        assert parsed == expected
        assert [type(parsed[name]) for name in expected] == [type(value) for value in expected.values()]


def test_every_option_is_covered():
    options = [param for param in CHECK.params if param.param_type_name == "option"]
    names = {name for option in options for name in option.opts} - {"--help", "-h"}
    assert names == PARAMETER_BY_FLAG.keys() | VALUE_OPTIONS.keys() | TYPER_OPTIONS


def test_other_command_lines_are_left_to_typer():
    lines = (
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
    )
    assert [line for line in lines if parse_check(line.split(" ")) is not None] == []


def test_simple_check_loads_no_typer(tmp_path):
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
