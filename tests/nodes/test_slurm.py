"""Tests of `fleet run --slurm` with a real Slurm from Debian: many nodes here, each a recorded machine."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodes.machines import node, start_process, write_script
from nodes.real_slurm import list_missing_programs, slurm
from processes import find_processes_of
from recorded import HOSTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodes.real_slurm import Slurm

pytestmark = [
    pytest.mark.few(0),
    pytest.mark.skipif(bool(list_missing_programs()), reason=f"there is no {list_missing_programs()}"),
    pytest.mark.timeout(240),
]

RECORDED = sorted(path.parent.name for path in HOSTS.glob("*/host.json"))[:25]
BAD = {
    "b1": "hanging",
    "b2": "lying",
    "b3": "flooding",
    "b4": "failing",
    "b5": "dying",
    "killed": "hanging",
    "power": "hanging",
    "drained": "failing",
}
STATES = {
    "b1": "timeout",
    "b2": "failed",
    "b3": "failed",
    "b4": "failed",
    "b5": "failed",
    "killed": "failed",
    "power": "lost",
    "drained": "lost",
    "absent": "lost",
}
KINDS = {f"n{number:02d}": kind for number, kind in enumerate(RECORDED, 1)} | BAD


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with slurm(folder / "slurm", list(KINDS), absent=["absent"]) as slurm_cluster:
        yield slurm_cluster


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """Return a stand-in for the Python of the nodes, which gives each node its own recorded machine."""
    for name, kind in KINDS.items():
        node(tmp_path, name, kind)
    path = tmp_path / "python"
    nodes = shlex.quote(str(tmp_path / "nodes"))
    write_script(path, f'exec {nodes}/"$SLURMD_NODENAME"/python3 "$@"')
    return path


def environment(cluster: Slurm, tmp_path: Path) -> dict[str, str]:
    return cluster.env | {"TFDOCTOR_TEST": str(tmp_path), "TMPDIR": make_temporary_folder(tmp_path)}


def make_temporary_folder(tmp_path: Path) -> str:
    """Create the folder in which tfdoctor packs its file and the nodes unpack it."""
    (tmp_path / "tmp").mkdir()
    return str(tmp_path / "tmp")


def assert_nothing_left(cluster: Slurm, tmp_path: Path, *, folders: int = 0) -> None:
    """Wait until no job, process or folder is left.

    `folders` is the number of nodes that were killed at once, whose folders may stay.
    """
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        jobs = cluster.run_command("squeue", "-h", "-o", "%A %T %N").strip()
        processes = find_processes_of(tmp_path)
        remaining = list((tmp_path / "tmp").iterdir())
        if not (jobs or processes or len(remaining) > folders):
            return
        time.sleep(0.3)
    pytest.fail(f"jobs {jobs!r}, processes {processes}, folders {remaining}")


def wait_for_task(name: str, tmp_path: Path) -> int:
    """Return the process id of the shell that Slurm started on this node."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        for number in find_processes_of(tmp_path):
            with contextlib.suppress(OSError):
                process_folder = Path(f"/proc/{number}")
                is_on_node = f"SLURMD_NODENAME={name}\0".encode() in (process_folder / "environ").read_bytes()
                if is_on_node and (process_folder / "cmdline").read_bytes().startswith(b"/bin/sh\0-c\0d="):
                    return number
        time.sleep(0.2)
    pytest.fail(f"nothing runs on {name}")


def test_bad_nodes_do_not_affect_the_others(cluster: Slurm, tmp_path: Path, runner: Path) -> None:
    cluster.run_command("scontrol", "update", "nodename=drained", "state=drain", "reason=a fan is broken")
    process = start_process(
        environment(cluster, tmp_path), tmp_path, runner, "--slurm", "gpu", "--timeout", "40"
    )
    wait_for_task("power", tmp_path)
    wait_for_task("killed", tmp_path)
    cluster.kill_tasks("killed")
    cluster.kill_node("power")
    stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    report: dict[str, Any] = json.loads(stdout)
    states = {entry["host"]: entry["status"] for entry in report["hosts"]}
    reasons = {entry["host"]: entry["why"] for entry in report["hosts"]}
    assert {name: states[name] for name in STATES} == STATES, reasons
    assert {states[name] for name in KINDS if name not in STATES} <= {"ok", "found"}, reasons
    assert len(states) == len(KINDS) + 1
    assert "a fan is broken" in reasons["drained"]
    assert "Slurm has it as" in reasons["absent"]
    assert "Slurm has it as" in reasons["power"]
    assert "it is broken" in reasons["b4"]
    assert "no answer within 40 s" in reasons["b1"]
    assert_nothing_left(cluster, tmp_path, folders=2)


def test_ctrl_c_leaves_no_job(cluster: Slurm, tmp_path: Path, runner: Path) -> None:
    process = start_process(environment(cluster, tmp_path), tmp_path, runner, "--slurm", "gpu")
    wait_for_task("b1", tmp_path)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=40)
    assert process.returncode == 130, stderr
    assert "--resume asks the others" in stderr
    assert_nothing_left(cluster, tmp_path)


def test_inside_an_allocation(cluster: Slurm, tmp_path: Path, runner: Path) -> None:
    command = ["salloc", "--quiet", "--nodelist=n01,b1", sys.executable, "-m", "tfdoctor"]
    command += ["fleet", "run", str(tmp_path / "out"), "--runner", str(runner), "--json", "--slurm", "job"]
    result = subprocess.run(
        [*command, "--timeout", "8"],
        env=environment(cluster, tmp_path),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    report = json.loads(result.stdout)
    states = {entry["host"]: entry["status"] for entry in report["hosts"]}
    assert states == {"b1": "timeout", "n01": states["n01"]}
    assert states["n01"] in ("ok", "found")
    assert_nothing_left(cluster, tmp_path)
