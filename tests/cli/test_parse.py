"""`tfdoctor parse`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2023 NVIDIA Corporation
Built on Fri_Jan__6_16:45:21_PST_2023
Cuda compilation tools, release 12.0, V12.0.140
Build cuda_12.0.r12.0/compiler.32267302_0
"""


def run(*args: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tfdoctor", "parse", *args]
    return subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("kind", ["nvcc", "auto"])
def test_json_from_a_file_and_from_a_pipe(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "nvcc.txt"
    path.write_text(NVCC, encoding="utf-16")
    for done in (
        run(kind, str(path), "--json"),
        run(kind, "--json", given=NVCC.encode()),
        run(kind, "-", "--json", given=NVCC.encode()),
    ):
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["schema_version"], answer["kind"]) == (0, 1, "nvcc")
        assert answer["data"]["release"] == "12.0"


def test_text() -> None:
    done = run("nvcc", given=NVCC.encode())
    assert b"kind: nvcc\n" in done.stdout
    assert b"release: 12.0\n" in done.stdout


def test_wrong_requests(tmp_path: Path) -> None:
    for args, words in (
        (("nvc", "-"), b"Did you mean nvcc"),
        (("nvcc", str(tmp_path / "none")), b"No such file"),
        (("nvcc", str(tmp_path)), b"directory"),
        (("auto", "-"), b"is not recognised"),
    ):
        done = run(*args, given=b"hello\n")
        assert done.returncode == 2, args
        assert words in done.stderr, args
        assert not done.stdout, args
    done = run("nonsense", "--json")
    assert json.loads(done.stdout)["error"]["code"] == 2


def test_control_characters_do_not_reach_the_terminal() -> None:
    done = run(
        "lspci",
        given=b"01:00.0 VGA compatible controller: NVIDIA \x1b[31mEvil\x07 Corporation GA102 [10de:2204]\n",
    )
    assert b"\x1b" not in done.stdout
    assert b"\x07" not in done.stdout
