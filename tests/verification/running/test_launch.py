"""The environment of a program that `tfdoctor run` starts, and its standard streams."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tfdoctor.verification.running.launch import (
    SITECUSTOMIZE_FOLDER,
    make_loader_environment,
    make_placement_environment,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("env", "modules", "level", "notes"),
    [
        ({}, "dso_loader=3", None, ["dso_loader lines", "--no-verbose-loader"]),
        ({"TF_CPP_VMODULE": "a=1,,b=2"}, "a=1,b=2,dso_loader=3", None, ["dso_loader lines", "--no-verbose"]),
        ({"TF_CPP_VMODULE": "a=1, dso_loader =1"}, "a=1, dso_loader =1", None, []),
        (
            {"TF_CPP_VMODULE": "dso_loader_x=1"},
            "dso_loader_x=1,dso_loader=3",
            None,
            ["dso_loader lines", "--no"],
        ),
        (
            {"TF_CPP_VMODULE": "dso_loader=2", "TF_CPP_MIN_LOG_LEVEL": " 2 "},
            "dso_loader=2",
            "0",
            ["TF_CPP_MIN_LOG_LEVEL was 0 instead of 2 for this run.", "--no-verbose-loader"],
        ),
        ({"TF_CPP_VMODULE": "dso_loader=2", "TF_CPP_MIN_LOG_LEVEL": "00"}, "dso_loader=2", "00", []),
        ({"TF_CPP_VMODULE": "dso_loader=2", "TF_CPP_MIN_LOG_LEVEL": "x"}, "dso_loader=2", "x", []),
        (
            {"TF_CPP_VMODULE": "dso_loader=2", "TF_CPP_MIN_LOG_LEVEL": "10"},
            "dso_loader=2",
            "0",
            ["instead of 10", "--no"],
        ),
    ],
)
def test_loader_lines_are_requested(
    env: dict[str, str], modules: str, level: str | None, notes: list[str]
) -> None:
    before = dict(env)
    changed, said = make_loader_environment(env)
    assert env == before
    assert (changed["TF_CPP_VMODULE"], changed.get("TF_CPP_MIN_LOG_LEVEL")) == (modules, level)
    assert len(said) == len(notes)
    assert [note for note, text in zip(notes, said, strict=True) if note not in text] == []


def test_placement_is_requested() -> None:
    changed, notes = make_placement_environment({"A": "1"})
    assert (changed, len(notes)) == ({"A": "1", "PYTHONPATH": str(SITECUSTOMIZE_FOLDER)}, 1)
    assert (SITECUSTOMIZE_FOLDER / "sitecustomize.py").is_file()
    changed, notes = make_placement_environment({"PYTHONPATH": "/x:/y", "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert changed["PYTHONPATH"] == f"{SITECUSTOMIZE_FOLDER}{os.pathsep}/x:/y"
    assert (changed["TF_CPP_MIN_LOG_LEVEL"], len(notes)) == ("0", 2)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
def test_streams_for_the_wrong_direction_are_replaced(tmp_path: Path) -> None:
    script = (
        "import fcntl, os, pathlib, sys\n"
        "from tfdoctor.verification.running.launch import replace_unusable_streams\n"
        "replace_unusable_streams()\n"
        "modes = [fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE for number in (0, 1, 2)]\n"
        "pathlib.Path(sys.argv[1]).write_text(repr((modes, os.get_inheritable(0))))\n"
    )
    line = 'exec "$0" -c "$1" "$2" 0>/dev/null 1</dev/null 2>/dev/null'
    subprocess.run(["/bin/sh", "-c", line, sys.executable, script, str(tmp_path / "modes")], check=True)
    assert (tmp_path / "modes").read_text() == f"([{os.O_RDWR}, {os.O_RDWR}, {os.O_WRONLY}], True)"
