"""Printed commands can be copied: they begin with the name by which tfdoctor was called."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfdoctor.render import program_name
from tfdoctor.render.paragraphs import (
    Page,
    Text,
    count_columns,
    print_commands,
    print_hanging,
    shorten_text,
    truncate_text,
)

ROOT = Path(__file__).parents[2]
HOST = ROOT / "tests/hosts/plain-pip-install"


@pytest.fixture
def as_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_name, "get_program_name", lambda: "./scripts/tfdoctor")


def test_default_name_is_unchanged() -> None:
    assert (
        program_name.adapt_commands("tfdoctor check") == "tfdoctor check"
    )  # pytest is not tfdoctor, so the default name is used


@pytest.mark.usefixtures("as_script")
def test_only_commands_are_replaced() -> None:
    text = "`tfdoctor fix`, sudo tfdoctor install; tfdoctor 0.1.0 sees ~/.cache/tfdoctor check and /opt/tfdoctor fix"
    replaced = program_name.adapt_commands(text)
    assert replaced == (
        "`./scripts/tfdoctor fix`, sudo ./scripts/tfdoctor install; "
        "tfdoctor 0.1.0 sees ~/.cache/tfdoctor check and /opt/tfdoctor fix"
    )
    assert program_name.adapt_commands(replaced) == replaced


@pytest.mark.parametrize(
    "name", ["uvx --from /srv/src tfdoctor", "uv run tfdoctor", "/opt/x/python -m tfdoctor"]
)
def test_replacing_twice_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_name, "get_program_name", lambda: name)
    replaced = program_name.adapt_commands("See `tfdoctor explain TFD203`, tfdoctor check")
    assert replaced == f"See `{name} explain TFD203`, {name} check"
    assert program_name.adapt_commands(replaced) == replaced


@pytest.mark.usefixtures("as_script")
def test_page_measures_the_replaced_text() -> None:
    for width in (40, 60, 80):
        page = Page(width, coloured=False)
        print_hanging(
            page, Text("  Do  "), "See `tfdoctor explain TFD203`, or what `tfdoctor check` shows. " * 3
        )
        print_commands(
            page, ["tfdoctor fix --python /opt/env --yes --timeout 10 --verbose"], 4, with_continuations=True
        )
        page.print(Text(truncate_text("the whole of it is what `tfdoctor check -v` shows, and " * 2, width)))
        assert "`tfdoctor" not in page.text
        assert all(count_columns(line) <= width for line in page.text.splitlines()), page.text
        assert page.height == len(page.text.splitlines())
        assert shorten_text("`tfdoctor check` is it. It is so. " * 3, width, 1).startswith(
            "`./scripts/tfdoctor check` is it."
        )


def run_check(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if key != program_name.PROGRAM_NAME_VARIABLE}
    return subprocess.run(
        [*command, "check", "--from", str(HOST)],
        env=variables | env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ([sys.executable, "-m", "tfdoctor"], {}, f"{sys.executable} -m tfdoctor explain"),
        ([sys.executable, "-m", "tfdoctor"], {"PYTHONPATH": "/srv/modules"}, " -m tfdoctor explain"),
        (
            [sys.executable, "-m", "tfdoctor"],
            {program_name.PROGRAM_NAME_VARIABLE: "./scripts/tfdoctor"},
            " ./scripts/tfdoctor explain",
        ),
        (
            [sys.executable, "-m", "tfdoctor"],
            {program_name.PROGRAM_NAME_VARIABLE: "x\x1b[31m"},
            "More: tfdoctor explain",
        ),
        (
            [str(Path(sys.executable).with_name("tfdoctor"))],
            {"PATH": str(Path(sys.executable).parent)},
            "More: tfdoctor explain",
        ),
        ([str(Path(sys.executable).with_name("tfdoctor"))], {"PATH": "/nowhere"}, "bin/tfdoctor explain"),
    ],
)
def test_commands_begin_as_tfdoctor_was_called(words: list[str], env: dict[str, str], expected: str) -> None:
    process = run_check(*words, **env)
    assert expected in process.stdout, process


@pytest.mark.parametrize(
    ("program", "env", "source", "expected"),
    [
        ("/u/.cache/uv/archive-v0/AbC/bin/tfdoctor", {"UV": "/u/uv"}, "", "uvx tfdoctor"),
        (
            "/u/.cache/uv/archive-v0/AbC/bin/tfdoctor",
            {"UV": "/u/uv"},
            "/u/a b",
            "uvx --from '/u/a b' tfdoctor",
        ),
        ("/p/.venv/bin/tfdoctor", {"UV": "/u/uv", "UV_RUN_RECURSION_DEPTH": "1"}, "", "uv run tfdoctor"),
        ("/p/my env/bin/tfdoctor", {"PATH": "/nowhere"}, "", "'/p/my env/bin/tfdoctor'"),
        ("tfdoctor", {}, "", "tfdoctor"),
        ("/usr/lib/python3/ipykernel_launcher.py", {}, "", "tfdoctor"),
    ],
)
def test_name_includes_uv(
    program: str, env: dict[str, str], source: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in (program_name.PROGRAM_NAME_VARIABLE, "UV", "UV_RUN_RECURSION_DEPTH"):
        monkeypatch.delenv(key, raising=False)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(sys, "argv", [program, "check"])
    monkeypatch.setattr(program_name, "_find_install_source", lambda: source)
    assert program_name.get_program_name.__wrapped__() == expected


def test_shell_script_exports_how_it_was_called(tmp_path: Path) -> None:
    """The script exports the name as typed, or its bare name if the shell finds it on PATH."""
    (tmp_path / "tfdoctor").symlink_to(ROOT / "scripts/tfdoctor")
    script = (ROOT / "scripts/tfdoctor").read_text(encoding="utf-8")
    excerpt = script[script.index("called=$0") : script.index("export TFDOCTOR_CALLED")]
    (tmp_path / "shown").write_text(
        f"#!/usr/bin/env bash\n{excerpt}printf '%s' \"$called\"\n", encoding="utf-8"
    )
    (tmp_path / "shown").chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for typed, expected in (("shown", "shown"), ("./shown", "./shown")):
        process = subprocess.run(
            [shutil.which("bash") or "/bin/bash", "-c", typed],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert process.stdout == expected


def test_json_keeps_the_default_name() -> None:
    command = [sys.executable, "-m", "tfdoctor"]
    env = os.environ | {program_name.PROGRAM_NAME_VARIABLE: "./scripts/tfdoctor"}
    process = subprocess.run(
        [*command, "check", "--json", "--from", str(HOST)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    commands = [
        shell_command
        for finding in json.loads(process.stdout)["findings"]
        for remedy in finding["remedies"]
        for shell_command in remedy["commands"]
    ]
    assert commands
    assert "scripts/tfdoctor" not in process.stdout


def test_error_hint_uses_the_name() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "run"],
        env=os.environ | {program_name.PROGRAM_NAME_VARIABLE: "./scripts/tfdoctor"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "hint: ./scripts/tfdoctor run" in process.stderr
