"""Scripts of an environment as `fix` writes them, run by real shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdoctor.core.causes.steps import (
    PrependEntries,
    RemoveEntries,
    RenameVariable,
    SetVariable,
    UnsetVariable,
    VariableStep,
)
from tfdoctor.environments.activation import (
    BLOCK_BEGIN,
    BLOCK_END,
    detect_activation_kind,
    edit_script,
    list_editable_scripts,
    read_activated_variables,
    update_block,
)
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from pathlib import Path

SHELLS = {
    "sh": "sh",
    "dash": "sh",
    "bash": "sh",
    "zsh": "sh",
    "strict": "sh",
    "fish": "activate.fish",
    "tcsh": "activate.csh",
}
"""Name of the activation script, by shell. "strict" is bash that exits at the first failure."""
DUMP = "import json,os,sys; json.dump(dict(os.environ), sys.stdout)"
NAME = "LD_LIBRARY_PATH"


def list_available_shells() -> list[str]:
    """Return the shells that are installed here."""
    return [name for name in SHELLS if shutil.which("bash" if name == "strict" else name)]


def source_text(shell: str, text: str, folder: Path, **variables: str) -> dict[str, str]:
    """Return the variables after a shell has run the text in an empty folder, which must stay empty."""
    script, empty = folder / "script", folder / "empty"
    script.write_text(text, encoding="utf-8", newline="")
    empty.mkdir(exist_ok=True)
    dump = folder / "dump.py"
    dump.write_text(DUMP, encoding="utf-8")
    source = "source" if shell in ("fish", "tcsh") else "."
    line = f"{source} '{script}'; '{sys.executable}' -I -S '{dump}'"
    if shell == "strict":
        line = f"set -euo pipefail; {line}"
    arguments = [shutil.which("bash" if shell == "strict" else shell) or shell]
    arguments += ["--no-config"] if shell == "fish" else ["-f"] if shell in ("tcsh", "zsh") else []
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **variables}
    done = subprocess.run(
        [*arguments, "-c", line], env=env, cwd=empty, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, ""), (done, text)
    assert list(empty.iterdir()) == []
    return dict(json.loads(done.stdout))


def block(shell: str, *steps: VariableStep) -> str:
    """Return the block that `fix` adds to the script of a shell."""
    return update_block("", SHELLS[shell], steps)


# ---------------------------------------------------------------- blocks

HOSTILE = (
    "/plain",
    "/with space",
    "/it's",
    '/a"b',
    "/a\\",
    "/a\\'; touch broken; '",
    "/$HOME",
    "/$(touch broken)",
    "/`touch broken`",
    "/*",
    "/[a-z]?",
    "/a;touch broken",
    "/a & touch broken",
    "/!!",
    "/a!b",
    "/~",
    "/é",
    "-e",
    "%s",
    "#no",
    "/a#b",
    "/{a,b}",
    "/a\\nb",
    "'",
    '"',
    "\\",
    "';touch broken;'",
    '";touch broken;"',
)


@pytest.mark.few(3)
@pytest.mark.parametrize("shell", list_available_shells())
def test_hostile_values_are_quoted(shell: str, tmp_path: Path) -> None:
    for index, value in enumerate((*HOSTILE, "/two\nlines\ntouch broken")):
        text = block(shell, SetVariable("GIVEN", value))
        assert source_text(shell, text, tmp_path)["GIVEN"] == value, (index, text)


@pytest.mark.parametrize("shell", list_available_shells())
def test_hostile_folders_come_first(shell: str, tmp_path: Path) -> None:
    text = block(shell, PrependEntries(NAME, HOSTILE))
    assert source_text(shell, text, tmp_path)[NAME] == ":".join(HOSTILE)
    assert source_text(shell, text, tmp_path, **{NAME: "/x:/y"})[NAME] == ":".join((*HOSTILE, "/x", "/y"))


@pytest.mark.few(3)
@pytest.mark.parametrize("shell", list_available_shells())
def test_only_hostile_entries_are_removed(shell: str, tmp_path: Path) -> None:
    for entry in HOSTILE:
        other_entries = "/keep:/with spaces:/it:/a:/"
        value = f"{entry}:{other_entries}:{entry}:{entry}:/2:{entry}/"
        after = source_text(shell, block(shell, RemoveEntries(NAME, (entry,))), tmp_path, **{NAME: value})
        assert after[NAME] == f"{other_entries}:/2", entry
        assert RemoveEntries(NAME, (entry,)).is_satisfied(after)


@pytest.mark.parametrize("shell", list_available_shells())
@pytest.mark.parametrize("value", ["/a", "/a/", "/a:/a", "/a:/a/:/a", "/b/:/a"])
def test_path_without_entries_is_unset(value: str, shell: str, tmp_path: Path) -> None:
    text = block(shell, RemoveEntries(NAME, ("/a", "/b")))
    assert NAME not in source_text(shell, text, tmp_path, **{NAME: value})
    assert NAME not in source_text(shell, text, tmp_path)


@pytest.mark.parametrize("shell", list_available_shells())
def test_trailing_slash_of_an_entry_does_not_matter(shell: str, tmp_path: Path) -> None:
    for entry in ("/a b", "/a b/"):
        text = block(shell, RemoveEntries(NAME, (entry,)))
        assert source_text(shell, text, tmp_path, **{NAME: "/a b/:/x:/a b:/a bc:/a"})[NAME] == "/x:/a bc:/a"


@pytest.mark.parametrize("shell", list_available_shells())
@pytest.mark.parametrize(
    ("value", "expected"), [(":/a", "/a"), ("/a:", "/a"), ("/a::/b", "/a:/b"), (".:/a", "/a")]
)
def test_empty_entry_is_the_working_folder(shell: str, value: str, expected: str, tmp_path: Path) -> None:
    step = RemoveEntries("LD_LIBRARY_PATH", ("./",))
    assert not step.is_satisfied({step.name: value})
    after = source_text(shell, block(shell, step), tmp_path, **{step.name: value})
    assert after[step.name] == expected
    assert step.is_satisfied(after)


@pytest.mark.parametrize("shell", list_available_shells())
def test_variables_are_unset_and_renamed(shell: str, tmp_path: Path) -> None:
    steps = (UnsetVariable("GONE"), RenameVariable("WRONG", "RIGHT"))
    after = source_text(shell, block(shell, *steps), tmp_path, GONE="1", WRONG='$(touch broken) it\'s "5"')
    assert ("GONE" in after, "WRONG" in after) == (False, False)
    assert after["RIGHT"] == '$(touch broken) it\'s "5"'
    assert all(step.is_satisfied(after) for step in steps)
    after = source_text(shell, block(shell, *steps), tmp_path, RIGHT="kept")
    assert after["RIGHT"] == "kept"
    assert "GONE" not in after


@pytest.mark.parametrize("shell", list_available_shells())
def test_activating_twice_changes_nothing_more(shell: str, tmp_path: Path) -> None:
    text = block(
        shell,
        RemoveEntries(NAME, ("/a",)),
        SetVariable("X", "1"),
        UnsetVariable("Y"),
        RenameVariable("W", "R"),
    )
    once = source_text(shell, text, tmp_path, **{NAME: "/a:/b", "Y": "1", "W": "2"})
    twice = source_text(shell, text + text, tmp_path, **{NAME: "/a:/b", "Y": "1", "W": "2"})
    assert {name: once.get(name) for name in (NAME, "X", "Y", "W", "R")} == {
        name: twice.get(name) for name in (NAME, "X", "Y", "W", "R")
    }
    assert (once[NAME], once["R"]) == ("/b", "2")


def test_second_block_includes_the_first() -> None:
    text = update_block("echo mine\n", "activate", (SetVariable("A", "1"),))
    assert text == f"echo mine\n{BLOCK_BEGIN}\nexport A=1\n{BLOCK_END}\n"
    extended = update_block(text, "activate", (UnsetVariable("B"), SetVariable("A", "1")))
    assert extended == f"echo mine\n{BLOCK_BEGIN}\nexport A=1\nunset B\n{BLOCK_END}\n"


# ---------------------------------------------------------------- lines of the user

COMMENTED_OUT = ": # {}  # taken out by tfdoctor fix"
UNSET, DROP = UnsetVariable("VISIBLE"), RemoveEntries(NAME, ("/old/lib64",))
EDITS = (
    ("export VISIBLE=-1", UNSET, None),
    ("VISIBLE=-1", UNSET, None),
    ("  export VISIBLE='a b'  # why", UNSET, None),
    ('export VISIBLE="$OTHER"', UNSET, None),
    ("export VISIBLE=", UNSET, None),
    ("export VISIBLE_TOO=1", UNSET, "export VISIBLE_TOO=1"),
    ("echo VISIBLE=1", UNSET, "echo VISIBLE=1"),
    ("# export VISIBLE=1", UNSET, "# export VISIBLE=1"),
    # Several commands, or a command that continues: the block at the end handles them.
    ("export VISIBLE=1; export OTHER=2", UNSET, "export VISIBLE=1; export OTHER=2"),
    ("export VISIBLE=1 && echo 2", UNSET, "export VISIBLE=1 && echo 2"),
    ("export VISIBLE=1 OTHER=2", UNSET, "export VISIBLE=1 OTHER=2"),
    ("VISIBLE=1 program", UNSET, "VISIBLE=1 program"),
    ("export VISIBLE=a\\", UNSET, "export VISIBLE=a\\"),
    ('export VISIBLE="a', UNSET, 'export VISIBLE="a'),
    ("export VISIBLE=$(nvidia-smi -L | wc -l)", UNSET, "export VISIBLE=$(nvidia-smi -L | wc -l)"),
    ("export VISIBLE=`x`", UNSET, "export VISIBLE=`x`"),
    (f"export {NAME}=/old/lib64:${NAME}", DROP, None),
    (f'export {NAME}="/old/lib64/:${{{NAME}}}"', DROP, None),
    (f"export {NAME}=/old/lib64${{{NAME}:+:${NAME}}}", DROP, None),
    (f"export {NAME}=/old/lib64", DROP, None),
    (f"export {NAME}=/old/lib64:/new:${NAME}", DROP, f"export {NAME}=/new:${NAME}"),
    (f"export {NAME}=/new:/old/lib64/:/old/lib64:${NAME}", DROP, f"export {NAME}=/new:${NAME}"),
    (f"export {NAME}=${NAME}:/old/lib64:$MINE", DROP, f"export {NAME}=${NAME}:$MINE"),
    (f"export {NAME}=/old/lib64:mine", DROP, f"export {NAME}=mine"),
    (f"export {NAME}=/old/lib64-2:/very/old/lib64", DROP, f"export {NAME}=/old/lib64-2:/very/old/lib64"),
    (f"export {NAME}=$CUDA/lib64", DROP, f"export {NAME}=$CUDA/lib64"),
    (
        "export LD_LIBARY_PATH=/x:$LD_LIBARY_PATH",
        RenameVariable("LD_LIBARY_PATH", NAME),
        f"export {NAME}=/x:${NAME}",
    ),
    (f"export {NAME}=/x", PrependEntries(NAME, ("/x",)), f"export {NAME}=/x"),
)


@pytest.mark.parametrize(("line", "step", "expected"), EDITS, ids=[line for line, _, _ in EDITS])
def test_line_of_a_script_is_edited(line: str, step: VariableStep, expected: str | None) -> None:
    if expected is None:
        text = line.lstrip()
        expected = line[: len(line) - len(text)] + COMMENTED_OUT.format(text)
    assert edit_script(f"first\n{line}\nlast", "activate", (step,)) == f"first\n{expected}\nlast"
    assert edit_script(expected, "activate", (step,)) == expected


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("activate.fish", "set -gx VISIBLE -1"),
        ("activate.fish", "set -g -x VISIBLE a b 'c d'"),
        ("activate.csh", 'setenv VISIBLE "-1"'),
        ("activate.csh", "setenv VISIBLE"),
    ],
)
def test_lines_of_other_shells_are_edited(name: str, line: str) -> None:
    assert edit_script(line, name, (UNSET,)) == COMMENTED_OUT.format(line)
    assert edit_script(f"{line}; echo", name, (UNSET,)) == f"{line}; echo"
    assert edit_script(line.replace("VISIBLE", "VISIBLE_TOO"), name, (UNSET,)) == line.replace(
        "VISIBLE", "VISIBLE_TOO"
    )


@pytest.mark.parametrize("shell", [name for name in list_available_shells() if SHELLS[name] == "sh"])
def test_condition_with_only_a_removed_line_stays_valid(shell: str, tmp_path: Path) -> None:
    text = (
        "if [ -n \"$HOME\" ]; then\n    export VISIBLE='it is'\nfi\nf() {\n  VISIBLE=2\n}\nf\nexport LAST=1\n"
    )
    after = source_text(shell, edit_script(text, "activate", (UNSET,)), tmp_path)
    assert ("VISIBLE" in after, after["LAST"]) == (False, "1")


@pytest.mark.parametrize(
    ("shell", "text"),
    [
        ("fish", "if true\n  set -gx VISIBLE -1\nend\nset -gx LAST 1\n"),
        ("tcsh", "if (1) then\n  setenv VISIBLE -1\nendif\nsetenv LAST 1\n"),
    ],
)
def test_conditions_of_other_shells_stay_valid(shell: str, text: str, tmp_path: Path) -> None:
    if shell not in list_available_shells():
        pytest.skip(f"no {shell}")
    after = source_text(shell, edit_script(text, SHELLS[shell], (UNSET,)), tmp_path)
    assert ("VISIBLE" in after, after["LAST"]) == (False, "1")


def test_block_of_fix_is_not_edited() -> None:
    text = update_block("", "activate", (SetVariable("VISIBLE", "0"),))
    assert edit_script(text, "activate", (UNSET,)) == text


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab/:\"'\\$(){}`;&| #=\n\té", max_size=60))
def test_edited_script_stays_valid(tail: str) -> None:
    """A script that bash can parse can still be parsed after the edit."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    text = f"export {NAME}=/old/lib64:{tail}\nexport VISIBLE={tail}\necho end\n"

    def is_valid(script: str) -> bool:
        done = subprocess.run(
            [bash, "-n"], input=script.encode(), capture_output=True, check=False, timeout=30
        )
        return done.returncode == 0 and not done.stderr

    if is_valid(text):
        assert is_valid(edit_script(text, "activate", (UNSET, DROP)))


