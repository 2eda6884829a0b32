"""The command line: its list of commands, and that a command is loaded only if it is called."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.planner import call_tfdoctor
from tfdoctor.cli.commands import HELP_GROUPS, UNLISTED_COMMANDS, list_commands
from tfdoctor.cli.main import OPTION_GROUPS, _normalize_arguments, iter_commands, make_command_group

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


COMMANDS = dict(iter_commands(make_command_group()))


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_a_module_with_its_own_signature(name: str) -> None:
    command, (main_name, *subcommand) = COMMANDS[name], name.split()
    function = inspect.unwrap(command.callback)
    if subcommand:
        assert function.__name__ == f"{subcommand[0]}_{main_name}"
    else:
        assert command.help.partition("\n")[0] == list_commands()[name]
        assert function.__name__ == name
    assert function.__module__ in (f"tfdoctor.cli.{main_name}", f"tfdoctor.extensions.{main_name}.command")
    parameters = {param.name for param in command.params} - {"help", "json_schema"}
    assert parameters == set(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_the_help_can_be_typed(name: str) -> None:
    """Parse each example that a command's help shows, up to the call of the command."""
    examples = inspect.unwrap(COMMANDS[name].callback).examples
    assert 2 <= len(examples) <= 3
    _, out, _ = run_tfdoctor(*name.split(), "--help")
    for example in examples:
        assert f"\n    {example}\n" in out
        words = shlex.split(example.rpartition("|")[2])
        prefix = ["tfdoctor", *name.split()]
        assert words[: len(prefix)] == prefix
        COMMANDS[name].make_context(name, words[len(prefix) :])  # raises an error if an option is wrong


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
    """List the commands in groups, in the order in which users need them."""
    _, out, _ = run_tfdoctor("--help")
    lines = out.split("\n\n")[1].splitlines()
    names = [re.split(r"  +", line)[1] for line in lines]
    assert sorted(names) == sorted(list_commands().keys() - set(UNLISTED_COMMANDS))
    assert [re.split(r"  +", line, maxsplit=2)[2] for line in lines] == [
        list_commands()[name] for name in names
    ]
    assert [re.split(r"  +", line)[0] for line in lines if line[0] != " "] == list(HELP_GROUPS)
    assert names[:4] == ["check", "diagnose", "run", "explain"]
    assert "-h, --help" in out
    assert "-V, --version" in out


def test_command_with_subcommands_alone_prints_its_help() -> None:
    status, out, err = run_tfdoctor("fleet")
    assert (status, err) == (2, "")
    assert (0, out) == run_tfdoctor("fleet", "--help")[:2]


@pytest.mark.parametrize(
    ("words", "means"),
    [
        ("check -q --facts x", "check -q --from x"),
        ("check --facts=x", "check --from=x"),
        ("recommend --gpu 8.6 --python 3.8", "recommend --gpu 8.6 --python-version 3.8"),
        ("matrix --cc 8.6", "matrix --gpu 8.6"),
        ("lint --gpus 2 .", "lint --gpu-count 2 ."),
        ("run --facts -- lint --gpus 2", "run --facts -- lint --gpus 2"),
        ("check -- --facts", "check -- --facts"),
    ],
)
def test_spellings_that_programs_use(words: str, means: str) -> None:
    assert _normalize_arguments(words.split()) == means.split()


def run_in_child(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", *arguments], capture_output=True, text=True, check=False
    )


def test_global_options_stand_anywhere_before_a_program() -> None:
    host = str(Path(__file__).parents[1] / "hosts" / "container-without-gpu")
    for arguments in (
        ("--color=always", "check", "--from", host),
        ("check", "--from", host, "--color", "always"),
    ):
        assert "\x1b[" in run_in_child(*arguments).stdout
    refused = run_in_child("check", "--color", "blue")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "auto, always or never" in refused.stderr
    program = ("-c", "import sys; print(sys.argv[1:])", "--debug", "--color=never")
    assert "['--debug', '--color=never']" in run_in_child("run", sys.executable, *program).stdout


def test_debug_writes_what_was_looked_at() -> None:
    result = run_in_child("check", "--debug", "-q", "--python", sys.executable)
    kinds = {line.split()[2] for line in result.stderr.splitlines()}
    assert kinds == {"file", "command"}
    assert re.search(r"^ +\d+\.\d{3} s  command .* \(\d+\.\d{3} s\)$", result.stderr, re.MULTILINE)
    assert run_in_child("check", "-q", "--python", sys.executable).stderr == ""


@pytest.mark.parametrize(("home", "is_named"), [("/usr", True), ("", False)])
def test_modules_of_another_python_are_named(home: str, *, is_named: bool) -> None:
    code = "import sys; sys.modules['tfdoctor.cli.startup'] = None; import tfdoctor.__main__ as main; "
    code += f"import os; os.environ['PYTHONHOME'] = {home!r}; main.run()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert ("unset PYTHONHOME" in result.stderr) is is_named
    assert len(result.stderr.splitlines()) == 1


def test_check_loads_no_slow_modules() -> None:
    host = Path(__file__).parents[1] / "hosts" / "container-without-gpu"
    loaded = list_loaded("check", "--from", str(host))
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


def test_long_help_has_groups() -> None:
    """What a newcomer needs comes first; every option is listed once, and none as Click prints its limits."""
    listed = [name for names in OPTION_GROUPS.values() for name in names]
    assert len(listed) == len(set(listed))
    all_names = set()
    for path, command in iter_commands(make_command_group()):
        shown = [param for param in command.params if not getattr(param, "hidden", False)]
        names = {name for param in shown for name in param.opts} | {"--help"}
        all_names |= names
        out = run_tfdoctor(*path.split(), "--help")[1].partition("\nOptions:")[2]
        assert "<=x" not in out, path
        assert "[default" not in out, path
        for name in (name for name in names if name.startswith("--")):
            assert len(re.findall(rf"^  (?:-\w, )?{name}(?![\w-])", out, re.MULTILINE)) == 1, (path, name)
        main_options = out.partition("\n\n")[0]
        assert 0 < len(re.findall("^  -", main_options, re.MULTILINE)) <= 13, path
    assert set(listed) <= all_names
