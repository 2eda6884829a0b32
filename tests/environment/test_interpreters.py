"""The Pythons at hand: found where they are, asked what they are, and nothing else taken for one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tfdoctor.environment.interpreters import Interpreter, ask, find_interpreters
from tfdoctor.system import LiveSystem

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


def fake(place: Path, version: str = "3.9.1", **more: Any) -> Path:
    """A program that answers as a Python would."""
    said = {
        "path": str(place),
        "version": version,
        "base": str(place.parent.parent),
        "abi": "",
        "implementation": "CPython",
        "bits": 64,
        "venv": True,
    } | more
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!{sys.executable}\nimport json\nprint(json.dumps({said!r}))\n", encoding="utf-8")
    place.chmod(0o755)
    return place


def test_the_one_that_runs_us() -> None:
    found = ask(sys.executable, LiveSystem())
    assert found is not None
    assert found.version == sys.version.split()[0].rstrip("+")
    assert found.minor == MINOR
    assert Path(found.base).samefile(sys.base_prefix)
    assert ask(found.path, LiveSystem()) == found, "of an environment the Python behind it"


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
def test_what_no_wheel_is_for(tmp_path: Path, more: dict[str, Any]) -> None:
    assert ask(str(fake(tmp_path / "bin" / "python3", **more)), LiveSystem()) is None


def test_what_is_no_python(tmp_path: Path) -> None:
    for name, text in (
        ("silent", "#!/bin/sh\n"),
        ("angry", "#!/bin/sh\nexit 1\n"),
        ("list", "#!/bin/sh\necho '[1]'\n"),
    ):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        assert ask(str(path), LiveSystem()) is None
    (tmp_path / "data").write_text("")
    for path in (tmp_path / "data", tmp_path / "nowhere", tmp_path):
        assert ask(str(path), LiveSystem()) is None


def test_a_version_with_a_plus_and_the_callers_variables(tmp_path: Path) -> None:
    found = ask(
        str(fake(tmp_path / "bin" / "python3", "3.11.2+")),
        LiveSystem(env={"PYTHONHOME": "/nowhere", **os.environ}),
    )
    assert found is not None
    assert found.version == "3.11.2"


def test_where_they_are_looked_for(tmp_path: Path) -> None:
    env = {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}/usr/bin:{tmp_path}/.pyenv/shims:{tmp_path}/nowhere",
        "VIRTUAL_ENV": f"{tmp_path}/active",
    }
    fake(tmp_path / "active/bin/python", "3.10.1")
    first = fake(tmp_path / "usr/bin/python3", "3.11.1")
    (tmp_path / "usr/bin/python3.11").symlink_to(first)
    fake(tmp_path / "usr/bin/python3.12", "3.12.1", venv=False)
    fake(tmp_path / "usr/bin/python3.13", "3.13.1", bits=32)
    fake(tmp_path / ".pyenv/shims/python3.8", "3.8.1")
    fake(tmp_path / ".pyenv/versions/3.9.18/bin/python3", "3.9.18")
    fake(tmp_path / ".local/share/uv/python/cpython-3.8.2/bin/python3", "3.8.2")
    found = find_interpreters(LiveSystem(env=env))
    assert [one.version for one in found] == ["3.10.1", "3.11.1", "3.12.1", "3.9.18", "3.8.2"]
    assert [one.venv for one in found] == [True, True, False, True, True]
    assert found[1] == Interpreter(str(first), "3.11.1", f"{tmp_path}/usr", True)


def test_none_at_all(tmp_path: Path) -> None:
    assert find_interpreters(LiveSystem(env={"HOME": str(tmp_path), "PATH": str(tmp_path)})) == ()
