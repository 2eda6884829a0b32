"""`tfdoctor fix` as a command: invalid requests, the confirmation, the output."""

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

from environments.fake import SCHEMA, Fake, difference, make, needs_compiler
from tfdoctor.core.findings import Cause
from tfdoctor.environments.models import FixStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are ELF"),
    needs_compiler,
]
ROOT = Path(__file__).resolve().parents[2]
CONTROL_CHARACTER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture
def make_environment(tmp_path: Path, standin_cache: Path) -> Callable[..., Fake]:
    """Return a function that creates an environment; 2.21.0 as pip leaves it needs a fix."""

    def make_fake(version: str = "2.21.0", **how: str) -> Fake:
        return make(tmp_path, standin_cache, version, **how)

    return make_fake


def schema(name: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text(encoding="utf-8")))


def test_schema_lists_every_cause_and_status() -> None:
    assert SCHEMA["$defs"]["cause"]["enum"] == [cause.value for cause in Cause]
    assert SCHEMA["$defs"]["finding"] == schema("verify")["$defs"]["finding"]
    statuses = SCHEMA["properties"]["repairs"]["items"]["properties"]["status"]["enum"]
    assert statuses == [status.value for status in FixStatus]
    check = SCHEMA["properties"]["check"]["anyOf"][1]["required"]
    assert check == schema("check")["required"]


def test_schema_refuses_invalid_values(make_environment: Callable[..., Fake]) -> None:
    answer = make_environment().run("fix", "--dry-run", "--json").json()
    for field, value in (("status", "done"), ("code", "203"), ("changes", -1), ("text", "")):
        invalid = json.loads(json.dumps(answer))
        invalid["repairs"][0][field] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(invalid, SCHEMA)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("TFD999",), "there is no finding TFD999"),
        (("nonsense\x1b[31m",), "there is no finding nonsense"),
        (("--undo", "TFD203"), "--undo undoes everything"),
        (("--undo", "--dry-run"), "--undo undoes everything"),
        (("--even-if-changed",), "--even-if-changed needs --undo"),
        (("--installer", "conda"), "conda"),
        (("--timeout", "0"), "timeout"),
    ],
    ids=str,
)
def test_invalid_request_changes_nothing(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tfdoctor", "fix", "--yes", *words, "--python", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (2, "")
    assert says in result.stderr
    assert "tfdoctor explain" in result.stderr or "TFD999" not in words
    assert not CONTROL_CHARACTER.search(result.stderr)
    result = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=60)
    answer = json.loads(result.stdout)
    jsonschema.validate(answer, schema("error"))
    assert (answer["error"]["code"], result.stderr) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_missing_python_is_refused(tmp_path: Path) -> None:
    for arguments in (("--yes",), ("--undo",), ("--dry-run",)):
        command = [sys.executable, "-m", "tfdoctor", "fix", *arguments, "--python", str(tmp_path / "none")]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert result.returncode == 2, result
        assert "none" in result.stderr


def test_unrequested_python_is_not_changed(tmp_path: Path) -> None:
    """Change no Python if the active environment is missing, until the user names one."""
    command = [sys.executable, "-m", "tfdoctor", "fix", "--yes"]
    env = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "gone"), "CONDA_PREFIX": ""}
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert result.returncode == 2, result
    assert "VIRTUAL_ENV names" in result.stderr
    assert "which Python is meant?" in " ".join(result.stderr.split())


def test_fix_without_terminal_needs_yes(make_environment: Callable[..., Fake]) -> None:
    env = make_environment()
    before = env.list_files()
    result = env.run("fix")
    assert (result.status, result.out) == (2, "")
    assert "no terminal to ask on" in result.err
    assert "--yes makes the changes, --dry-run only shows them." in result.err
    assert env.run("fix", "--json").json()["error"]["code"] == 2
    assert difference(before, env.list_files()) == {}


