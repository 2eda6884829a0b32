"""`tfdoctor parse` on the command line."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from cli.planner import call_tfdoctor

if TYPE_CHECKING:
    from pathlib import Path

NVCC_OUTPUT = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2023 NVIDIA Corporation
Built on Fri_Jan__6_16:45:21_PST_2023
Cuda compilation tools, release 12.0, V12.0.140
Build cuda_12.0.r12.0/compiler.32267302_0
"""


run = functools.partial(call_tfdoctor, "parse")


@pytest.mark.parametrize("kind", ["nvcc", "auto"])
def test_json_from_a_file_and_a_pipe(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "nvcc.txt"
    path.write_text(NVCC_OUTPUT, encoding="utf-16")
    for result in (
        run(kind, str(path), "--json"),
        run(kind, "--json", stdin=NVCC_OUTPUT),
        run(kind, "-", "--json", stdin=NVCC_OUTPUT),
    ):
        answer = result.json
        assert (result.status, answer["schema_version"], answer["kind"]) == (0, 1, "nvcc")
        assert answer["data"]["release"] == "12.0"


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    for args, message in (
        (("nvc", "-"), "Did you mean nvcc"),
        (("nvcc", str(tmp_path / "none")), "No such file"),
        (("nvcc", str(tmp_path)), "directory"),
        (("auto", "-"), "is not recognised"),
    ):
        result = run(*args, stdin="hello\n")
        assert result.status == 2, args
        assert message in result.err, args
        assert not result.out, args
    result = run("nonsense", "--json")
    assert result.json["error"]["code"] == 2


def test_control_characters_are_removed() -> None:
    result = run(
        "lspci",
        stdin="01:00.0 VGA compatible controller: NVIDIA \x1b[31mEvil\x07 Corporation GA102 [10de:2204]\n",
    )
    assert "\x1b" not in result.out
    assert "\x07" not in result.out
