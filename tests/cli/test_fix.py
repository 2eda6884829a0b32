"""`tfdoctor fix` as a command: what it refuses, what it asks, what it prints."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from environment.fake import SCHEMA, Fake, difference, make, needs_compiler
from tfdoctor.environment.models import FixStatus
from tfdoctor.findings import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are ELF"),
    needs_compiler,
]
ROOT = Path(__file__).resolve().parents[2]
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture
def new(tmp_path: Path, standin_cache: Path) -> Callable[..., Fake]:
    """A function that makes an environment; 2.21.0 needs mending as pip leaves it."""

    def make_one(version: str = "2.21.0", **how: str) -> Fake:
        return make(tmp_path, standin_cache, version, **how)

    return make_one


def schema(name: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text(encoding="utf-8")))


def test_the_schema_speaks_the_vocabulary() -> None:
    assert SCHEMA["$defs"]["cause"]["enum"] == [cause.value for cause in Cause]
    assert SCHEMA["$defs"]["finding"] == schema("verify")["$defs"]["finding"]
    statuses = SCHEMA["properties"]["repairs"]["items"]["properties"]["status"]["enum"]
    assert statuses == [status.value for status in FixStatus]
    check = SCHEMA["properties"]["check"]["anyOf"][1]["required"]
    assert check == schema("check")["required"]


def test_the_schema_refuses_what_is_none(new: Callable[..., Fake]) -> None:
    answer = new().run("fix", "--dry-run", "--json").json()
    for place, value in (("status", "done"), ("code", "203"), ("changes", -1), ("text", "")):
        wrong = json.loads(json.dumps(answer))
        wrong["repairs"][0][place] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("TFD999",), "there is no finding TFD999"),
        (("nonsense\x1b[31m",), "there is no finding nonsense"),
        (("--undo", "TFD203"), "--undo undoes everything"),
        (("--undo", "--dry-run"), "--undo undoes everything"),
        (("--force",), "--force needs --undo"),
        (("--installer", "conda"), "conda"),
        (("--timeout", "0"), "timeout"),
    ],
    ids=str,
)
def test_a_wrong_request_changes_nothing(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tfdoctor", "fix", "--yes", *words, "--python", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "tfdoctor explain" in done.stderr or "TFD999" not in words
    assert not CONTROL.search(done.stderr)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=60)
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, schema("error"))
    assert (answer["error"]["code"], done.stderr) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    for words in (("--yes",), ("--undo",), ("--dry-run",)):
        command = [sys.executable, "-m", "tfdoctor", "fix", *words, "--python", str(tmp_path / "none")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2, done
        assert "none" in done.stderr


def test_a_python_that_nobody_meant_is_not_mended(tmp_path: Path) -> None:
    """The active environment is gone: the shell's Python is left alone until it is named."""
    command = [sys.executable, "-m", "tfdoctor", "fix", "--yes"]
    env = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "gone"), "CONDA_PREFIX": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert done.returncode == 2, done
    assert "VIRTUAL_ENV names" in done.stderr
    assert "which Python is meant?" in " ".join(done.stderr.split())


def test_nobody_to_ask(new: Callable[..., Fake]) -> None:
    env = new()
    before = env.list()
    run = env.run("fix")
    assert (run.status, run.out) == (2, "")
    assert "no terminal to ask on" in run.err
    assert "--yes makes the changes, --dry-run only shows them." in run.err
    assert env.run("fix", "--json").json()["error"]["code"] == 2
    assert difference(before, env.list()) == {}


def test_nothing_to_mend_needs_no_answer(new: Callable[..., Fake]) -> None:
    run = new("2.20.0").run("fix")
    assert (run.status, "Fix can do nothing here." in run.said) == (0, True)


