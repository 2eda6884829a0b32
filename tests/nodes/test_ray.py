"""Tests of `fleet run --ray` with a real Ray of several local nodes, if Ray (a large dependency) is installed."""

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
from processes import find_processes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("ray")
pytestmark = [pytest.mark.few(0), pytest.mark.filterwarnings("ignore")]

KINDS = ["healthy-two-gpus", "kernel-updated", "lying", "flooding", "hanging", "hanging"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the address of the cluster and its nodes by id."""
    from ray.cluster_utils import Cluster

    path = os.environ["PATH"]
    ray_cluster, nodes = Cluster(), {}
    try:
        for number, kind in enumerate(KINDS):
            node_folder = node(tmp_path, f"n{number}", kind)
            os.environ["PATH"] = f"{node_folder}{os.pathsep}{path}"
            options = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
            ray_node = ray_cluster.add_node(**options)
            nodes[ray_node.node_id] = ray_node
        yield ray_cluster.address, nodes
    finally:
        os.environ["PATH"] = path
        ray_cluster.shutdown()


@pytest.mark.timeout(600)
def test_bad_nodes_do_not_affect_the_others(cluster: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    address, nodes = cluster
    out = tmp_path / "out"
    arguments = ["fleet", "run", str(out), "--ray", address, "--timeout", "25", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 200
    while len(list(out.glob("*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    victim = list(nodes.values())[-1]
    for process_type in ("raylet",):
        for item in victim.all_processes[process_type]:
            os.kill(item.process.pid, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=250)
    assert process.returncode == 1, stderr
    assert stdout, stderr
    report: dict[str, Any] = json.loads(stdout)
    assert sorted(item["status"] for item in report["hosts"]) == [
        "failed",
        "failed",
        "found",
        "lost",
        "ok",
        "timeout",
    ], stderr
    assert "Traceback" not in stderr
    deadline = time.monotonic() + 10
    while (commands := list_own_commands(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert commands == []


def list_own_commands(folder: Path) -> list[bytes]:
    """Return the command lines of tfdoctor's processes on the nodes; Ray's own also have the folder in PATH."""
    commands = []
    for number in find_processes_of(folder):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{number}/cmdline").read_bytes()
            if b"tfdoctor.pyz" in command or command == b"sleep\x00600\x00":
                commands.append(command)
    return commands


def test_missing_cluster_is_reported(tmp_path: Path) -> None:
    arguments = ["fleet", "run", str(tmp_path / "out"), "--ray", "127.0.0.1:9"]
    result = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 3
    assert "no Ray cluster answers at 127.0.0.1:9" in result.stderr
    assert "Traceback" not in result.stderr