# ---------------------------------------------------------------- activation


def test_activation_returns_the_variables(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").write_text(
        'echo noise; echo noise >&2\nexport A="it\'s\nnew"\nunset B\nPATH=/own:$PATH\n', encoding="utf-8"
    )
    system = LiveSystem(env={"PATH": os.environ["PATH"], "B": "1", "C": "2"})
    assert detect_activation_kind(str(tmp_path)) == "venv"
    assert list_editable_scripts(str(tmp_path)) == (tmp_path / "bin/activate",)
    after = read_activated_variables(system, str(tmp_path))
    assert after is not None
    assert (after["A"], after.get("B"), after["C"]) == ("it's\nnew", None, "2")
    assert after["PATH"].startswith("/own:")
    assert not [name for name in after if name.startswith("TFDOCTOR_")]


@pytest.mark.parametrize("text", ["exit 3\n", "if\n", "exec true\n", "kill -9 $$\n"])
def test_failing_activation_script(text: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").write_text(text, encoding="utf-8")
    variables = read_activated_variables(LiveSystem(env={"PATH": os.environ["PATH"]}), str(tmp_path))
    if variables is not None:  # A shell may continue after a syntax error.
        assert variables["PATH"] == os.environ["PATH"]


def test_nothing_is_activated_without_a_script(tmp_path: Path) -> None:
    assert detect_activation_kind(str(tmp_path)) is None
    assert read_activated_variables(LiveSystem(env=dict(os.environ)), str(tmp_path)) is None
