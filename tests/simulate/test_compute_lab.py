"""Real TensorFlow trains a small CNN on two cards that are software, and gets what the CPU gets.

It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import environments
from lab.softgpu import libraries

TRAINS = Path(__file__).resolve().parents[1] / "lab" / "software_cnn.py"


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
def test_a_small_cnn_trains(tmp_path: Path) -> None:
    folder = libraries(tmp_path / "gpu", "2.15.1")
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CC": "90",
        "STANDIN_GPUS": "2",
    }
    with environments.environment("2.15", tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        done = subprocess.run(
            [python, TRAINS], env=env, capture_output=True, text=True, timeout=1200, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "2.15.1: 2 GPUs, 0 wrong"
    assert done.stdout.count(" right, loss ") == 6