LAUNCH = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is for us
os.execv(sys.executable, sys.argv[1:])
"""


def run_at_terminal(
    env: Fake, answer: str, *words: str, command: Sequence[str] = ("fix",)
) -> tuple[int, str]:
    """Exit status, and all that appears on the terminal."""
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *env.command(*command, *words)],
        env=env.environment(TERM="xterm", COLUMNS="80"),
        cwd=env.work,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen, answered, until = b"", False, time.monotonic() + 60
    while time.monotonic() < until:
        ready, _, _ = select.select([terminal], [], [], 0.5)
        if not ready:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # it has ended
            break
        if not chunk:
            break
        seen += chunk
        if not answered and b"[y/N]" in seen:
            answered = True
            os.write(terminal, answer.encode())
    os.close(terminal)
    return process.wait(timeout=60), seen.decode()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("answer", "done"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("maybe\n", False)]
)
def test_a_person_is_asked(answer: str, done: bool, new: Callable[..., Fake]) -> None:
    env = new()
    before = env.list()
    status, text = run_at_terminal(env, answer, "--no-deep")
    assert "Do this? [y/N]" in text
    before_asking = text.partition("Do this?")[0]
    assert "ln -sf" in before_asking
    assert "Nothing was changed" not in before_asking
    assert status == (0 if done else 1)
    assert bool(difference(before, env.list())) is done
    assert ("Nothing was changed." in text.partition("Do this?")[2]) is not done
    assert ("will use 2 GPUs" in text) is done


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("n\n", False)])
def test_check_asks_the_same_question(answer: str, done: bool, new: Callable[..., Fake]) -> None:
    env = new()
    before = env.list()
    _, text = run_at_terminal(env, answer, command=("check", "--fix"))
    first, _, then = re.sub(r"\x1b\[[0-9;]*m", "", text).partition("Do this? [y/N]")
    assert re.search(r"Fix it\s+.*tfdoctor fix", first)  # the screen of check
    assert first.count("Environment ") >= 1  # what fix would do
    assert "ln -sf" in first
    assert bool(difference(before, env.list())) is done
    assert ("Nothing was changed." in then) is not done


def test_check_fixes_as_fix_does(new: Callable[..., Fake]) -> None:
    env = new()
    before = env.list()
    nobody = env.run("check", "--fix")
    assert nobody.status == 2
    assert "no terminal to ask on" in nobody.err
    assert env.run("check", "--fix", "--json").json()["error"]["code"] == 2
    assert difference(before, env.list()) == {}
    answer = env.run("check", "--fix", "--yes", "--json").json()
    jsonschema.validate(answer, SCHEMA)
    assert answer["repairs"][0]["status"] == "mended"
    assert env.run("fix", "--undo").status == 0
    assert {name for name in difference(before, env.list()) if ".tfdoctor" not in name} == set()


@pytest.mark.parametrize(
    "words",
    [("--yes",), ("--fix", "--facts", "x"), ("--fix", "--against", "x"), ("--fix", "--fail-on", "never")],
)
def test_what_does_not_go_with_fixing(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tfdoctor", "check", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--fix" in done.stderr


def test_ctrl_c_at_the_question(new: Callable[..., Fake]) -> None:
    env = new()
    before = env.list()
    status, text = run_at_terminal(env, "\x03")
    assert (status, "Interrupted." in text) == (130, True)
    assert "Traceback" not in text
    assert difference(before, env.list()) == {}


@pytest.mark.few(3)
@pytest.mark.parametrize("columns", ["20", "60", "80", "120"])
@pytest.mark.parametrize("coloured", [False, True])
def test_the_width_is_kept_but_for_commands(columns: str, coloured: bool, new: Callable[..., Fake]) -> None:
    env = new()
    more = {"COLUMNS": columns, **({"FORCE_COLOR": "1"} if coloured else {})}
    run = env.run("fix", "--dry-run", **more)
    assert ("\x1b[" in run.out) is coloured
    commands = env.run("fix", "--dry-run", "--json").json()["repairs"][0]["commands"]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", run.out)
    plain = re.sub(r" \\\n +", " ", plain)  # continued, as a shell takes it
    for command in commands:
        assert any(line.strip() == command for line in plain.splitlines())  # whole: to be copied
    for line in plain.splitlines():
        assert len(line) <= int(columns) or line.strip() in commands or "/" in line, line


def test_quiet_says_the_verdict_and_how_to_go_back(new: Callable[..., Fake]) -> None:
    env = new()
    run = env.fix("-q")
    lines = run.out.splitlines()
    assert (run.status, run.err) == (0, "")
    assert lines[0].startswith("✓ TensorFlow 2.21.0 will use 2 GPUs")
    assert lines[-1] == f"To take all of it back: tfdoctor fix --undo --python {env.python}"
    assert env.run(*lines[-1].partition("tfdoctor ")[2].split()[:2]).status == 0


def test_json_is_alone_on_standard_output(new: Callable[..., Fake]) -> None:
    run = new().fix("--json", "-v")
    assert (run.status, run.err) == (0, "")
    assert run.json()["repairs"][0]["status"] == "mended"


def test_no_control_character_reaches_a_terminal(tmp_path: Path, standin_cache: Path) -> None:
    env = make(tmp_path, standin_cache, "2.21.0", name="it's a \x1b[31mred\x1b]0;title\x07 env")
    before = env.list()
    for words in (("--dry-run",), ("--yes", "--no-deep"), ("--undo",)):
        run = env.run("fix", "-v", *words)
        assert not CONTROL.search(run.out + run.err), (words, run.out + run.err)
    assert difference(before, env.list()) == {}
    assert env.fix("--json").json()["environment"] == str(env.root)


def test_words_from_an_installer_are_cleaned(new: Callable[..., Fake]) -> None:
    env = new("2.20.0")
    env.nvidia("cufft/lib/libcufft.so.11").unlink()
    folder = env.folder("evil")
    (folder / "uv").write_text(
        '#!/bin/sh\ncase "$*" in "pip install"*)\n'
        "printf 'error: \\033[31mbad \\033]0;title\\007 thing\\n'; exit 1;;\nesac\n",
        encoding="utf-8",
    )
    (folder / "uv").chmod(0o755)
    env.variables["PATH"] = f"{folder}:/usr/bin:/bin"
    run = env.fix("-v")
    assert run.status == 1
    assert "bad" in run.said
    assert "bad" in run.err
    assert not CONTROL.search(run.out + run.err)


def test_the_systems_own_python_is_left_alone(tmp_path: Path) -> None:
    system = Path("/usr/bin/python3")
    if not system.exists():
        pytest.skip("no system Python")
    command = [
        sys.executable,
        "-m",
        "tfdoctor",
        "fix",
        "--yes",
        "--json",
        "--no-deep",
        "--python",
        str(system),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, SCHEMA)
    assert answer["repairs"] == []
    assert not Path(answer["environment"], ".tfdoctor").exists()


def test_undo_where_nothing_was_done_writes_nothing(
    new: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = new()

    real = os.mkdir

    def refuse(path: str, *words: int, **more: int) -> None:
        assert not str(path).startswith(str(env.root)), path
        real(path, *words, **more)

    monkeypatch.setattr(os, "mkdir", refuse)
    before = env.list()
    run = env.run("fix", "--undo")
    assert (run.status, "fix has changed nothing in" in run.said) == (0, True)
    assert difference(before, env.list()) == {}
