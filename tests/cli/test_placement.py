"""`tfdoctor diagnose --placement` on the command line."""

from __future__ import annotations

import functools
import gzip
from typing import TYPE_CHECKING

import pytest

from cli.planner import call_tfdoctor, validate

if TYPE_CHECKING:
    from pathlib import Path

JOB = "/job:localhost/replica:0/task:0/device"
LOG = f"""Device mapping:
{JOB}:GPU:0 -> device: 0, name: Tesla T4, pci bus id: 0000:00:05.0, compute capability: 7.5
{JOB}:GPU:1 -> device: 1, name: Tesla T4, pci bus id: 0000:00:06.0, compute capability: 7.5
MatMul: (MatMul): {JOB}:GPU:0
x: (Const): {JOB}:CPU:0
"""
REFUSAL_LOG = (
    "Cannot assign a device for operation x: {{node x}} was explicitly assigned to /device:GPU:1 "
    "but available devices are [ ]"
)


run = functools.partial(call_tfdoctor, "diagnose", "--placement")


def test_json_from_a_file_an_archive_and_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    (tmp_path / "log.gz").write_bytes(gzip.compress(LOG.encode()))
    for args, given in (
        ([str(tmp_path / "log")], ""),
        ([str(tmp_path / "log.gz")], ""),
        ([], LOG),
        (["-"], LOG),
    ):
        result = run(*args, "--json", stdin=given)
        answer = result.json
        validate(answer, "placement")
        assert result.status == 0
        assert answer["totals"] == {"CPU:0": 1, "GPU:0": 1}
        assert answer["unused"] == ["GPU:1"]


@pytest.mark.parametrize(
    ("given", "args", "status"),
    [
        (REFUSAL_LOG, [], 1),
        (REFUSAL_LOG, ["--fail-on", "never"], 0),
        (LOG, ["--fail-on", "warning"], 1),
        ("nothing", [], 0),
        ("", [], 0),
    ],
)
def test_exit_status(given: str, args: list[str], status: int) -> None:
    assert run(*args, stdin=given).status == status


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    for args, message in (
        ((str(tmp_path / "none"),), "there is no file"),
        ((str(tmp_path),), "is a folder"),
        (("-", "--svg", str(tmp_path / "no" / "x.svg")), "--svg"),
    ):
        result = run(*args, stdin=LOG)
        assert result.status == 2, result
        assert message in result.err, result
        assert not result.out
