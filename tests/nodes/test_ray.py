"""`fleet run --ray` with a real Ray of several local nodes. Runs where Ray is installed: it is no light dependency."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodes.machines import node
from processes import processes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("ray")
pytestmark = [pytest.mark.few(0), pytest.mark.filterwarnings("ignore")]

KINDS = ["healthy-two-gpus", "kernel-updated", "lying", "flooding", "hanging", "hanging"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """The address, and kind-number → the process of its node."""
    from ray.cluster_utils import Cluster

    path = os.environ["PATH"]
    made, nodes = Cluster(), {}
    try:
        for number, kind in enumerate(KINDS):
            place = node(tmp_path, f"n{number}", kind)
            os.environ["PATH"] = f"{place}{os.pathsep}{path}"
            words = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
            one = made.add_node(**words)
            nodes[one.node_id] = one
        yield made.address, nodes
    finally:
        os.environ["PATH"] = path
        made.shutdown()


@pytest.mark.timeout(600)
def test_one_killed_one_hanging_one_lying_one_flooding(
    cluster: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    address, nodes = cluster
    out = tmp_path / "out"
    words = ["fleet", "run", str(out), "--ray", address, "--deadline", "25", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 200
    while len(list(out.glob("*.json"))) < 3 and time.monotonic() < until:
        time.sleep(0.1)
    victim = list(nodes.values())[-1]
    for of_type in ("raylet",):
        for one in victim.all_processes[of_type]:
            os.kill(one.process.pid, signal.SIGKILL)
    printed, said = process.communicate(timeout=250)
    assert process.returncode == 1, said
    assert printed, said
    told: dict[str, Any] = json.loads(printed)
    assert sorted(one["status"] for one in told["hosts"]) == [
        "failed",
        "failed",
        "found",
        "lost",
        "ok",
        "timeout",
    ], said
    assert "Traceback" not in said
    until = time.monotonic() + 10
    while (left := ours(tmp_path)) and time.monotonic() < until:
        time.sleep(0.2)
    assert left == []


def ours(folder: Path) -> list[bytes]:
    """Command lines of what tfdoctor started on the nodes; Ray's own processes have the folder in PATH, too."""
    found = []
    for number in processes_of(folder):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{number}/cmdline").read_bytes()
            if b"tfdoctor.pyz" in words or words == b"sleep\x00600\x00":
                found.append(words)
    return found


def test_a_cluster_that_is_not_there_is_told(tmp_path: Path) -> None:
    words = ["fleet", "run", str(tmp_path / "out"), "--ray", "127.0.0.1:9"]
    ran = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *words], capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 3
    assert "no Ray cluster answers at 127.0.0.1:9" in ran.stderr
    assert "Traceback" not in ran.stderr
