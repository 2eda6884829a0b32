"""`tfdoctor completion`: the candidates of a command line, and completion in real shells."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.planner import call_tfdoctor
from tfdoctor.cli import completion_values
from tfdoctor.cli.commands import list_commands
from tfdoctor.cli.completion import FILES_MARKER, SCRIPT_BY_SHELL, Shell, list_completions
from tfdoctor.cli.main import iter_commands, make_command_group
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.planning.arguments import parse_gpu
from tfdoctor.rules import ALL_RULES

MAX_COMPLETION_S = 0.5
"""Processor time that one completion may take, in seconds."""


COMMANDS = dict(iter_commands(make_command_group()))


def complete_line(line: str) -> list[str]:
    """Return the completions of the last word of a line."""
    return [word for word, _ in list_completions(line.split(" "))]


def test_command_names_are_completed() -> None:
    assert complete_line("") == list(list_commands())
    assert complete_line("re") == complete_line("help re") == ["recommend", "report"]
    assert list_completions(["che"]) == [("check", list_commands()["check"])]
    assert complete_line("--v") == ["--version"]
    assert complete_line("nonsense ") == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_completed(name: str) -> None:
    options = {
        word
        for param in COMMANDS[name].params
        if param.param_type_name == "option" and not param.hidden
        for word in (*param.opts, *param.secondary_opts)
        if word.startswith("--")
    }
    assert set(complete_line(f"{name} --")) == {*options, "--help"}
    assert all(text for _, text in list_completions([*name.split(), "--"]))


def test_documented_options_are_those_of_the_commands() -> None:
    """The table of options in docs/commands.md names exactly the commands that have each option."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    table = page.partition("| option | of | meaning |\n|---|---|---|\n")[2].partition("\n\n")[0]
    options_by_command = {
        name: {option for param in command.params if not param.hidden for option in param.opts}
        for name, command in COMMANDS.items()
        if name.split()[0] != "completion" and name != "help"
    }
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    assert len(rows) > 10
    for option, commands, _ in rows:
        word = option.strip("`").split("`")[0].split()[0]
        having = {name for name, options in options_by_command.items() if word in options}
        names = set(commands.removeprefix("all but ").replace(";", ",").split(", "))
        documented = set(options_by_command) - names if commands.startswith("all but ") else names
        assert documented == having, word


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("check --fail-on ", ["error", "warning", "never"]),
        ("check --fail-on=w", ["--fail-on=warning"]),
        ("check --deep --fail", ["--fail-on"]),
        ("check --fail-on never --de", ["--deep"]),
        ("check --timeout ", []),
        ("check ", [FILES_MARKER]),
        ("check env ", []),
        ("check --from ", [FILES_MARKER]),
        ("check --from=", [FILES_MARKER]),
        ("diagnose a.log b", [FILES_MARKER]),
        ("install --installer u", ["uv"]),
        ("parse nvc", ["nvcc"]),
        ("parse nvcc ", [FILES_MARKER]),
        ("run --fail-on n", ["never"]),
        ("run python --fail-on ", [FILES_MARKER]),
        ("run -- pyth", [FILES_MARKER]),
        ("verify ", []),
        ("completion ", ["bash", "zsh", "fish"]),
        ("explain libs-not-", ["libs-not-installed", "libs-not-on-path"]),
        ("explain TFD203 libs-unl", ["libs-unlisted"]),
        ("fix tfd301", ["tfd301"]),
        ("recommend --tf 2.0.", ["2.0.4", "2.0.3", "2.0.2", "2.0.1", "2.0.0"]),
    ],
)
def test_option_values_are_completed(line: str, found: list[str]) -> None:
    assert complete_line(line) == found


def test_every_release_rule_and_cause_is_completed() -> None:
    compat = Compat.load()
    assert set(complete_line("matrix --tf ")) == {release.version for release in compat.releases}
    assert complete_line("fix ") == [rule.code for rule in ALL_RULES]
    assert {*complete_line("fix "), *(cause.value for cause in Cause)} <= set(complete_line("explain "))


def test_every_offered_gpu_name_is_found() -> None:
    """Offer single words that need no quoting, and keep spaces that the user typed."""
    compat = Compat.load()
    offered = completion_values.complete_gpu("")
    assert len(offered) > 900
    for name, description in offered:
        assert re.fullmatch(r"[\w.+-]+", name), name
        card = parse_gpu(compat, name)
        assert description.split()[-1] in (card.capability, *card.other_capabilities)
    assert ("rtx-4090", "compute capability 8.9") in completion_values.complete_gpu("rtx-40")
    assert ("RTX 4090", "compute capability 8.9") in completion_values.complete_gpu("RTX 40")


def run(*arguments: str) -> str:
    return call_tfdoctor("completion", *arguments).out


def test_output_format_of_each_shell() -> None:
    for shell in Shell:
        assert run(shell.value) == SCRIPT_BY_SHELL[shell]
    assert run("bash", "--", "explain", "libs-unl") == "libs-unlisted\n"
    assert run("fish", "--", "explain", "libs-unl").startswith("libs-unlisted\tTensorFlow 2.12 ")
    assert run("zsh", "--", "explain", "libs-unl").startswith("libs-unlisted:TensorFlow 2.12 ")


