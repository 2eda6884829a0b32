"""`tfdoctor bench` on the command line and with a real TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.planner import call_tfdoctor, validate
from lab import environments

if TYPE_CHECKING:
    from pathlib import Path


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tfdoctor", "bench", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--workload", "sorting"), "--workload: there is no `sorting`"),
        (("a b;c",), "a b;c"),
        (("--dtype", "int8"), "--dtype: there is no `int8`"),
        (("--devices", "TPU:0"), "--devices: expected names"),
        (("--sizes", "64"), "--sizes needs one --workload"),
        (("--workload", "matmul", "--sizes", "0"), "--sizes: expected whole numbers"),
        (("--duration", "nan"), "expected a number of seconds"),
        (("--png",), "--png needs -o"),
        (("--compare", "/nowhere/old.json"), "cannot be read"),
    ],
)
def test_invalid_request_is_refused(args: tuple[str, ...], said: str) -> None:
    result = call_tfdoctor("bench", *args)
    assert result.status == 2
    assert said in " ".join(result.err.split())


@pytest.mark.tensorflow
def test_complete_run_on_two_logical_cpus(tensorflow_python: Path, tmp_path: Path) -> None:
    nvidia_wheels = tensorflow_python.parents[1].glob("lib/python*/site-packages/nvidia")
    if any(nvidia_wheels) and not environments.is_full_run():
        pytest.skip("on the CPU they change nothing: TFDOCTOR_LAB_FULL=1")
    first_time, second_time = ("20", "6") if environments.is_full_run() else ("12", "4")
    devices = ("--devices", "CPU:0,CPU:1")
    result = run(
        "--python", str(tensorflow_python), *devices, "--duration", first_time, "--json", "-o", str(tmp_path)
    )
    answer = json.loads(result.stdout)
    validate(answer, "bench")
    assert result.returncode == 0
    timed_workloads = {entry["workload"] for entry in answer["runs"] if entry["seconds"]}
    assert timed_workloads == {"matmul", "conv", "train", "copy", "allreduce"}
    assert {entry["strategy"] for entry in answer["scaling"]} >= {"towers"}
    towers = next(entry for entry in answer["scaling"] if entry["strategy"] == "towers")
    skipped_parts = {
        entry["part"]
        for entry in answer["runs"]
        if entry["model"] == towers["model"] and entry["left_out"] == "the time is used up"
    }
    needs = {
        "compute": {"compute"},
        "allreduce": {"allreduce"},
        "idle": {"compute", "allreduce"},
        "input": {"fed"},
    }
    assert {
        name
        for name, seconds in towers["parts"].items()
        if seconds is None and not needs[name] & skipped_parts
    } == set()
    assert all(entry["compile"]["what"] == ["graph"] for entry in answer["runs"] if entry["first"])
    assert json.loads((tmp_path / "bench.json").read_text("utf-8")) == answer
    second_arguments = (
        "--workload",
        "matmul,conv,copy",
        "--duration",
        second_time,
        "--xla",
        "--compare",
        str(tmp_path / "bench.json"),
    )
    compared = json.loads(
        run("--python", str(tensorflow_python), "--json", *devices, *second_arguments).stdout
    )
    compiled = [entry for entry in compared["runs"] if entry["xla"]]
    assert compiled
    assert all(entry["seconds"] is None or "xla" in entry["compile"]["what"] for entry in compiled)
    assert compared["comparison"]["verdict"] in ("same", "slower", "faster", "disturbed")
