"""`tfdoctor run` knows the machine and the Python of the program: its first remedy is that of `check`."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from environments.fake import Fake, make, needs_compiler
from tfdoctor.probes.interpreter_selection import find_program_python
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SKIPPED = (
    "W0000 00:00:1746000001.233333       7 gpu_device.cc:2365] Cannot dlopen some GPU libraries. Please make sure the "
    "missing libraries mentioned above are installed properly if you would like to use GPU.\n"
    "Skipping registering GPU devices...\n"
)
NO_DEVICE = (
    "2024-05-01 10:00:00.000000: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:282] failed call to cuInit: "
    "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
)


def run_program(fake: Fake, program: Sequence[str], log: str) -> str:
    """Run a program of this environment that prints a log, and return the screen on one line."""
    path = fake.work / "program.log"
    path.write_text(log, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "run", "--", *program, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=fake.work,
        env=fake.environment(COLUMNS="200"),
    )
    return " ".join(result.stderr.replace("\\\n", " ").split())


@needs_compiler
def test_first_remedy_is_that_of_check(tmp_path: Path, standin_cache: Path) -> None:
    fake = make(tmp_path, standin_cache, "2.21.0")
    check = " ".join(fake.run("check", COLUMNS="200").out.replace("\\\n", " ").split())
    command = f"tfdoctor fix --python {fake.python}"
    assert f"Fix it {command}" in check
    script = fake.work / "print_log"
    script.write_text(f"#!{fake.python}\nimport sys\nsys.stderr.write(open(sys.argv[1]).read())\n")
    script.chmod(0o755)
    for program in ((str(fake.python), "-c", script.read_text()), (str(script),)):
        screen = run_program(fake, program, SKIPPED)
        assert command in screen.partition(" Do ")[2].partition(" Or ")[0], screen
        assert "machine that wrote this log" not in screen
    assert f"--python {fake.python}" not in run_program(fake, ("cat",), SKIPPED), "cat is not a Python"


@needs_compiler
def test_python_below_a_shell(tmp_path: Path, standin_cache: Path) -> None:
    """The Python is that of the process which loaded TensorFlow, and the variables are those that the shell set."""
    fake = make(tmp_path, standin_cache, "2.21.0")
    library = next((fake.site / "tensorflow").rglob("libtensorflow*.so*"))
    code = (
        f"import ctypes, sys, time; ctypes.CDLL({str(library)!r}); time.sleep(2); "
        "sys.stderr.write(open(sys.argv[1]).read())"
    )
    shell = (
        "sh",
        "-c",
        'HIDDEN=$1; [ -z "$HIDDEN" ] || export CUDA_VISIBLE_DEVICES=-1; "$2" -c "$3" "$4"; true',
        "sh",
    )
    screen = run_program(fake, (*shell, "", str(fake.python), code), SKIPPED)
    assert re.search(rf"tfdoctor fix --python {re.escape(str(fake.python))}", screen.partition(" Do ")[2]), (
        screen
    )
    screen = run_program(fake, (*shell, "yes", str(fake.python), code), NO_DEVICE)
    assert "[TFD601]" in screen.partition(" Why ")[0], screen


@needs_compiler
def test_another_cause_is_a_note(tmp_path: Path, standin_cache: Path) -> None:
    fake = make(tmp_path, standin_cache, "2.21.0")
    code = "import sys; sys.stderr.write(open(sys.argv[1]).read())"
    screen = run_program(fake, (str(fake.python), "-c", code), f"CUDA_VISIBLE_DEVICES=-1\n{NO_DEVICE}")
    assert "[TFD601]" in screen.partition(" Why ")[0], "the program hides the GPUs itself"
    assert "check` says: TensorFlow 2.21.0 will not use the GPU" in screen
    assert "It may also be" not in screen, "check was run"


@pytest.mark.parametrize(
    ("first_line", "interpreter"),
    [
        ("#!{python}", True),
        ("#!/usr/bin/env python3", True),
        ("#!/usr/bin/env -S python3 -u", True),
        ("#!/bin/sh", False),
        ("echo hello", False),
        ("", False),
    ],
)
def test_python_of_a_script(first_line: str, interpreter: bool, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.symlink_to(sys.executable)
    script = tmp_path / "train"
    script.write_text(f"{first_line.format(python=python)}\n", encoding="utf-8")
    script.chmod(0o755)
    system = LiveSystem(env={"PATH": str(tmp_path)}, cwd=str(tmp_path))
    assert find_program_python(system, str(script)) == (str(python) if interpreter else None)
    assert find_program_python(system, "python3") == str(python)
    assert find_program_python(system, "absent") is None
