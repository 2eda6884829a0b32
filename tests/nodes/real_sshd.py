"""Real sshd processes on ports of 127.0.0.1, one per host, with new keys and a configuration for ssh."""

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

SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
PRIVILEGE_FOLDER = Path("/run/sshd")
"""The privilege separation directory of root's sshd, which Debian creates when the service starts.

It is not removed: daemons of other test workers need it for each connection."""
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


def list_missing_programs() -> str:
    """Return the missing programs, such as "sshd, ssh", or an empty string."""
    return ", ".join(
        name for name in ("sshd", "ssh", "ssh-keygen") if shutil.which(name, path=SEARCH_PATH) is None
    )


class Hosts:
    """The port and the sshd process of each host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, int] = {}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {**os.environ, "PATH": f"{folder}/bin{os.pathsep}{SEARCH_PATH}"}

    def cut(self, name: str) -> None:
        """Kill the host's daemon and all processes that serve its connections, as a power failure does."""
        daemon = self.daemons[name].pid
        children = []
        for process_folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int((process_folder / "stat").read_text().rpartition(")")[2].split()[1]) == daemon:
                    children.append(int(process_folder.name))
        for number in (daemon, *children):
            os.kill(number, signal.SIGKILL)


@contextlib.contextmanager
def sshd(folder: Path, names: Sequence[str], *, refusing: str, silent: str, closed: str) -> Iterator[Hosts]:
    """Yield hosts of these names, and three that fail.

    `refusing` does not accept our key; `silent` accepts connections but sends nothing; `closed` has no listener.
    """
    (folder / "tmp").mkdir(parents=True)
    hosts = Hosts(folder)
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
    for name in ("key", "host_key", "other_key"):
        subprocess.run([*key, "-f", str(folder / name)], check=True)
    shutil.copy(folder / "key.pub", folder / "authorized")
    shutil.copy(folder / "other_key.pub", folder / "others")
    if os.getuid() == 0:
        PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
    silent_listener, bound_socket = socket.create_server(("127.0.0.1", 0)), socket.socket()
    bound_socket.bind(("127.0.0.1", 0))  # reserves the port without listening
    try:
        for name in (*names, refusing):
            _start_daemon(hosts, name, "others" if name == refusing else "authorized")
        hosts.ports[silent], hosts.ports[closed] = (
            silent_listener.getsockname()[1],
            bound_socket.getsockname()[1],
        )
        _write_client(hosts)
        yield hosts
    finally:
        for process in hosts.daemons.values():
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        silent_listener.close()
        bound_socket.close()


def _write_client(hosts: Hosts) -> None:
    """Put an `ssh` that reads our configuration on PATH: ssh finds the user's own by the password file, not by HOME."""
    folder = hosts.folder
    shared = {"user": getpass.getuser(), "folder": folder}
    sections = [CLIENT.format(name=name, port=port, **shared) for name, port in hosts.ports.items()]
    (folder / "config").write_text("".join(sections))
    (folder / "bin").mkdir()
    real_ssh = shutil.which("ssh", path=SEARCH_PATH)
    program = folder / "bin" / "ssh"
    program.write_text(f'#!/bin/sh\nexec {real_ssh} -F {folder}/config "$@"\n')
    program.chmod(0o755)
    host_key = (folder / "host_key.pub").read_text().split()[:2]
    lines = [f"[127.0.0.1]:{port} {' '.join(host_key)}\n" for port in hosts.ports.values()]
    (folder / "known_hosts").write_text("".join(lines))


def _start_daemon(hosts: Hosts, name: str, keys: str) -> None:
    """Start a daemon on a free port; try another port if a different program takes it first."""
    config, log = hosts.folder / f"sshd-{name}", hosts.folder / f"{name}.log"
    program = str(shutil.which("sshd", path=SEARCH_PATH))
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        config.write_text(DAEMON.format(port=port, folder=hosts.folder, keys=keys))
        with log.open("wb") as stream:
            hosts.daemons[name] = subprocess.Popen(
                [program, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        hosts.ports[name] = port
        deadline = time.monotonic() + 20
        while hosts.daemons[name].poll() is None and time.monotonic() < deadline:
            if f"Server listening on 127.0.0.1 port {port}" in log.read_text(errors="replace"):
                return
            time.sleep(0.02)
    msg = f"sshd does not start: {log.read_text(errors='replace')[-2000:]}"
    raise RuntimeError(msg)
