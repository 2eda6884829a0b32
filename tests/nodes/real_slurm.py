"""A real Slurm on this machine, in one folder: munged, slurmctld, and one slurmd per node name."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "squeue", "scancel", "scontrol", "salloc")
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
CONFIGURATION = """\
ClusterName=tfdoctor
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
ReturnToService=2
SlurmdTimeout=5
KillWait=5
MpiDefault=none
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def list_missing_programs() -> str:
    """Return the missing programs that Slurm needs, such as "munged, slurmd", or an empty string."""
    return ", ".join(name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None)


class Slurm:
    """A running Slurm; nodes are identified by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "PATH": SEARCH_PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as output:
            self.daemons[name] = subprocess.Popen(
                command,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def run_command(self, *command: str) -> str:
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    def kill_tasks(self, name: str, *, steps: bool = False) -> None:
        """Kill all tasks on a node at once; with `steps`, also Slurm's own processes of the tasks."""
        node_variable = f"SLURMD_NODENAME={name}\0".encode()
        for process_folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if node_variable not in (process_folder / "environ").read_bytes():
                    continue
                parent = int((process_folder / "stat").read_text().rpartition(")")[2].split()[1])
                for number in (parent, int(process_folder.name)):
                    if number == int(process_folder.name) or (steps and _is_step(number)):
                        os.kill(number, signal.SIGKILL)

    def kill_node(self, name: str) -> None:
        """Kill the node and its tasks, as a power failure does."""
        os.killpg(self.daemons[name].pid, signal.SIGKILL)
        self.kill_tasks(name, steps=True)


def _is_step(number: int) -> bool:
    return Path(f"/proc/{number}/cmdline").read_bytes().startswith(b"slurmstepd")


@contextlib.contextmanager
def slurm(folder: Path, nodes: Sequence[str], *, absent: Sequence[str] = ()) -> Iterator[Slurm]:
    """Yield a Slurm with these nodes; no slurmd is started for the nodes in `absent`.

    Raise RuntimeError if it does not start.
    """
    folder.mkdir(mode=0o755)
    (folder / "state").mkdir()
    cluster = Slurm(folder)
    ports = _find_free_ports(len(nodes) + len(absent) + 1)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    lines = [
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN\n"
        for name, port in zip((*nodes, *absent), ports[1:], strict=True)
    ]
    text = CONFIGURATION.format(user=getpass.getuser(), folder=folder, port=ports[0])
    (folder / "slurm.conf").write_text("".join([*lines, text]))
    version = re.search(r"(\d+)\.(\d+)", cluster.run_command("slurmctld", "-V"))
    if version is not None and tuple(map(int, version.groups())) >= (23, 11):
        (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    files = {
        "key-file": key,
        "socket": folder / "munge.socket",
        "pid-file": folder / "munged.pid",
        "log-file": folder / "munged.log",
        "seed-file": folder / "munged.seed",
    }
    options = [f"--{name}={path}" for name, path in files.items()]
    try:
        cluster.start("munged", "munged", "--foreground", "--force", *options)
        _wait_until((folder / "munge.socket").exists, cluster, "munged")
        cluster.start("slurmctld", "slurmctld", "-D", "-c", "-f", str(folder / "slurm.conf"))
        for name in nodes:
            cluster.start(name, "slurmd", "-D", "-N", name, "-f", str(folder / "slurm.conf"))
        _wait_until(lambda: _list_idle_nodes(cluster) >= set(nodes), cluster, "slurmctld")
        yield cluster
    finally:
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            cluster.run_command("scancel", "--user", str(os.getuid()))
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            running = [process for process in cluster.daemons.values() if process.poll() is None]
            for process in running:
                os.killpg(process.pid, signal_number)
            deadline = time.monotonic() + 5
            while any(process.poll() is None for process in running) and time.monotonic() < deadline:
                time.sleep(0.05)


def _find_free_ports(count: int) -> list[int]:
    """Return free ports of 127.0.0.1."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return numbers


def _list_idle_nodes(cluster: Slurm) -> set[str]:
    try:
        lines = cluster.run_command("sinfo", "-N", "-h", "-o", "%N %T").splitlines()
    except subprocess.SubprocessError:
        return set()
    return {line.split()[0] for line in lines if line.endswith(" idle")}


def _wait_until(condition: object, cluster: Slurm, name: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 40
    while not condition():
        if time.monotonic() > deadline:
            logs = "".join(
                path.read_text(errors="replace")[-3000:] for path in cluster.folder.glob(f"{name}.*")
            )
            msg = f"{name} did not start: {logs}"
            raise RuntimeError(msg)
        time.sleep(0.1)
