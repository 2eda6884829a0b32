"""Identification of the processes on a GPU: nvidia-smi reports their numbers, and /proc their owners.

In a container the numbers are those of the host or of another container, so nothing is looked up there.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.facts import NOTEBOOK_COMMAND
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.facts import SmiProcess
    from tfdoctor.system import System

MAX_USERS = 5
"""The largest number of other users whose names are looked up."""
_CONTAINER = re.compile(
    r"(?:(?P<engine>cri-containerd|docker|libpod|crio)-|/(?P<folder>docker|kubepods)/(?:[^/\n]{1,100}/){0,4})"
    r"(?P<id>[0-9a-f]{12})[0-9a-f]{52}(?![0-9a-f])"
)
"""A cgroup path: "…/docker-ID.scope" if systemd created it, "/docker/ID" if the engine did."""
_ENGINES = {"libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd", "kubepods": "Kubernetes"}
ID_TIMEOUT_S = 1.0
"""The time limit in seconds for each lookup: a directory service can be slow or unreachable."""


def identify(
    system: System, processes: Iterable[SmiProcess], *, container: bool = False
) -> tuple[SmiProcess, ...]:
    """Return the processes with their user, state, program and container, as far as /proc shows them."""
    process_list = tuple(processes)
    if container or not process_list or system.platform.get("system") != "Linux":
        return process_list
    # If other users' processes are hidden (hidepid), a missing process may still be running.
    complete = system.exists("/proc/1/status")
    identified = [_identify(system, process, complete=complete) for process in process_list]
    others = list(dict.fromkeys(p.user for p in identified if p.user and not p.own))[:MAX_USERS]
    names = {uid: find_user_name(system, uid) for uid in others}
    return tuple(dataclasses.replace(p, user=names.get(p.user or "", p.user)) for p in identified)


def _identify(system: System, process: SmiProcess, *, complete: bool) -> SmiProcess:
    """Return a process with the data of /proc; its `user` is still the number."""
    if process.pid is None or process.pid <= 0:
        return process
    folder = f"/proc/{process.pid}"
    try:
        status = system.read_text(f"{folder}/status", limit=4096)
    except FileNotFoundError:
        return dataclasses.replace(process, state="gone") if complete else process
    except OSError:
        return process
    uid = _load_field(status, "Uid")
    state = _load_field(status, "State")
    return dataclasses.replace(
        process,
        name=process.name or clean_line(_load_field(status, "Name"), limit=64) or None,
        user=uid or None,
        own=uid == system.platform.get("uid") if uid else None,
        state="zombie" if state.startswith("Z") else None,
        command=_find_script(system, folder),
        container=_find_container(system, folder),
    )


def _find_container(system: System, folder: str) -> str:
    """Return the engine of a process's container and the first twelve digits of its ID.

    "" outside of containers.
    """
    try:
        match = _CONTAINER.search(system.read_text(f"{folder}/cgroup", limit=4096))
    except OSError:
        return ""
    if match is None:
        return ""
    engine = match["engine"] or match["folder"]
    return f"{_ENGINES.get(engine, engine)} {match['id']}"


def _load_field(status: str, name: str) -> str:
    """Return the first word of a field of /proc/PID/status; "" if it is missing."""
    match = re.search(rf"^{name}:[ \t]*(\S{{1,100}})", status, re.MULTILINE)
    return match[1] if match is not None else ""


def find_user_name(system: System, uid: str) -> str:
    """Return the name of a user, or the number if it has no name.

    The system is asked, because the name may be in LDAP.
    """
    result = (
        system.run(("id", "-nu", uid), timeout=ID_TIMEOUT_S, key=f"id -nu {uid}") if uid.isdigit() else None
    )
    name = clean_line(result.stdout, limit=64) if result is not None and result.ok else ""
    return name or uid


def _find_script(system: System, folder: str) -> str:
    """Return what a process runs: "train.py", "-m pkg.train" or NOTEBOOK; "" if it is not known.

    Other arguments are omitted because they can contain secrets.
    """
    try:
        arguments = system.read_text(f"{folder}/cmdline", limit=4096).split("\0")
    except OSError:
        return ""
    if any("ipykernel" in argument for argument in arguments[1:4]):
        return NOTEBOOK_COMMAND
    for number, argument in enumerate(arguments[1:], 1):
        if argument == "-m" and number + 1 < len(arguments):
            return clean_line(f"-m {arguments[number + 1]}", limit=80)
        if argument in ("-c", "-"):
            return ""
        if not argument.startswith("-"):
            name = posixpath.basename(argument)
            return clean_line(name, limit=80) if name.endswith((".py", ".pyc", ".ipynb")) else ""
    return ""
