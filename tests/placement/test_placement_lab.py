"""What `placement` reads in TensorFlow's log, beside TensorFlow's own word for where each operation went.

With two GPUs, which are software. It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.softgpu import libraries
from placement.test_placement import read
from simulate.test_compute_lab import run

if TYPE_CHECKING:
    from pathlib import Path

RUN_NEVER = {"Placeholder", "VarIsInitializedOp", "ReadVariableOp"}
"""Nodes of the session's graph that are logged; what the session runs has others in place of them, or none."""


@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.list_everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize(("release", "capability"), [("2.20.0", "90"), ("2.15.1", "80"), ("1.15.5", "70")])
def test_where_operations_went(tmp_path: Path, release: str, capability: str) -> None:
    folder, file = libraries(tmp_path / "gpu", release), tmp_path / "placed.json"
    with environments.environment(release.rpartition(".")[0], tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        for how in ("session", "eager", "refused"):
            log = run(
                python, folder, "software_placement.py", capability, how, str(file), errors=subprocess.STDOUT
            )
            found = read(log).found
            read_there = Counter({(row.op, row.device): row.count for row in found.ops})
            placed = Counter(
                (op, device.rpartition("device:")[2]) for op, device in json.loads(file.read_text())
            )
            assert not placed - read_there, how
            if how == "session":
                assert {op for op, _ in read_there - placed} <= RUN_NEVER
                assert ("AsString", "CPU:0") in placed
            if how == "eager":
                assert {op for op, _ in read_there - placed} <= {"_EagerConst"}
            assert [(one.op, one.wanted, one.reason) for one in found.refused] == (
                [("AsString", "GPU:0", "no-kernel")] if how == "refused" else []
            )
            assert [(one.device, one.compute_capability) for one in found.devices if one.kind == "GPU"] == [
                (f"GPU:{n}", f"{int(capability) / 10}") for n in (0, 1)
            ]
