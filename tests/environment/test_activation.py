"""What `fix` writes into the scripts of an environment, run by real shells: nothing breaks out of its quotes."""

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

from tfdoctor.causes.steps import Drop, Export, Prepend, Rename, ShellStep, Unset
from tfdoctor.environment.activation import (
    BEGIN,
    END,
    activate,
    edit_script,
    kind_of,
    needs_block,
    new_scripts,
    with_block,
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
"""Shell → the name of its script. "strict": bash that ends at the first failure."""
DUMP = "import json,os,sys; json.dump(dict(os.environ), sys.stdout)"
NAME = "LD_LIBRARY_PATH"


def list_present() -> list[str]:
    return [name for name in SHELLS if shutil.which("bash" if name == "strict" else name)]


def source_text(shell: str, text: str, folder: Path, **variables: str) -> dict[str, str]:
    """The variables after a shell has run the text, in an empty folder, in which nothing may appear."""
    script, place = folder / "script", folder / "empty"
    script.write_text(text, encoding="utf-8", newline="")
    place.mkdir(exist_ok=True)
    dump = folder / "dump.py"
    dump.write_text(DUMP, encoding="utf-8")
    source = "source" if shell in ("fish", "tcsh") else "."
    line = f"{source} '{script}'; '{sys.executable}' -I -S '{dump}'"
    if shell == "strict":
        line = f"set -euo pipefail; {line}"
    words = [shutil.which("bash" if shell == "strict" else shell) or shell]
    words += ["--no-config"] if shell == "fish" else ["-f"] if shell in ("tcsh", "zsh") else []
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **variables}
    done = subprocess.run(
        [*words, "-c", line], env=env, cwd=place, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, ""), (done, text)
    assert list(place.iterdir()) == []
    return dict(json.loads(done.stdout))


def block(shell: str, *steps: ShellStep) -> str:
    return with_block("", SHELLS[shell], steps)


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
@pytest.mark.parametrize("shell", list_present())
def test_hostile_values_are_values(shell: str, tmp_path: Path) -> None:
    for index, value in enumerate((*HOSTILE, "/two\nlines\ntouch broken")):
        text = block(shell, Export("GIVEN", value))
        assert source_text(shell, text, tmp_path)["GIVEN"] == value, (index, text)


@pytest.mark.parametrize("shell", list_present())
def test_hostile_folders_come_first(shell: str, tmp_path: Path) -> None:
    text = block(shell, Prepend(NAME, HOSTILE))
    assert source_text(shell, text, tmp_path)[NAME] == ":".join(HOSTILE)
    assert source_text(shell, text, tmp_path, **{NAME: "/x:/y"})[NAME] == ":".join((*HOSTILE, "/x", "/y"))


@pytest.mark.few(3)
@pytest.mark.parametrize("shell", list_present())
def test_hostile_entries_go_and_no_others(shell: str, tmp_path: Path) -> None:
    for entry in HOSTILE:
        kept = "/keep:/with spaces:/it:/a:/"
        value = f"{entry}:{kept}:{entry}:{entry}:/2:{entry}/"
        after = source_text(shell, block(shell, Drop(NAME, (entry,))), tmp_path, **{NAME: value})
        assert after[NAME] == f"{kept}:/2", entry
        assert needs_block((Drop(NAME, (entry,)),), after) == ()


@pytest.mark.parametrize("shell", list_present())
@pytest.mark.parametrize("value", ["/a", "/a/", "/a:/a", "/a:/a/:/a", "/b/:/a"])
def test_a_path_that_is_empty_then_is_unset(value: str, shell: str, tmp_path: Path) -> None:
    text = block(shell, Drop(NAME, ("/a", "/b")))
    assert NAME not in source_text(shell, text, tmp_path, **{NAME: value})
    assert NAME not in source_text(shell, text, tmp_path)


@pytest.mark.parametrize("shell", list_present())
def test_entries_are_known_with_and_without_a_slash(shell: str, tmp_path: Path) -> None:
    for entry in ("/a b", "/a b/"):
        text = block(shell, Drop(NAME, (entry,)))
        assert source_text(shell, text, tmp_path, **{NAME: "/a b/:/x:/a b:/a bc:/a"})[NAME] == "/x:/a bc:/a"


