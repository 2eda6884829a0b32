"""Installed interpreters: where they are searched, and which programs are not accepted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tfdoctor.environments.interpreters import Interpreter, find_interpreters, query_interpreter
from tfdoctor.system import LiveSystem

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


def write_interpreter(target: Path, version: str = "3.9.1", **changes: Any) -> Path:
    """Write a program that answers as an interpreter would."""
    facts = {
        "path": str(target),
        "version": version,
        "base": str(target.parent.parent),
        "abi": "",
        "implementation": "CPython",
        "bits": 64,
        "venv": True,
    } | changes
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"#!{sys.executable}\nimport json\nprint(json.dumps({facts!r}))\n", encoding="utf-8")
    target.chmod(0o755)
    return target


def test_running_interpreter_is_recognized() -> None:
    interpreter = query_interpreter(sys.executable, LiveSystem())
    assert interpreter is not None
    assert interpreter.version == sys.version.split()[0].rstrip("+")
    assert interpreter.minor_version == MINOR
    assert Path(interpreter.base_prefix).samefile(sys.base_prefix)
    assert query_interpreter(interpreter.path, LiveSystem()) == interpreter, (
        "of an environment the Python behind it"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"implementation": "PyPy"},
        {"bits": 32},
        {"abi": "t"},
        {"version": "2.7.18"},
        {"version": "three"},
        {"version": ""},
        {"path": None},
    ],
)
def test_interpreter_without_wheels_is_rejected(tmp_path: Path, more: dict[str, Any]) -> None:
    assert (
        query_interpreter(str(write_interpreter(tmp_path / "bin" / "python3", **more)), LiveSystem()) is None
    )


def test_other_programs_are_rejected(tmp_path: Path) -> None:
    for name, text in (
        ("silent", "#!/bin/sh\n"),
        ("angry", "#!/bin/sh\nexit 1\n"),
        ("list", "#!/bin/sh\necho '[1]'\n"),
    ):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        assert query_interpreter(str(path), LiveSystem()) is None
    (tmp_path / "data").write_text("")
    for path in (tmp_path / "data", tmp_path / "nowhere", tmp_path):
        assert query_interpreter(str(path), LiveSystem()) is None


def test_plus_in_the_version_and_pythonhome_are_ignored(tmp_path: Path) -> None:
    interpreter = query_interpreter(
        str(write_interpreter(tmp_path / "bin" / "python3", "3.11.2+")),
        LiveSystem(env={"PYTHONHOME": "/nowhere", **os.environ}),
    )
    assert interpreter is not None
    assert interpreter.version == "3.11.2"


def test_search_order_of_interpreters(tmp_path: Path) -> None:
    env = {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}/usr/bin:{tmp_path}/.pyenv/shims:{tmp_path}/nowhere",
        "VIRTUAL_ENV": f"{tmp_path}/active",
    }
    write_interpreter(tmp_path / "active/bin/python", "3.10.1")
    python3 = write_interpreter(tmp_path / "usr/bin/python3", "3.11.1")
    (tmp_path / "usr/bin/python3.11").symlink_to(python3)
    write_interpreter(tmp_path / "usr/bin/python3.12", "3.12.1", venv=False)
    write_interpreter(tmp_path / "usr/bin/python3.13", "3.13.1", bits=32)
    write_interpreter(tmp_path / ".pyenv/shims/python3.8", "3.8.1")
    write_interpreter(tmp_path / ".pyenv/versions/3.9.18/bin/python3", "3.9.18")
    write_interpreter(tmp_path / ".local/share/uv/python/cpython-3.8.2/bin/python3", "3.8.2")
    write_interpreter(tmp_path / "usr/bin/python3.6", "3.6.9")
    write_interpreter(tmp_path / "usr/bin/python3.5", "3.5.9")
    write_interpreter(tmp_path / "usr/bin/python3.30", "3.30.1")
    interpreters = find_interpreters(LiveSystem(env=env))
    assert [interpreter.version for interpreter in interpreters] == [
        "3.10.1",
        "3.11.1",
        "3.30.1",
        "3.12.1",
        "3.6.9",
        "3.9.18",
        "3.8.2",
    ]
    assert [interpreter.can_create_venv for interpreter in interpreters] == [
        *(True, True, True, False, True, True, True)
    ]
    assert interpreters[1] == Interpreter(str(python3), "3.11.1", f"{tmp_path}/usr", True)


def test_no_interpreter(tmp_path: Path) -> None:
    assert find_interpreters(LiveSystem(env={"HOME": str(tmp_path), "PATH": str(tmp_path)})) == ()