def test_nothing_to_fix_needs_no_confirmation(make_environment: Callable[..., Fake]) -> None:
    result = make_environment("2.20.0").run("fix")
    assert (result.status, "Nothing to fix automatically." in result.flat_output) == (0, True)


TERMINAL_LAUNCHER = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is for us
os.execv(sys.executable, sys.argv[1:])
"""


def run_at_terminal(
    env: Fake, answer: str, *arguments: str, command: Sequence[str] = ("fix",)
) -> tuple[int, str]:
    """Run a command in a terminal, answer its question, and return the exit status and the terminal's output."""
    terminal, child_terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINAL_LAUNCHER, *env.command(*command, *arguments)],
        env=env.environment(TERM="xterm", COLUMNS="80"),
        cwd=env.work,
        stdin=child_terminal,
        stdout=child_terminal,
        stderr=child_terminal,
    )
    os.close(child_terminal)
    output, answered, deadline = b"", False, time.monotonic() + 60
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 0.5)
        if not ready:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # the process has ended
            break
        if not chunk:
            break
        output += chunk
        if not answered and b"[y/N]" in output:
            answered = True
            os.write(terminal, answer.encode())
    os.close(terminal)
    return process.wait(timeout=60), output.decode()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("answer", "done"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("maybe\n", False)]
)
def test_fix_asks_for_confirmation(answer: str, done: bool, make_environment: Callable[..., Fake]) -> None:
    env = make_environment()
    before = env.list_files()
    status, text = run_at_terminal(env, answer, "--no-deep")
    assert "Do this? [y/N]" in text
    before_asking = text.partition("Do this?")[0]
    assert "ln -sf" in before_asking
    assert "Nothing was changed" not in before_asking
    assert status == (0 if done else 1)
    assert bool(difference(before, env.list_files())) is done
    assert ("Nothing was changed." in text.partition("Do this?")[2]) is not done
    assert ("will use 2 GPUs" in text) is done


@pytest.mark.few(1)
@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("n\n", False)])
def test_check_fix_asks_for_confirmation(
    answer: str, done: bool, make_environment: Callable[..., Fake]
) -> None:
    env = make_environment()
    before = env.list_files()
    _, text = run_at_terminal(env, answer, command=("check", "--fix"))
    before_answer, _, after_answer = re.sub(r"\x1b\[[0-9;]*m", "", text).partition("Do this? [y/N]")
    assert re.search(r"Fix it\s+.*tfdoctor fix", before_answer)  # the output of check
    assert before_answer.count("Environment ") >= 1  # the plan of fix
    assert "ln -sf" in before_answer
    assert bool(difference(before, env.list_files())) is done
    assert ("Nothing was changed." in after_answer) is not done


def test_check_fix_works_like_fix(make_environment: Callable[..., Fake]) -> None:
    env = make_environment()
    before = env.list_files()
    refused = env.run("check", "--fix")
    assert refused.status == 2
    assert "no terminal to ask on" in refused.err
    assert env.run("check", "--fix", "--json").json()["error"]["code"] == 2
    assert difference(before, env.list_files()) == {}
    answer = env.run("check", "--fix", "--yes", "--json").json()
    jsonschema.validate(answer, SCHEMA)
    assert answer["repairs"][0]["status"] == "mended"
    assert env.run("fix", "--undo").status == 0
    assert {name for name in difference(before, env.list_files()) if ".tfdoctor" not in name} == set()