@pytest.mark.parametrize("shell", list_present())
def test_variables_go_and_change_their_name(shell: str, tmp_path: Path) -> None:
    steps = (Unset("GONE"), Rename("WRONG", "RIGHT"))
    after = source_text(shell, block(shell, *steps), tmp_path, GONE="1", WRONG='$(touch broken) it\'s "5"')
    assert ("GONE" in after, "WRONG" in after) == (False, False)
    assert after["RIGHT"] == '$(touch broken) it\'s "5"'
    assert needs_block(steps, after) == ()
    after = source_text(shell, block(shell, *steps), tmp_path, RIGHT="kept")
    assert after["RIGHT"] == "kept"
    assert "GONE" not in after


@pytest.mark.parametrize("shell", list_present())
def test_activating_twice_is_no_harm(shell: str, tmp_path: Path) -> None:
    text = block(shell, Drop(NAME, ("/a",)), Export("X", "1"), Unset("Y"), Rename("W", "R"))
    once = source_text(shell, text, tmp_path, **{NAME: "/a:/b", "Y": "1", "W": "2"})
    twice = source_text(shell, text + text, tmp_path, **{NAME: "/a:/b", "Y": "1", "W": "2"})
    assert {name: once.get(name) for name in (NAME, "X", "Y", "W", "R")} == {
        name: twice.get(name) for name in (NAME, "X", "Y", "W", "R")
    }
    assert (once[NAME], once["R"]) == ("/b", "2")


def test_a_second_block_takes_the_first_one_in() -> None:
    text = with_block("echo mine\n", "activate", (Export("A", "1"),))
    assert text == f"echo mine\n{BEGIN}\nexport A=1\n{END}\n"
    again = with_block(text, "activate", (Unset("B"), Export("A", "1")))
    assert again == f"echo mine\n{BEGIN}\nexport A=1\nunset B\n{END}\n"


# ---------------------------------------------------------------- lines of others

TAKEN = ": # {}  # taken out by tfdoctor fix"
OUT, DROP = Unset("VISIBLE"), Drop(NAME, ("/old/lib64",))
EDITS = (
    ("export VISIBLE=-1", OUT, None),
    ("VISIBLE=-1", OUT, None),
    ("  export VISIBLE='a b'  # why", OUT, None),
    ('export VISIBLE="$OTHER"', OUT, None),
    ("export VISIBLE=", OUT, None),
    ("export VISIBLE_TOO=1", OUT, "export VISIBLE_TOO=1"),
    ("echo VISIBLE=1", OUT, "echo VISIBLE=1"),
    ("# export VISIBLE=1", OUT, "# export VISIBLE=1"),
    # more than one command, or one that goes on: the block at the end does it
    ("export VISIBLE=1; export OTHER=2", OUT, "export VISIBLE=1; export OTHER=2"),
    ("export VISIBLE=1 && echo 2", OUT, "export VISIBLE=1 && echo 2"),
    ("export VISIBLE=1 OTHER=2", OUT, "export VISIBLE=1 OTHER=2"),
    ("VISIBLE=1 program", OUT, "VISIBLE=1 program"),
    ("export VISIBLE=a\\", OUT, "export VISIBLE=a\\"),
    ('export VISIBLE="a', OUT, 'export VISIBLE="a'),
    ("export VISIBLE=$(nvidia-smi -L | wc -l)", OUT, "export VISIBLE=$(nvidia-smi -L | wc -l)"),
    ("export VISIBLE=`x`", OUT, "export VISIBLE=`x`"),
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
    ("export LD_LIBARY_PATH=/x:$LD_LIBARY_PATH", Rename("LD_LIBARY_PATH", NAME), f"export {NAME}=/x:${NAME}"),
    (f"export {NAME}=/x", Prepend(NAME, ("/x",)), f"export {NAME}=/x"),
)


