"""Real TensorFlow computes and trains a small CNN and a small transformer on two software GPUs.

It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lab import environments
from lab.softgpu import build_libraries

LAB = Path(__file__).resolve().parents[2] / "lab"
STEPS_BY_SCRIPT = {"software_cnn.py": 6, "software_transformer.py": 8}


def run(
    python: Path, folder: Path, script: str, capability: str, *arguments: str, errors: int = subprocess.PIPE
) -> str:
    """Return what a script of tests/lab prints on two GPUs; it must succeed. `errors` may add its log (STDOUT)."""
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CC": capability,
        "STANDIN_GPUS": "2",
    }
    command = [python, LAB / script, *arguments]
    process = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=800, check=False
    )
    assert process.returncode == 0, process.stdout + (process.stderr or "")[-3000:]
    return process.stdout


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(("release", "capability"), [("2.15.1", "90"), ("2.20.0", "90"), ("1.15.5", "70")])
def test_training_on_two_gpus(tmp_path: Path, release: str, capability: str) -> None:
    folder = build_libraries(tmp_path / "gpu", release)
    with environments.provide_environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        for script, steps in STEPS_BY_SCRIPT.items():
            output = run(python, folder, script, capability)
            assert output.splitlines()[-1] == f"{release}: 2 GPUs, 0 wrong"
            assert output.count(" right, loss ") == steps


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(("release", "operations"), [("1.13.2", 0), ("1.14.0", 267), ("1.15.5", 271)])
def test_tensorflow_1_computes(tmp_path: Path, release: str, operations: int) -> None:
    """The CUDA runtime inside the wheel launches the kernels. `operations` is their number in the sweep; 0 skips it."""
    folder = build_libraries(tmp_path / "gpu", release)
    with environments.provide_environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        output = run(python, folder, "software_basic.py", "70")
        assert output.splitlines()[-1] == f"{release}: 2 GPUs, 0 wrong"
        assert re.findall(r"^(\w+) right$", output, re.M) == ["product", "convolution", "copy"]
        if operations:
            last_line = run(python, folder, "software_ops.py", "70").splitlines()[-1]
            assert last_line.startswith(f"{operations} right, 0 wrong, 0 refused, ")
