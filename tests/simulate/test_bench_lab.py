"""`tfdoctor bench` with real TensorFlow on two cards that are software: no time is shown as a card's.

It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.planner import validate
from lab import environments
from lab.softgpu import libraries

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
def test_two_software_gpus_are_timed_and_are_no_cards(tmp_path: Path) -> None:
    folder = libraries(tmp_path / "gpu", "2.15.1")
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CC": "90",
        "TF_CUDNN_USE_FRONTEND": "0",
        "STANDIN_GPUS": "2",
    }
    with environments.environment("2.15", tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        command = [
            sys.executable,
            "-m",
            "tfdoctor",
            "bench",
            "--json",
            "--python",
            str(python),
            "--time",
            "20",
        ]
        work = ("--workload", "matmul,train,copy,allreduce")
        done = subprocess.run(
            [*command, *work], env=env, capture_output=True, text=True, timeout=1200, check=False
        )
    answer = json.loads(done.stdout)
    validate(answer, "bench")
    assert [one["software"] for one in answer["devices"]] == [False, True, True]
    timed = [one for one in answer["runs"] if one["seconds"]]
    on_gpus = [one for one in timed if any(name.startswith("GPU") for name in one["devices"])]
    assert {one["workload"] for one in on_gpus} == {"matmul", "train", "copy", "allreduce"}
    assert ["GPU:0", "GPU:1"] in [one["devices"] for one in on_gpus if one["strategy"] == "towers"]
    assert all(one["software"] for one in on_gpus)
    assert not any(one["software"] for one in timed if one not in on_gpus)
    assert not answer["crossover"]
    assert all(one["peak_gflops"] is None for one in answer["devices"])
    assert "are no card" in answer["summary"]
