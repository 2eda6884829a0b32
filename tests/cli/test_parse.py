"""`tfdoctor parse` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NVCC_OUTPUT = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2023 NVIDIA Corporation
Built on Fri_Jan__6_16:45:21_PST_2023
Cuda compilation tools, release 12.0, V12.0.140
Build cuda_12.0.r12.0/compiler.32267302_0
"""


def run(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tfdoctor", "parse", *args]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("kind", ["nvcc", "auto"])
def test_json_from_a_file_and_a_pipe(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "nvcc.txt"
    path.write_text(NVCC_OUTPUT, encoding="utf-16")
    for result in (
        run(kind, str(path), "--json"),
        run(kind, "--json", stdin=NVCC_OUTPUT.encode()),
        run(kind, "-", "--json", stdin=NVCC_OUTPUT.encode()),
    ):
        answer = json.loads(result.stdout)
        assert (result.returncode, answer["schema_version"], answer["kind"]) == (0, 1, "nvcc")
        assert answer["data"]["release"] == "12.0"


def test_text_output() -> None:
    result = run("nvcc", stdin=NVCC_OUTPUT.encode())
    assert b"kind: nvcc\n" in result.stdout
    assert b"release: 12.0\n" in result.stdout


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    for args, message in (
        (("nvc", "-"), b"Did you mean nvcc"),
        (("nvcc", str(tmp_path / "none")), b"No such file"),
        (("nvcc", str(tmp_path)), b"directory"),
        (("auto", "-"), b"is not recognised"),
    ):
        result = run(*args, stdin=b"hello\n")
        assert result.returncode == 2, args
        assert message in result.stderr, args
        assert not result.stdout, args
    result = run("nonsense", "--json")
    assert json.loads(result.stdout)["error"]["code"] == 2


def test_control_characters_are_removed() -> None:
    result = run(
        "lspci",
        stdin=b"01:00.0 VGA compatible controller: NVIDIA \x1b[31mEvil\x07 Corporation GA102 [10de:2204]\n",
    )
    assert b"\x1b" not in result.stdout
    assert b"\x07" not in result.stdout
