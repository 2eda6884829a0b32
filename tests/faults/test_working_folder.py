"""Nothing in the working folder is executed unless the user asks for it; modules that shadow others are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from environments.fake import Fake, make, needs_compiler
from tfdoctor.cli.main import _Commands
from tfdoctor.system.children import drop_working_folder

PLANTED = [
    *(
        "json",
        "re",
        "os",
        "sys",
        "platform",
        "typing",
        "traceback",
        "sysconfig",
        "types",
        "token",
        "enum",
        "ast",
    ),
    *(
        "encodings",
        "site",
        "sitecustomize",
        "usercustomize",
        "subprocess",
        "struct",
        "ctypes",
        "runpy",
        "pkgutil",
    ),
    *(
        "importlib",
        "functools",
        "collections",
        "random",
        "glob",
        "zipfile",
        "shutil",
        "tempfile",
        "venv",
        "ensurepip",
    ),
    *(
        "numpy",
        "keras",
        "tensorflow",
        "google",
        "six",
        "packaging",
        "pip",
        "setuptools",
        "h5py",
        "wrapt",
        "rich",
    ),
    *(
        "typer",
        "click",
        "docker",
        "requests",
        "yaml",
        "jinja2",
        "_distutils_hack",
        "distutils",
        "cv2",
        "nvidia",
    ),
]
PROGRAMS = (
    "nvidia-smi",
    "nvcc",
    "python",
    "python3",
    "conda",
    "docker",
    "podman",
    "uv",
    "pip",
    "ldconfig",
    "ldd",
)
EXECUTING_COMMANDS = {"verify", "bench", "run", "completion"}
"""Commands that run programs of the user, and one that writes to the shell's start-up files."""
COMMANDS = {
    "check": [["-q"], ["--json"], ["--html", "page.html"]],
    "fix": [["--dry-run"], ["--undo", "--dry-run"]],
    "install": [["--dry-run", "--tf", "2.20", "--into", "new"]],
    "build": [["--dry-run", "--tf", "2.20"]],
    "capture": [["-o", "out.tar.gz"]],
    "report": [[]],
    "recommend": [[]],
    "lint": [["."]],
    "matrix": [["--tf", "2.20"]],
    "diagnose": [["log"], ["--placement", "log"]],
    "parse": [["log"]],
    "explain": [["TFD101"]],
    "cluster": [["--tf-config", "{}"]],
    "mcp": [[]],
    "fleet": [["run", "results", "--ssh", "h1", "--dry-run"]],
}
WITH_PYTHON = {"check", "fix", "capture", "report", "recommend"}


def test_every_command_is_covered() -> None:
    assert set(_Commands()) == set(COMMANDS) | EXECUTING_COMMANDS


@pytest.fixture
def planted(tmp_path: Path, standin_cache: Path) -> tuple[Fake, Path]:
    """Return an environment with an unknown package, and a folder of modules and programs that record when they run."""
    env = make(tmp_path, standin_cache)
    env.install("odd", "1.0")
    folder = env.make_folder("project")
    (folder / "log").write_text("a line\n")
    for name in PLANTED:
        body = f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + ' ')\n"
        (folder / f"{name}.py").write_text(body)
    (folder / "libcuda.so.1").write_text("")
    for name in PROGRAMS:
        program = folder / name
        program.write_text(f"#!/bin/sh\nprintf '{name} ' >> {tmp_path / 'ran'}\n")
        program.chmod(0o755)
    return env, folder


@needs_compiler
@pytest.mark.parametrize("path", [None, ":"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_planted_module_runs(
    planted: tuple[Fake, Path], tmp_path: Path, command: str, path: str | None
) -> None:
    env, folder = planted
    variables = env.environment() | ({"PYTHONPATH": path} if path is not None else {})
    if path is not None:
        variables["PATH"] = f":.:{variables.get('PATH', os.defpath)}:"
    variables["VIRTUAL_ENV"] = str(env.root)
    for arguments in COMMANDS[command]:
        python = ["--python", str(env.root)] if command in WITH_PYTHON else []
        program = [sys.executable, "-I", "-m", "tfdoctor"]
        result = subprocess.run(
            [*program, command, *arguments, *python],
            cwd=folder, env=variables, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        ran = (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""
        assert ran == "", (arguments, ran, result.stderr)
        assert "Traceback" not in result.stderr
    if command == "check":
        text = subprocess.run(
            [*program, "check", "-v", "--python", str(env.root)],
            cwd=folder, env=variables, capture_output=True, text=True, timeout=100, check=False,
        ).stdout  # fmt: skip
        assert "TFD701" in text
        assert f"{folder}/numpy.py" in text


def test_children_get_no_search_path_entry_for_the_working_folder() -> None:
    env = {
        "PATH": ":/a:bin:.:/b:/proc/self/cwd:",
        "LD_LIBRARY_PATH": f":/x;.:lib:./:/proc/self/cwd:../{Path.cwd().name}",
        "OTHER": ".",
    }
    assert drop_working_folder(env) == {"PATH": "/a:/b", "LD_LIBRARY_PATH": "/x", "OTHER": "."}
    assert drop_working_folder({"LD_LIBRARY_PATH": ":"}) == {}
