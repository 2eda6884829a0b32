"""The command line: its list of commands, and that a command is loaded only if it is called."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from cli.planner import call_tfdoctor
from tfdoctor.cli.commands import list_commands
from tfdoctor.cli.main import make_command_group

LIST_MODULES_PROGRAM = (
    "import sys; from tfdoctor.cli.startup import run; sys.argv = ['tfdoctor', *{words!r}]\n"
    "try: run()\n"
    "finally: print(' '.join(name.removeprefix('tfdoctor.') for name in sys.modules))"
)


def list_loaded(*arguments: str) -> set[str]:
    """Return the modules that a command line loads; those of tfdoctor without the prefix `tfdoctor.`."""
    result = subprocess.run(
        [sys.executable, "-c", LIST_MODULES_PROGRAM.format(words=arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", list_commands())
def test_command_is_a_module_with_its_own_signature(name: str) -> None:
    command = make_command_group().commands[name]
    assert command.name == name
    assert command.help.partition("\n")[0] == list_commands()[name]
    function = inspect.unwrap(command.callback)
    assert function.__name__ == name
    assert function.__module__ in (f"tfdoctor.cli.{name}", f"tfdoctor.extensions.{name}.command")
    parameters = {param.name for param in command.params} - {"help", "json_schema"}
    assert parameters == set(inspect.signature(function).parameters)


def test_help_loads_no_command() -> None:
    loaded = list_loaded("--help")
    names = list_commands()
    assert not loaded & ({f"cli.{name}" for name in names} | {f"extensions.{name}.command" for name in names})
    assert not loaded & {"compat", "images", "planning", "render", "rules"}


@pytest.mark.parametrize("name", ["check", "explain", "matrix", "parse"])
def test_command_loads_no_other(name: str) -> None:
    loaded = list_loaded(name, "--help")
    assert {command for command in list_commands() if f"cli.{command}" in loaded} == {name}
    assert "images.engine" not in loaded


def test_no_command_prints_the_help() -> None:
    help_result, plain_result = run_tfdoctor("--help"), run_tfdoctor()
    assert plain_result == (2, help_result[1], "")
    assert "Exit status: 0" in plain_result[1]
    assert help_result[0] == 0


def run_tfdoctor(*arguments: str) -> tuple[int, str, str]:
    """Return the exit status and both streams on a terminal of 80 columns."""
    result = call_tfdoctor(*arguments, env={"COLUMNS": "80"})
    return result.status, result.out, result.err


@pytest.mark.parametrize(
    ("words", "means"),
    [
        (["-h"], ["--help"]),
        (["help"], ["--help"]),
        (["help", "help"], ["--help"]),
        (["help", "version"], ["--help"]),
        (["-V"], ["--version"]),
        (["version"], ["--version"]),
        (["help", "check"], ["check", "--help"]),
        (["help", "run", "false"], ["run", "--help"]),
        (["check", "-h"], ["check", "--help"]),
        (["run", "-h"], ["run", "--help"]),
    ],
    ids=" ".join,
)
def test_common_ways_to_ask_for_help(words: list[str], means: list[str]) -> None:
    output = run_tfdoctor(*words)
    assert output == run_tfdoctor(*means)
    assert (output[0], output[2]) == (0, "")


def test_help_for_an_unknown_command() -> None:
    status, out, err = run_tfdoctor("help", "chek")
    assert (status, out) == (2, "")
    assert "'check'" in err


def test_help_is_one_screen() -> None:
    """Fit the help and the next prompt on a terminal of 24 lines."""
    for arguments in (["--help"], []):
        lines = run_tfdoctor(*arguments)[1].splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80


def test_help_has_one_line_per_command() -> None:
    """List the commands at 80 columns, in the order in which users need them."""
    _, out, _ = run_tfdoctor("--help")
    lines = out.partition("Commands:\n")[2].partition("Exit status")[0].splitlines()
    assert [line.split()[0] for line in lines] == list(list_commands())
    assert [line.split(maxsplit=1)[1] for line in lines] == list(list_commands().values())
    assert list(list_commands())[:8] == [
        "check",
        "diagnose",
        "fix",
        "install",
        "build",
        "verify",
        "recommend",
        "matrix",
    ]


def test_check_loads_no_slow_modules() -> None:
    host = Path(__file__).parents[1] / "hosts" / "container-without-gpu"
    loaded = list_loaded("check", "--facts", str(host))
    assert {"rules", "render.report"} <= loaded
    assert not loaded & {"rich", "typer", "hashlib", "platform"}


def test_unknown_command_suggests_similar_ones() -> None:
    status, _, err = run_tfdoctor("chek")
    assert status == 2
    assert "'check'" in err


EXIT_PROGRAM = (
    "import atexit, sys; from tfdoctor.__main__ import run\n"
    "atexit.register(print, 'farewell'); sys.argv = ['tfdoctor', '--version']\n"
    "{before}\n"
    "run()"
)


@pytest.mark.parametrize(
    ("before", "farewell"),
    [("", False), ("sys.setprofile(lambda *_: None)", True)],
    ids=["plain", "profiled"],
)
def test_exit_is_immediate_unless_profiled(before: str, farewell: bool) -> None:
    result = subprocess.run(
        [sys.executable, "-c", EXIT_PROGRAM.format(before=before)],
        capture_output=True,
        text=True,
        check=False,
    )
    version_line, *other_lines = result.stdout.splitlines()
    assert (result.returncode, version_line.split()[0], other_lines) == (
        0,
        "tfdoctor",
        ["farewell"] * farewell,
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--json", "check"], "tfdoctor check --json"),
        (["--python", "/a b", "check", "-v"], "tfdoctor check --python '/a b' -v"),
        (["-v"], "tfdoctor check -v"),
        (["--dry-run", "install"], "tfdoctor install --dry-run"),
        (["check", "--version"], "`tfdoctor --version` takes no other arguments."),
    ],
)
def test_misplaced_option_hint(words: list[str], hint: str) -> None:
    result = call_tfdoctor(*words)
    assert result.status == 2
    assert hint in (result.json["error"]["hint"] if "--json" in words else result.err)
