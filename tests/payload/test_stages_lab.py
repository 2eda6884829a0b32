"""payload/stages.py with a real TensorFlow, on the CPU and on a stand-in driver that lists GPUs and computes nothing.

Opt-in, like tests/test_agreement.py.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lab import environments, standins
from lab.situations import Bench, inspect_target
from tfdoctor.system import LiveSystem
from tfdoctor.system.payloads import MARKER, run_payload
from tfdoctor.verification.stages import Limits, PayloadResults, parse_payload_results

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not environments.is_lab_enabled(),
        reason="set TFDOCTOR_LAB=1 to run real TensorFlow wheels (gigabytes, minutes)",
    ),
]
LIMITS = Limits(300, 120, 120, 120, 120)


def run_stages(
    python: Path, home: Path, device: str, env: dict[str, str]
) -> tuple[PayloadResults, list[dict[str, Any]]]:
    """Return the answer and its lines, and check that nothing is left in the home folder."""
    argument = json.dumps({"device": device, "limits": LIMITS.as_json()})
    child = {"HOME": str(home), **env}
    _, result = run_payload(LiveSystem(), str(python), "stages", [argument], timeout=900, env=child)
    assert not list(home.iterdir())
    lines = [line.removeprefix(MARKER) for line in result.stdout.splitlines() if line.startswith(MARKER)]
    return parse_payload_results(result, LIMITS), [json.loads(line) for line in lines]


def compute_detail(answer: PayloadResults) -> str:
    stage = answer.find_stage("compute")
    assert stage is not None
    return stage.detail


def test_cpu_computes_correctly(tensorflow_python: Path, tmp_path: Path, standin_cache: Path) -> None:
    target = inspect_target(tensorflow_python, standin_cache)
    env = {}
    if target.hard_linked:  # then the import fails without the libraries
        bench = Bench(target, tmp_path / "bench", standin_cache)
        bench.add_everything()
        env = {"LD_LIBRARY_PATH": os.pathsep.join(bench.path)}
    home = tmp_path / "home"
    home.mkdir()
    answer, lines = run_stages(tensorflow_python, home, "CPU", env)
    assert {stage.name: stage.status for stage in answer.stages} == {
        "import": "passed",
        "visible": "passed",
        "compute": "passed",
        "cudnn": "passed",
        "nccl": "skipped",
    }, answer.first_error
    products = [line for line in lines if line.get("stage") == "compute" and "ok" in line]
    assert "float32" in [line["dtype"] for line in products]
    # A correct result stays far enough below the limit to be distinguished from one with TF32's errors.
    assert all(0 <= line["deviation"] <= line["limit"] < 5 for line in products)


def test_driver_that_computes_nothing_is_detected(
    tensorflow_python: Path, tmp_path: Path, standin_cache: Path
) -> None:
    target = inspect_target(tensorflow_python, standin_cache)
    if target.hard_linked:
        pytest.skip("its libraries are linked: a stand-in of them ends the import")
    # Stand-in libraries that answer until the devices are created.
    bench = Bench(replace(target, symbols=standins.RUNTIME), tmp_path / "bench", standin_cache)
    bench.add_everything()
    home = tmp_path / "home"
    home.mkdir()
    env = {
        **bench.environment(),
        "STANDIN_GPUS": "2",
        "STANDIN_CC": "70" if target.version < (2, 4) else "80",
    }
    answer, _ = run_stages(tensorflow_python, home, "GPU", env)
    assert len(answer.device_names) == 2
    assert answer.get_status("compute") == "failed"
    assert answer.error_by_gpu
    assert answer.count_correct_gpus() == 0
    assert answer.first_error
    # The error is named, whether TensorFlow raises it or aborts.
    assert re.search(r"CUDA_ERROR_NOT_SUPPORTED|CUBLAS_STATUS|CUDA error", compute_detail(answer))
