"""`fleet run --slurm` with a real Slurm from Debian's packages: many nodes on this machine, each a recorded machine."""

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

from nodes.machines import node, program, start_process
from nodes.real_slurm import make_missing, slurm
from processes import processes_of
from recorded import HOSTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodes.real_slurm import Slurm

pytestmark = [
    pytest.mark.few(0),
    pytest.mark.skipif(bool(make_missing()), reason=f"there is no {make_missing()}"),
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
    with slurm(folder / "slurm", list(KINDS), absent=["absent"]) as made:
        yield made


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """What stands in for the nodes' Python: each node is another machine."""
    for name, kind in KINDS.items():
        node(tmp_path, name, kind)
    path = tmp_path / "python"
    nodes = shlex.quote(str(tmp_path / "nodes"))
    program(path, f'exec {nodes}/"$SLURMD_NODENAME"/python3 "$@"')
    return path


def environment(cluster: Slurm, tmp_path: Path) -> dict[str, str]:
    return cluster.env | {"TFDOCTOR_TEST": str(tmp_path), "TMPDIR": temporary(tmp_path)}


def temporary(tmp_path: Path) -> str:
    """Where the nodes unpack the file, and we pack it."""
    (tmp_path / "tmp").mkdir()
    return str(tmp_path / "tmp")


def assert_nothing_stays(cluster: Slurm, tmp_path: Path, *, folders: int = 0) -> None:
    """No job, no process, no folder; folders: of nodes on which everything was killed at once."""
    until = time.monotonic() + 15
    while time.monotonic() < until:
        jobs = cluster.make_output("squeue", "-h", "-o", "%A %T %N").strip()
        left = processes_of(tmp_path)
        kept = list((tmp_path / "tmp").iterdir())
        if not (jobs or left or len(kept) > folders):
            return
        time.sleep(0.3)
    pytest.fail(f"jobs {jobs!r}, processes {left}, folders {kept}")


def task_on(name: str, tmp_path: Path) -> int:
    """The shell that Slurm started on this node."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        for number in processes_of(tmp_path):
            with contextlib.suppress(OSError):
                place = Path(f"/proc/{number}")
                mine = f"SLURMD_NODENAME={name}\0".encode() in (place / "environ").read_bytes()
                if mine and (place / "cmdline").read_bytes().startswith(b"/bin/sh\0-c\0d="):
                    return number
        time.sleep(0.2)
    pytest.fail(f"nothing runs on {name}")


def test_all_others_arrive_and_the_bad_ones_are_named(cluster: Slurm, tmp_path: Path, runner: Path) -> None:
    cluster.make_output("scontrol", "update", "nodename=drained", "state=drain", "reason=a fan is broken")
    process = start_process(
        environment(cluster, tmp_path), tmp_path, runner, "--slurm", "gpu", "--deadline", "40"
    )
    task_on("power", tmp_path)
    task_on("killed", tmp_path)
    cluster.kill_tasks("killed")
    cluster.kill_node("power")
    printed, said = process.communicate(timeout=150)
    assert process.returncode == 1, said
    assert "Traceback" not in said
    told: dict[str, Any] = json.loads(printed)
    states = {one["host"]: one["status"] for one in told["hosts"]}
    why = {one["host"]: one["why"] for one in told["hosts"]}
    assert {name: states[name] for name in STATES} == STATES, why
    assert {states[name] for name in KINDS if name not in STATES} <= {"ok", "found"}, why
    assert len(states) == len(KINDS) + 1
    assert "a fan is broken" in why["drained"]
    assert "Slurm has it as" in why["absent"]
    assert "Slurm has it as" in why["power"]
    assert "it is broken" in why["b4"]
    assert "no answer within 40 s" in why["b1"]
    assert_nothing_stays(cluster, tmp_path, folders=2)


def test_ctrl_c_leaves_no_job(cluster: Slurm, tmp_path: Path, runner: Path) -> None:
    process = start_process(environment(cluster, tmp_path), tmp_path, runner, "--slurm", "gpu")
    task_on("b1", tmp_path)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130, said
    assert "--resume asks the others" in said
    assert_nothing_stays(cluster, tmp_path)


def test_inside_an_allocation(cluster: Slurm, tmp_path: Path, runner: Path) -> None:
    inside = ["salloc", "--quiet", "--nodelist=n01,b1", sys.executable, "-m", "tfdoctor"]
    inside += ["fleet", "run", str(tmp_path / "out"), "--runner", str(runner), "--json", "--slurm", "job"]
    ran = subprocess.run(
        [*inside, "--deadline", "8"],
        env=environment(cluster, tmp_path),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    told = json.loads(ran.stdout)
    states = {one["host"]: one["status"] for one in told["hosts"]}
    assert states == {"b1": "timeout", "n01": states["n01"]}
    assert states["n01"] in ("ok", "found")
    assert_nothing_stays(cluster, tmp_path)
