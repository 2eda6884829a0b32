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
"""Where root's sshd goes without privileges; Debian makes it when the service starts."""
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


def missing() -> str:
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
    separated = os.getuid() == 0 and not SEPARATION.exists()
    if separated:
        SEPARATION.mkdir(mode=0o755)
    mute = socket.create_server(("127.0.0.1", 0))
    try:
        for name in (*names, refusing):
            port = _port()
            keys = "others" if name == refusing else "authorized"
            file = folder / f"sshd-{name}"
            file.write_text(DAEMON.format(port=port, folder=folder, keys=keys))
            program = shutil.which("sshd", path=WHERE)
            made.ports[name] = port
            with (folder / f"{name}.log").open("wb") as log:
                made.daemons[name] = subprocess.Popen(
                    [str(program), "-D", "-e", "-f", str(file)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        made.ports[silent], made.ports[closed] = mute.getsockname()[1], _port()
        _client(made)
        for name in made.daemons:
            _listening(made, name)
        yield made
    finally:
        for one in made.daemons.values():
            with contextlib.suppress(OSError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(10)
        mute.close()
        if separated:
            with contextlib.suppress(OSError):
                SEPARATION.rmdir()


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


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def _listening(made: Hosts, name: str) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", made.ports[name]), 1):
            return
        time.sleep(0.05)
    msg = f"sshd does not start: {(made.folder / f'{name}.log').read_text(errors='replace')[-2000:]}"
    raise RuntimeError(msg)