def test_bash_splits_words_at_equals_signs() -> None:
    assert run("bash", "--", "check", "--fail-on", "=", "w") == "warning\n"
    assert run("bash", "--", "check", "--fail-on", "=") == "error\nwarning\nnever\n"
    assert run("bash", "--", "recommend", "--gpu", '"RTX 4090').splitlines()[0] == "RTX 4090"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "line", ["", "check --", "explain ", "recommend --tf ", "recommend --gpu ", "install --", "fix "]
)
def test_completion_is_fast(line: str) -> None:
    """Measure processor time, because other programs may run at the same time."""
    code = (
        "import os, sys; from tfdoctor.cli.completion import completion, Shell\n"
        f"completion(Shell.zsh, {line.split(' ')!r}); print(sum(os.times()[:4]), *sys.modules)"
    )
    durations = []
    for _ in range(3):
        result = subprocess.run(
            [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
        )
        seconds, *modules = result.stdout.splitlines()[-1].split(" ")
        durations.append(float(seconds))
        assert not {"docker", "requests", "jinja2"} & set(modules)
    assert min(durations) < MAX_COMPLETION_S


# ---------------------------------------------------------------- interactive shells

SHELL_STARTS = {
    "bash": (["--norc", "--noprofile", "-i"], 'eval "$(tfdoctor completion bash)"'),
    "zsh": (["-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(tfdoctor completion zsh)"'),
}
READY_MARK = "shell-is-ready"


@pytest.fixture
def shell_folder(tmp_path: Path) -> Path:
    """Return a folder whose `tfdoctor` completes and otherwise writes its arguments to the file `called`."""
    called = tmp_path / "called"
    tool = tmp_path / "bin" / "tfdoctor"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\n[ "$1" = completion ] && exec {sys.executable} -m tfdoctor "$@"\n'
        f'printf "%s\\n" "$@" > {called}.part\nmv {called}.part {called}\n',
        encoding="utf-8",
    )
    tool.chmod(0o755)
    (tmp_path / "bundle of mine").mkdir()
    return tmp_path


def type_line(shell: str, folder: Path, line: str) -> list[str]:
    """Type a line into an interactive shell and return the arguments with which it calls tfdoctor."""
    program, (options, script) = shutil.which(shell) or "", SHELL_STARTS[shell]
    env = {
        "HOME": str(folder),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "TERM": "dumb",
        "PS1": "",
        "LANG": "C.UTF-8",
    }
    terminal, child_terminal = pty.openpty()
    process = subprocess.Popen(
        [program, *options],
        cwd=folder,
        env=env,
        stdin=child_terminal,
        stdout=child_terminal,
        stderr=child_terminal,
        start_new_session=True,
    )
    os.close(child_terminal)
    try:
        # The text is split, so that the echo of the command is not mistaken for its output.
        os.write(terminal, f"{script}; printf '%s-%s\\n' shell is-ready\n".encode())
        output, called, sent, deadline = b"", folder / "called", False, time.monotonic() + 60
        while time.monotonic() < deadline and not called.exists():
            if select.select([terminal], [], [], 0.2)[0]:
                output += os.read(terminal, 65536)
            if not sent and READY_MARK.encode() in output:
                sent = True
                os.write(terminal, line.encode())
                _wait_until_quiet(terminal)
                os.write(terminal, b"\n")
        assert called.exists(), output.decode(errors="replace")
        return called.read_text(encoding="utf-8").splitlines()
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def _wait_until_quiet(terminal: int) -> None:
    """Wait until the shell has completed the line and prints nothing more."""
    quiet_deadline, deadline = time.monotonic() + 3, time.monotonic() + 20
    while time.monotonic() < min(quiet_deadline, deadline):
        if select.select([terminal], [], [], 0.2)[0]:
            os.read(terminal, 65536)
            quiet_deadline = time.monotonic() + 2


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("line", "called"),
    [
        ("tfdoctor chec\t", ["check"]),
        ("tfdoctor check --fai\tnev\t", ["check", "--fail-on", "never"]),
        ("tfdoctor recommend --tf 2.0.4\t", ["recommend", "--tf", "2.0.4"]),
        ("tfdoctor check --from bun\t", ["check", "--from", "bundle of mine"]),
        ("tfdoctor explain libs-not-o\t", ["explain", "libs-not-on-path"]),
    ],
)
@pytest.mark.parametrize("shell", SHELL_STARTS)
def test_shell_completes(shell: str, line: str, called: list[str], shell_folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    assert [word.removesuffix("/") for word in type_line(shell, shell_folder, line)] == called


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("chec", [f"check\t{list_commands()['check']}"]),
        ("check --fail-on nev", ["never"]),
        ("check --fail-on=nev", ["--fail-on=never"]),
        ("check --from bun", ["bundle of mine/"]),
        ("recommend --gpu 'rtx 4090-", ["rtx 4090-D\tcompute capability 8.9"]),
    ],
)
def test_fish_completes(line: str, found: list[str], shell_folder: Path) -> None:
    script = f'tfdoctor completion fish | source; complete -C "tfdoctor {line}"'
    env = {
        "HOME": str(shell_folder),
        "PATH": f"{shell_folder / 'bin'}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
    }
    command = [shutil.which("fish") or "", "-c", script]
    result = subprocess.run(command, cwd=shell_folder, env=env, capture_output=True, text=True, check=True)
    assert (result.stdout.splitlines(), result.stderr) == (found, "")