@pytest.mark.parametrize(
    "words",
    [("--yes",), ("--fix", "--from", "x"), ("--fix", "--against", "x"), ("--fix", "--fail-on", "never")],
)
def test_options_that_exclude_check_fix(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tfdoctor", "check", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--fix" in result.stderr


def test_interrupt_at_the_question_changes_nothing(make_environment: Callable[..., Fake]) -> None:
    env = make_environment()
    before = env.list_files()
    status, text = run_at_terminal(env, "\x03")
    assert (status, "Interrupted." in text) == (130, True)
    assert "Traceback" not in text
    assert difference(before, env.list_files()) == {}


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", ["20", "60", "80", "120"])
@pytest.mark.parametrize("coloured", [False, True])
def test_output_fits_the_width_except_commands(
    columns: str, coloured: bool, make_environment: Callable[..., Fake]
) -> None:
    env = make_environment()
    variables = {"COLUMNS": columns, **({"FORCE_COLOR": "1"} if coloured else {})}
    result = env.run("fix", "--dry-run", **variables)
    assert ("\x1b[" in result.out) is coloured
    commands = env.run("fix", "--dry-run", "--json").json()["repairs"][0]["commands"]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.out)
    plain = re.sub(r" \\\n +", " ", plain)  # join continued lines
    for command in commands:
        assert any(
            line.strip() == command for line in plain.splitlines()
        )  # unbroken, so that it can be copied
    for line in plain.splitlines():
        assert len(line) <= int(columns) or line.strip() in commands or "/" in line, line


def test_quiet_prints_the_verdict_and_the_undo_command(make_environment: Callable[..., Fake]) -> None:
    env = make_environment()
    result = env.fix("-q")
    lines = result.out.splitlines()
    assert (result.status, result.err) == (0, "")
    assert lines[0].startswith("✓ TensorFlow 2.21.0 will use 2 GPUs")
    assert lines[-1] == f"To revert everything: tfdoctor fix --undo --python {env.python}"
    assert env.run(*lines[-1].partition("tfdoctor ")[2].split()[:2]).status == 0


def test_json_is_the_only_output(make_environment: Callable[..., Fake]) -> None:
    result = make_environment().fix("--json", "-v")
    assert (result.status, result.err) == (0, "")
    assert result.json()["repairs"][0]["status"] == "mended"


def test_no_control_character_reaches_a_terminal(tmp_path: Path, standin_cache: Path) -> None:
    env = make(tmp_path, standin_cache, "2.21.0", name="it's a \x1b[31mred\x1b]0;title\x07 env")
    before = env.list_files()
    for arguments in (("--dry-run",), ("--yes", "--no-deep"), ("--undo",)):
        result = env.run("fix", "-v", *arguments)
        assert not CONTROL_CHARACTER.search(result.out + result.err), (arguments, result.out + result.err)
    assert difference(before, env.list_files()) == {}
    assert env.fix("--json").json()["environment"] == str(env.root)


def test_installer_output_is_sanitized(make_environment: Callable[..., Fake]) -> None:
    env = make_environment("2.20.0")
    env.nvidia_path("cufft/lib/libcufft.so.11").unlink()
    folder = env.make_folder("evil")
    (folder / "uv").write_text(
        '#!/bin/sh\ncase "$*" in "pip install"*)\n'
        "printf 'error: \\033[31mbad \\033]0;title\\007 thing\\n'; exit 1;;\nesac\n",
        encoding="utf-8",
    )
    (folder / "uv").chmod(0o755)
    env.variables["PATH"] = f"{folder}:/usr/bin:/bin"
    result = env.fix("-v")
    assert result.status == 1
    assert "bad" in result.flat_output
    assert "bad" in result.err
    assert not CONTROL_CHARACTER.search(result.out + result.err)


def test_system_python_is_not_changed(tmp_path: Path) -> None:
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
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    answer = json.loads(result.stdout)
    jsonschema.validate(answer, SCHEMA)
    assert answer["repairs"] == []
    assert not Path(answer["environment"], ".tfdoctor").exists()


def test_undo_without_changes_writes_nothing(
    make_environment: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_environment()

    mkdir = os.mkdir

    def refuse(path: str, *arguments: int, **options: int) -> None:
        assert not str(path).startswith(str(env.root)), path
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(os, "mkdir", refuse)
    before = env.list_files()
    result = env.run("fix", "--undo")
    assert (result.status, "Nothing to undo in" in result.flat_output) == (0, True)
    assert difference(before, env.list_files()) == {}
