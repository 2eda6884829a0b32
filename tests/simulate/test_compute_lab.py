"""Real TensorFlow trains a small CNN and a small transformer on two cards that are software, as on the CPU.

It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import environments
from lab.softgpu import libraries

LAB = Path(__file__).resolve().parents[1] / "lab"


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(
    ("release", "trained"),
    [
        ("2.15.1", {"software_cnn.py": 6, "software_transformer.py": 8}),
        ("2.20.0", {"software_cnn.py": 6, "software_transformer.py": 8}),
    ],
)
def test_what_trains(tmp_path: Path, release: str, trained: dict[str, int]) -> None:
    folder = libraries(tmp_path / "gpu", release)
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CC": "90",
        "STANDIN_GPUS": "2",
    }
    with environments.environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        for script, steps in trained.items():
            done = subprocess.run(
                [python, LAB / script], env=env, capture_output=True, text=True, timeout=800, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr[-3000:]
            assert done.stdout.splitlines()[-1] == f"{release}: 2 GPUs, 0 wrong"
            assert done.stdout.count(" right, loss ") == steps
