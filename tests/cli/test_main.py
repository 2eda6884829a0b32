"""The command line itself: what it lists, and that it loads a command only when it is called."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfdoctor.cli.main import COMMANDS, command_line

LOADED = (
    "import sys; from tfdoctor.cli.startup import run; sys.argv = ['tfdoctor', *{words!r}]\n"
    "try: run()\n"
    "finally: print(' '.join(name.removeprefix('tfdoctor.') for name in sys.modules))"
)


def list_loaded(*words: str) -> set[str]:
    """The modules of tfdoctor, without its name before them, that a command line loads."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(words=words)], capture_output=True, text=True, check=False
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_module_with_a_signature_of_its_own(name: str) -> None:
    made = command_line().commands[name]
    assert made.name == name
    assert made.help.partition("\n")[0] == COMMANDS[name]
    function = inspect.unwrap(made.callback)
    assert (function.__module__, function.__name__) == (f"tfdoctor.cli.{name}", name)
    wanted = {param.name for param in made.params} - {"help"}
    assert wanted == set(inspect.signature(function).parameters)


def test_help_lists_all_and_loads_none() -> None:
    found = list_loaded("--help")
    assert not found & {f"cli.{name}" for name in COMMANDS}
    assert not found & {"compat", "engine", "plan", "render", "rules"}


@pytest.mark.parametrize("name", ["check", "explain", "matrix", "parse"])
def test_a_command_loads_no_other(name: str) -> None:
    found = list_loaded(name, "--help")
    assert {one for one in COMMANDS if f"cli.{one}" in found} == {name}
    assert "engine" not in found


def test_without_a_command_it_is_the_whole_help() -> None:
    asked, alone = (
        subprocess.run(
            [sys.executable, "-m", "tfdoctor", *words], capture_output=True, text=True, check=False
        )
        for words in (["--help"], [])
    )
    assert alone.stdout == asked.stdout
    assert "Exit status: 0" in alone.stdout
    assert not alone.stderr
    assert (asked.returncode, alone.returncode) == (0, 2)


def make_output(*words: str) -> tuple[int, str, str]:
    """Exit status, and both streams, on a terminal of 80 columns."""
    env = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-m", "tfdoctor", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "means"),
    [
        (["-h"], ["--help"]),
        (["help"], ["--help"]),
        (["help", "help"], ["--help"]),
        (["-V"], ["--version"]),
        (["version"], ["--version"]),
        (["help", "check"], ["check", "--help"]),
        (["help", "run", "false"], ["run", "--help"]),
        (["check", "-h"], ["check", "--help"]),
        (["run", "-h"], ["run", "--help"]),
    ],
    ids=" ".join,
)
def test_what_many_type_first(words: list[str], means: list[str]) -> None:
    found = make_output(*words)
    assert found == make_output(*means)
    assert (found[0], found[2]) == (0, "")


def test_help_for_a_command_that_is_none() -> None:
    status, out, err = make_output("help", "chek")
    assert (status, out) == (2, "")
    assert "'check'" in err


def test_help_is_one_screen() -> None:
    """With the next prompt, on a terminal of 24 lines."""
    for words in (["--help"], []):
        lines = make_output(*words)[1].splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80


def test_each_command_has_one_line() -> None:
    """At 80 columns, in the order in which people need them."""
    _, out, _ = make_output("--help")
    lines = out.partition("Commands:\n")[2].partition("Exit status")[0].splitlines()
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert [line.split(maxsplit=1)[1] for line in lines] == list(COMMANDS.values())
    assert list(COMMANDS)[:8] == [
        "check",
        "diagnose",
        "fix",
        "install",
        "build",
        "verify",
        "recommend",
        "matrix",
    ]


def test_check_loads_nothing_that_takes_long() -> None:
    host = Path(__file__).parents[1] / "hosts" / "container-without-gpu"
    found = list_loaded("check", "--facts", str(host))
    assert {"rules", "render.report"} <= found
    assert not found & {"rich", "typer", "hashlib", "platform"}


def test_an_unknown_command_has_near_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "chek"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'check'" in done.stderr


LEAVING = (
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
def test_the_end_costs_nothing_but_what_a_profiler_needs(before: str, farewell: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVING.format(before=before)], capture_output=True, text=True, check=False
    )
    first, *rest = done.stdout.splitlines()
    assert (done.returncode, first.split()[0], rest) == (0, "tfdoctor", ["farewell"] * farewell)


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
def test_an_option_in_the_wrong_place_is_told_where_it_belongs(words: list[str], hint: str) -> None:
    env = os.environ | {"TFDOCTOR_CALLED": "tfdoctor"}
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *words], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 2
    said = json.loads(done.stdout)["error"]["hint"] if "--json" in words else done.stderr
    assert hint in said
