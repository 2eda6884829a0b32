"""The result of `placement`, compared with the devices that TensorFlow itself reports for its operations.

It uses two software GPUs and takes minutes; TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.softgpu import build_libraries
from logs.placement.test_placement import read
from verification.simulate.test_compute_lab import run

if TYPE_CHECKING:
    from pathlib import Path

NEVER_RUN = {"Placeholder", "VarIsInitializedOp", "ReadVariableOp"}
"""Nodes of the session's graph that are logged and never run: the session replaces or removes them."""


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(("release", "capability"), [("2.20.0", "90"), ("2.15.1", "80"), ("1.15.5", "70")])
def test_placement_matches_tensorflow(tmp_path: Path, release: str, capability: str) -> None:
    folder, file = build_libraries(tmp_path / "gpu", release), tmp_path / "placed.json"
    with environments.provide_environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        for mode in ("session", "eager", "refused"):
            log = run(
                python, folder, "software_placement.py", capability, mode, str(file), errors=subprocess.STDOUT
            )
            log_placement = read(log).data
            logged = Counter({(row.op, row.device): row.count for row in log_placement.op_counts})
            placed = Counter(
                (op, device.rpartition("device:")[2]) for op, device in json.loads(file.read_text())
            )
            assert not placed - logged, mode
            if mode == "session":
                assert {op for op, _ in logged - placed} <= NEVER_RUN
                assert ("AsString", "CPU:0") in placed
            if mode == "eager":
                assert {op for op, _ in logged - placed} <= {"_EagerConst"}
            assert [(item.op, item.requested_device, item.reason) for item in log_placement.refusals] == (
                [("AsString", "GPU:0", "no-kernel")] if mode == "refused" else []
            )
            assert [
                (item.device, item.compute_capability) for item in log_placement.devices if item.kind == "GPU"
            ] == [(f"GPU:{n}", f"{int(capability) / 10}") for n in (0, 1)]
