"""A real Slurm on this machine: munged, slurmctld, and a slurmd for each of many node names, all in one folder."""

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
WHERE = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
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


def make_missing() -> str:
    """What there is not, of what a Slurm needs here: "munged, slurmd"."""
    return ", ".join(name for name in PROGRAMS if shutil.which(name, path=WHERE) is None)


class Slurm:
    """One that runs. Nodes are known by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "PATH": WHERE, "SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            self.daemons[name] = subprocess.Popen(
                words, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def make_output(self, *words: str) -> str:
        return subprocess.run(
            words, env=self.env, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    def kill_tasks(self, name: str, *, steps: bool = False) -> None:
        """What runs on a node is gone at once; steps: with Slurm's own part of it."""
        mine = f"SLURMD_NODENAME={name}\0".encode()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine not in (place / "environ").read_bytes():
                    continue
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                for number in (parent, int(place.name)):
                    if number == int(place.name) or (steps and _is_step(number)):
                        os.kill(number, signal.SIGKILL)

    def kill_node(self, name: str) -> None:
        """As in a power failure."""
        os.killpg(self.daemons[name].pid, signal.SIGKILL)
        self.kill_tasks(name, steps=True)


def _is_step(number: int) -> bool:
    return Path(f"/proc/{number}/cmdline").read_bytes().startswith(b"slurmstepd")


@contextlib.contextmanager
def slurm(folder: Path, nodes: Sequence[str], *, absent: Sequence[str] = ()) -> Iterator[Slurm]:
    """One with these nodes; of `absent` no slurmd is started. Raises RuntimeError where it does not start."""
    folder.mkdir(mode=0o755)
    (folder / "state").mkdir()
    made = Slurm(folder)
    ports = _ports(len(nodes) + len(absent) + 1)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    lines = [
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN\n"
        for name, port in zip((*nodes, *absent), ports[1:], strict=True)
    ]
    text = CONFIGURATION.format(user=getpass.getuser(), folder=folder, port=ports[0])
    (folder / "slurm.conf").write_text("".join([*lines, text]))
    version = re.search(r"(\d+)\.(\d+)", made.make_output("slurmctld", "-V"))
    if version is not None and tuple(map(int, version.groups())) >= (23, 11):
        (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    files = {
        "key-file": key,
        "socket": folder / "munge.socket",
        "pid-file": folder / "munged.pid",
        "log-file": folder / "munged.log",
        "seed-file": folder / "munged.seed",
    }
    words = [f"--{name}={path}" for name, path in files.items()]
    try:
        made.start("munged", "munged", "--foreground", "--force", *words)
        _wait_until((folder / "munge.socket").exists, made, "munged")
        made.start("slurmctld", "slurmctld", "-D", "-c", "-f", str(folder / "slurm.conf"))
        for name in nodes:
            made.start(name, "slurmd", "-D", "-N", name, "-f", str(folder / "slurm.conf"))
        _wait_until(lambda: _idle(made) >= set(nodes), made, "slurmctld")
        yield made
    finally:
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            made.make_output("scancel", "--user", str(os.getuid()))
        for end in (signal.SIGTERM, signal.SIGKILL):
            running = [one for one in made.daemons.values() if one.poll() is None]
            for one in running:
                os.killpg(one.pid, end)
            until = time.monotonic() + 5
            while any(one.poll() is None for one in running) and time.monotonic() < until:
                time.sleep(0.05)


def _ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return found


def _idle(made: Slurm) -> set[str]:
    try:
        lines = made.make_output("sinfo", "-N", "-h", "-o", "%N %T").splitlines()
    except subprocess.SubprocessError:
        return set()
    return {line.split()[0] for line in lines if line.endswith(" idle")}


def _wait_until(true: object, made: Slurm, name: str) -> None:
    assert callable(true)
    until = time.monotonic() + 40
    while not true():
        if time.monotonic() > until:
            told = "".join(path.read_text(errors="replace")[-3000:] for path in made.folder.glob(f"{name}.*"))
            msg = f"{name} did not start: {told}"
            raise RuntimeError(msg)
        time.sleep(0.1)
