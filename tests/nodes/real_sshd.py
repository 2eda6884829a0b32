"""Real sshd on ports of 127.0.0.1, a "host" each, with keys made here; a configuration for ssh names them."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WHERE = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
SEPARATION = Path("/run/sshd")
"""Where root's sshd goes without privileges; Debian makes it when the service starts. It stays: another
worker's daemons need it for each connection."""
DAEMON = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/{keys}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv TMPDIR={folder}/tmp
"""
CLIENT = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


def make_missing() -> str:
    """What there is not, of what is needed here."""
    return ", ".join(name for name in ("sshd", "ssh", "ssh-keygen") if shutil.which(name, path=WHERE) is None)


class Hosts:
    """Name → port, and the daemons."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, int] = {}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {**os.environ, "PATH": f"{folder}/bin{os.pathsep}{WHERE}"}

    def cut(self, name: str) -> None:
        """As where a host loses power: its daemon and all that serves a connection are gone at once."""
        daemon = self.daemons[name].pid
        served = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int((place / "stat").read_text().rpartition(")")[2].split()[1]) == daemon:
                    served.append(int(place.name))
        for number in (daemon, *served):
            os.kill(number, signal.SIGKILL)


@contextlib.contextmanager
def sshd(folder: Path, names: Sequence[str], *, refusing: str, silent: str, closed: str) -> Iterator[Hosts]:
    """Hosts of these names. refusing: it does not take our key; silent: it takes connections, and says nothing;
    closed: nothing listens there."""
    (folder / "tmp").mkdir(parents=True)
    made = Hosts(folder)
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
    for name in ("key", "host_key", "other_key"):
        subprocess.run([*key, "-f", str(folder / name)], check=True)
    shutil.copy(folder / "key.pub", folder / "authorized")
    shutil.copy(folder / "other_key.pub", folder / "others")
    if os.getuid() == 0:
        SEPARATION.mkdir(mode=0o755, exist_ok=True)
    mute, unheard = socket.create_server(("127.0.0.1", 0)), socket.socket()
    unheard.bind(("127.0.0.1", 0))  # nobody else gets the port, and nothing listens there
    try:
        for name in (*names, refusing):
            _start(made, name, "others" if name == refusing else "authorized")
        made.ports[silent], made.ports[closed] = mute.getsockname()[1], unheard.getsockname()[1]
        _client(made)
        yield made
    finally:
        for one in made.daemons.values():
            with contextlib.suppress(OSError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(10)
        mute.close()
        unheard.close()


def _client(made: Hosts) -> None:
    """`ssh` on PATH that reads our configuration: it looks for the user's own in the password file, not in HOME."""
    folder = made.folder
    shared = {"user": getpass.getuser(), "folder": folder}
    hosts = [CLIENT.format(name=name, port=port, **shared) for name, port in made.ports.items()]
    (folder / "config").write_text("".join(hosts))
    (folder / "bin").mkdir()
    real = shutil.which("ssh", path=WHERE)
    program = folder / "bin" / "ssh"
    program.write_text(f'#!/bin/sh\nexec {real} -F {folder}/config "$@"\n')
    program.chmod(0o755)
    known = (folder / "host_key.pub").read_text().split()[:2]
    lines = [f"[127.0.0.1]:{port} {' '.join(known)}\n" for port in made.ports.values()]
    (folder / "known_hosts").write_text("".join(lines))


def _start(made: Hosts, name: str, keys: str) -> None:
    """On a port that is free; where another program takes it before the daemon does, on another one."""
    file, log = made.folder / f"sshd-{name}", made.folder / f"{name}.log"
    program = str(shutil.which("sshd", path=WHERE))
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
        file.write_text(DAEMON.format(port=port, folder=made.folder, keys=keys))
        with log.open("wb") as stream:
            made.daemons[name] = subprocess.Popen(
                [program, "-D", "-e", "-f", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        made.ports[name] = port
        until = time.monotonic() + 20
        while made.daemons[name].poll() is None and time.monotonic() < until:
            if f"Server listening on 127.0.0.1 port {port}" in log.read_text(errors="replace"):
                return
            time.sleep(0.02)
    msg = f"sshd does not start: {log.read_text(errors='replace')[-2000:]}"
    raise RuntimeError(msg)
