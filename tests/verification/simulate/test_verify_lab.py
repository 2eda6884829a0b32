"""`tfdoctor verify` of real TensorFlow on two software GPUs: every stage passes without a fault and one fails with it.

With TFDOCTOR_LAB=1 two faults of 2.18; with TFDOCTOR_LAB_FULL=1 every fault of two more releases, which takes hours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cli.planner import validate
from lab import environments
from lab.softgpu import build_libraries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler"),
]
FAULTS: dict[str, tuple[str, str]] = {
    "STANDIN_FAULT=oom:8M": ("compute", "oom"),
    "STANDIN_FAULT=held:81900M": ("compute", "gpu-busy-other-process"),
    "STANDIN_FAULT=module:218": ("compute", "gpu-too-new"),
    "STANDIN_CUDA=12000": ("compute", "driver-too-old"),  # the PTX is newer than this driver
    "STANDIN_FAULT=cublas:3": ("compute", "cublas-init-failed"),
    "STANDIN_FAULT=cudnn-version:{older}": ("cudnn", "cudnn-version-mismatch"),
    "STANDIN_FAULT=cudnn:{uninitialized}": ("cudnn", "cudnn-init-failed"),
    "STANDIN_FAULT=broken:214/3": ("compute", "inconclusive"),  # an ECC error
    "STANDIN_FAULT=broken:999/3": ("compute", "inconclusive"),  # the GPU fell off the bus
    "STANDIN_FAULT=broken:700/3": ("compute", "inconclusive"),  # an illegal address
    "STANDIN_FAULT=hang:3": ("compute", "inconclusive"),
    "STANDIN_FAULT=nccl:1": ("nccl", "nccl-failure"),
}
RELEASE_FAULTS = {
    "2.15": {"older": "8500", "uninitialized": "1", "STANDIN_CC=37": ("compute", "gpu-too-old")},
    "2.20": {"older": "90100", "uninitialized": "1001", "STANDIN_CC=120": ("compute", "gpu-too-new")},
}
"""cuDNN's version and status numbers, and a GPU for which the wheel has no code."""
QUICK = ("STANDIN_FAULT=cublas:3", "STANDIN_FAULT=broken:214/3")


def verify(python: Path, folder: Path, fault: str, *arguments: str) -> dict[str, Any]:
    """Return the result of `verify` with a fault: "NAME=VALUE", a variable of the software GPU."""
    name, _, value = fault.partition("=")
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "LD_PRELOAD": str(folder / "libnccl.so.2"),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_CC": "90",
        "STANDIN_GPUS": "2",
        **({name: value} if name else {}),
    }
    command = [sys.executable, "-m", "tfdoctor", "verify", "--json", "--python", str(python), *arguments]
    process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1500, check=False)
    assert process.stdout, process.stderr
    answer: dict[str, Any] = json.loads(process.stdout)
    validate(answer, "verify")
    assert process.returncode == (1 if any(stage["status"] == "failed" for stage in answer["stages"]) else 0)
    return answer


def find_failure(answer: dict[str, Any]) -> tuple[str, str]:
    """Return the failed stage and the cause; there must be no other failure."""
    failed = [entry["name"] for entry in answer["stages"] if entry["status"] == "failed"]
    assert len(failed) == 1, json.dumps(answer, indent=1)
    errors = {entry["cause"] for entry in answer["findings"] if entry["severity"] == "error"}
    assert errors == {answer["verdict"]["cause"]}, json.dumps(answer["findings"], indent=1)
    return failed[0], answer["verdict"]["cause"]


@pytest.mark.timeout(900)
def test_two_faults(tensorflow_python: Path, tmp_path: Path) -> None:
    script = "import importlib.metadata as m; print(m.version('tensorflow'))"
    version = subprocess.run([tensorflow_python, "-c", script], capture_output=True, text=True, check=False)
    if not version.stdout.startswith("2.18."):
        pytest.skip("2.18 is tried here")
    folder = build_libraries(tmp_path / "gpu", version.stdout.strip(), ("-O1",))
    for fault in QUICK:
        answer = verify(tensorflow_python, folder, fault)
        assert find_failure(answer) == FAULTS[fault], fault
        detail = next(stage["detail"] for stage in answer["stages"] if stage["status"] == "failed")
        assert "GPU:0" in detail


@pytest.fixture(scope="module", params=["2.15", "2.20"])
def release(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, Path]]:
    """Yield the minor version of a release, its Python, and the folder of the software GPU."""
    if not environments.is_full_run():
        pytest.skip("hours: TFDOCTOR_LAB_FULL=1")
    folder = build_libraries(
        tmp_path_factory.mktemp("gpu"), f"{request.param}.{1 if request.param == '2.15' else 0}"
    )
    with environments.provide_environment(request.param, tmp_path_factory.mktemp("tf") / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        yield request.param, python, folder


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", [*FAULTS, "capability"])
def test_fault_fails_at_its_stage(release: tuple[str, Path, Path], fault: str) -> None:
    name, python, folder = release
    parameters: dict[str, Any] = RELEASE_FAULTS[name]
    if fault == "capability":
        fault = next(key for key in parameters if "=" in key)
    variable = fault.format(**parameters) if "{" in fault else fault
    expected: tuple[str, str] = parameters[fault] if fault in parameters else FAULTS[fault]
    arguments = ("--timeout", "150") if "hang" in fault else ()
    if expected[0] != "compute":  # skip the compute stage, which passes and takes minutes
        arguments = ("--stages", f"visible,{expected[0]}")
    answer = verify(python, folder, variable, *arguments)
    assert find_failure(answer) == expected


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", ["", "STANDIN_FAULT=slow:5"])
def test_every_stage_passes_without_a_fault(release: tuple[str, Path, Path], fault: str) -> None:
    _, python, folder = release
    answer = verify(python, folder, fault)
    assert {stage["status"] for stage in answer["stages"]} == {"passed"}
    assert answer["gpus"] == {"expected": 2, "visible": 2, "computed": 2}
