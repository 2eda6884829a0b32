"""`tfdoctor bench` as it is typed, and with a real TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.planner import validate
from lab import environments

if TYPE_CHECKING:
    from pathlib import Path


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tfdoctor", "bench", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--workload", "sorting"), "--workload: there is no `sorting`"),
        (("a b;c",), "a b;c"),
        (("--dtype", "int8"), "--dtype: there is no `int8`"),
        (("--devices", "TPU:0"), "--devices: expected names"),
        (("--sizes", "64"), "--sizes needs one --workload"),
        (("--workload", "matmul", "--sizes", "0"), "--sizes: expected whole numbers"),
        (("--time", "nan"), "expected a number of seconds"),
        (("--png",), "--png needs -o"),
        (("--compare", "/nowhere/old.json"), "cannot be read"),
    ],
)
def test_a_wrong_wish_is_said(args: tuple[str, ...], said: str) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.tensorflow
def test_all_of_it_on_parts_of_a_cpu(tensorflow_python: Path, tmp_path: Path) -> None:
    beside = tensorflow_python.parents[1].glob("lib/python*/site-packages/nvidia")
    if any(beside) and not environments.list_everything():
        pytest.skip("on the CPU they change nothing: TFDOCTOR_LAB_FULL=1")
    long, short = ("20", "6") if environments.list_everything() else ("12", "4")
    devices = ("--devices", "CPU:0,CPU:1")
    done = run("--python", str(tensorflow_python), *devices, "--time", long, "--json", "-o", str(tmp_path))
    answer = json.loads(done.stdout)
    validate(answer, "bench")
    assert done.returncode == 0
    timed = {one["workload"] for one in answer["runs"] if one["seconds"]}
    assert timed == {"matmul", "conv", "train", "copy", "allreduce"}
    assert {one["strategy"] for one in answer["scaling"]} >= {"towers"}
    towers = next(one for one in answer["scaling"] if one["strategy"] == "towers")
    late = {
        one["part"]
        for one in answer["runs"]
        if one["model"] == towers["model"] and one["left_out"] == "the time is used up"
    }
    needs = {
        "compute": {"compute"},
        "allreduce": {"allreduce"},
        "idle": {"compute", "allreduce"},
        "input": {"fed"},
    }
    assert {
        name for name, seconds in towers["parts"].items() if seconds is None and not needs[name] & late
    } == set()
    assert all(one["compile"]["what"] == ["graph"] for one in answer["runs"] if one["first"])
    assert json.loads((tmp_path / "bench.json").read_text("utf-8")) == answer
    again = (
        "--workload",
        "matmul,conv,copy",
        "--time",
        short,
        "--xla",
        "--compare",
        str(tmp_path / "bench.json"),
    )
    compared = json.loads(run("--python", str(tensorflow_python), "--json", *devices, *again).stdout)
    compiled = [one for one in compared["runs"] if one["xla"]]
    assert compiled
    assert all(one["seconds"] is None or "xla" in one["compile"]["what"] for one in compiled)
    assert compared["comparison"]["verdict"] in ("same", "slower", "faster", "disturbed")
