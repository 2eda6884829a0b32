"""Real TensorFlow computes and trains, a small CNN and a small transformer, on two cards that are software.

It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lab import environments
from lab.softgpu import libraries

LAB = Path(__file__).resolve().parents[1] / "lab"
TRAINED = {"software_cnn.py": 6, "software_transformer.py": 8}


def run(
    python: Path, folder: Path, script: str, capability: str, *arguments: str, errors: int = subprocess.PIPE
) -> str:
    """What a script of the lab prints on two cards; it has to be content. With STDOUT as `errors` its log, too."""
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CC": capability,
        "STANDIN_GPUS": "2",
    }
    command = [python, LAB / script, *arguments]
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + (done.stderr or "")[-3000:]
    return done.stdout


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.list_everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(("release", "capability"), [("2.15.1", "90"), ("2.20.0", "90"), ("1.15.5", "70")])
def test_what_trains(tmp_path: Path, release: str, capability: str) -> None:
    folder = libraries(tmp_path / "gpu", release)
    with environments.environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        for script, steps in TRAINED.items():
            said = run(python, folder, script, capability)
            assert said.splitlines()[-1] == f"{release}: 2 GPUs, 0 wrong"
            assert said.count(" right, loss ") == steps


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.list_everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(("release", "operations"), [("1.13.2", 0), ("1.14.0", 267), ("1.15.5", 271)])
def test_what_tensorflow_1_computes(tmp_path: Path, release: str, operations: int) -> None:
    """NVIDIA's own runtime, which is inside the wheel, launches its kernels. `operations`: of the sweep; 0: not run."""
    folder = libraries(tmp_path / "gpu", release)
    with environments.environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        said = run(python, folder, "software_basic.py", "70")
        assert said.splitlines()[-1] == f"{release}: 2 GPUs, 0 wrong"
        assert re.findall(r"^(\w+) right$", said, re.M) == ["product", "convolution", "copy"]
        if operations:
            last = run(python, folder, "software_ops.py", "70").splitlines()[-1]
            assert last.startswith(f"{operations} right, 0 wrong, 0 refused, ")