@pytest.mark.parametrize(("line", "step", "expected"), EDITS, ids=[line for line, _, _ in EDITS])
def test_a_line_of_a_script(line: str, step: ShellStep, expected: str | None) -> None:
    if expected is None:
        text = line.lstrip()
        expected = line[: len(line) - len(text)] + TAKEN.format(text)
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
def test_lines_for_other_shells(name: str, line: str) -> None:
    assert edit_script(line, name, (OUT,)) == TAKEN.format(line)
    assert edit_script(f"{line}; echo", name, (OUT,)) == f"{line}; echo"
    assert edit_script(line.replace("VISIBLE", "VISIBLE_TOO"), name, (OUT,)) == line.replace(
        "VISIBLE", "VISIBLE_TOO"
    )


@pytest.mark.parametrize("shell", [name for name in list_present() if SHELLS[name] == "sh"])
def test_what_is_taken_out_may_be_all_that_a_condition_has(shell: str, tmp_path: Path) -> None:
    text = (
        "if [ -n \"$HOME\" ]; then\n    export VISIBLE='it is'\nfi\nf() {\n  VISIBLE=2\n}\nf\nexport LAST=1\n"
    )
    after = source_text(shell, edit_script(text, "activate", (OUT,)), tmp_path)
    assert ("VISIBLE" in after, after["LAST"]) == (False, "1")


@pytest.mark.parametrize(
    ("shell", "text"),
    [
        ("fish", "if true\n  set -gx VISIBLE -1\nend\nset -gx LAST 1\n"),
        ("tcsh", "if (1) then\n  setenv VISIBLE -1\nendif\nsetenv LAST 1\n"),
    ],
)
def test_conditions_of_other_shells(shell: str, text: str, tmp_path: Path) -> None:
    if shell not in list_present():
        pytest.skip(f"no {shell}")
    after = source_text(shell, edit_script(text, SHELLS[shell], (OUT,)), tmp_path)
    assert ("VISIBLE" in after, after["LAST"]) == (False, "1")


def test_our_own_block_is_no_line_of_others() -> None:
    text = with_block("", "activate", (Export("VISIBLE", "0"),))
    assert edit_script(text, "activate", (OUT,)) == text


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab/:\"'\\$(){}`;&| #=\n\té", max_size=60))
def test_no_text_is_edited_into_one_that_a_shell_cannot_read(tail: str) -> None:
    """Whatever stands in a script that sh can read: it can still read it."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    text = f"export {NAME}=/old/lib64:{tail}\nexport VISIBLE={tail}\necho end\n"

    def reads(script: str) -> bool:
        done = subprocess.run(
            [bash, "-n"], input=script.encode(), capture_output=True, check=False, timeout=30
        )
        return done.returncode == 0 and not done.stderr

    if reads(text):
        assert reads(edit_script(text, "activate", (OUT, DROP)))


# ---------------------------------------------------------------- what activating does


def test_activating_is_measured(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").write_text(
        'echo noise; echo noise >&2\nexport A="it\'s\nnew"\nunset B\nPATH=/own:$PATH\n', encoding="utf-8"
    )
    system = LiveSystem(env={"PATH": os.environ["PATH"], "B": "1", "C": "2"})
    assert kind_of(str(tmp_path)) == "venv"
    assert new_scripts(str(tmp_path)) == (tmp_path / "bin/activate",)
    after = activate(system, str(tmp_path))
    assert after is not None
    assert (after["A"], after.get("B"), after["C"]) == ("it's\nnew", None, "2")
    assert after["PATH"].startswith("/own:")
    assert not [name for name in after if name.startswith("TFDOCTOR_")]


@pytest.mark.parametrize("text", ["exit 3\n", "if\n", "exec true\n", "kill -9 $$\n"])
def test_activating_that_cannot_be_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").write_text(text, encoding="utf-8")
    found = activate(LiveSystem(env={"PATH": os.environ["PATH"]}), str(tmp_path))
    if found is not None:  # a shell may go on after what it cannot read
        assert found["PATH"] == os.environ["PATH"]


def test_nothing_is_activated_where_there_is_no_script(tmp_path: Path) -> None:
    assert kind_of(str(tmp_path)) is None
    assert activate(LiveSystem(env=dict(os.environ)), str(tmp_path)) is None
