"""Identify the processes on a GPU: nvidia-smi reports the IDs, and /proc the users and programs.

In a container the IDs belong to the host or to another container, so nothing is looked up.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.core.facts import NOTEBOOK_COMMAND
from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.core.facts import SmiProcess
    from tfdoctor.system import System

MAX_USERS = 5
"""The maximum number of other users whose names are looked up."""
_CONTAINER_CGROUP = re.compile(
    r"(?:(?P<engine>cri-containerd|docker|libpod|crio)-|/(?P<folder>docker|kubepods)/(?:[^/\n]{1,100}/){0,4})"
    r"(?P<id>[0-9a-f]{12})[0-9a-f]{52}(?![0-9a-f])"
)
"""The cgroup path of a container: "…/docker-ID.scope" if systemd created it, "/docker/ID" if the engine did."""
_ENGINE_NAMES = {
    "libpod": "podman",
    "crio": "cri-o",
    "cri-containerd": "containerd",
    "kubepods": "Kubernetes",
}
"""The names of container engines that differ from the word in the cgroup path, by that word."""
ID_TIMEOUT_S = 1.0
"""The time limit in seconds for looking up a user name, because a directory service may not respond."""


def identify_processes(
    system: System, processes: Iterable[SmiProcess], *, has_foreign_pids: bool = False
) -> tuple[SmiProcess, ...]:
    """Return the processes with their user, state, program and container, as far as /proc shows them.

    `has_foreign_pids` says whether the IDs belong to another system. The processes are then returned unchanged.
    """
    process_list = tuple(processes)
    if has_foreign_pids or not process_list or system.platform.get("system") != "Linux":
        return process_list
    # If /proc hides other users' processes (hidepid), a missing process may still be running.
    shows_all_processes = system.exists("/proc/1/status")
    identified = [
        _identify(system, process, shows_all_processes=shows_all_processes) for process in process_list
    ]
    other_users = list(
        dict.fromkeys(process.user for process in identified if process.user and not process.own)
    )[:MAX_USERS]
    name_by_uid = {uid: find_user_name(system, uid) for uid in other_users}
    return tuple(
        dataclasses.replace(process, user=name_by_uid.get(process.user or "", process.user))
        for process in identified
    )


def _identify(system: System, process: SmiProcess, *, shows_all_processes: bool) -> SmiProcess:
    """Return a process with the data in /proc; its `user` is the user ID.

    `shows_all_processes` says that /proc shows all processes, so that a missing one has ended.
    """
    if process.pid is None or process.pid <= 0:
        return process
    folder = f"/proc/{process.pid}"
    try:
        status = system.read_text(f"{folder}/status", limit=4096)
    except FileNotFoundError:
        return dataclasses.replace(process, state="gone") if shows_all_processes else process
    except OSError:
        return process
    uid = _parse_status_field(status, "Uid")
    state = _parse_status_field(status, "State")
    return dataclasses.replace(
        process,
        name=process.name or clean_line(_parse_status_field(status, "Name"), limit=64) or None,
        user=uid or None,
        own=uid == system.platform.get("uid") if uid else None,
        state="zombie" if state.startswith("Z") else None,
        command=_find_command(system, folder),
        container=_find_container(system, folder),
    )


def _find_container(system: System, folder: str) -> str:
    """Return the engine and the first twelve digits of the ID of a process's container, or ""."""
    try:
        match = _CONTAINER_CGROUP.search(system.read_text(f"{folder}/cgroup", limit=4096))
    except OSError:
        return ""
    if match is None:
        return ""
    engine = match["engine"] or match["folder"]
    return f"{_ENGINE_NAMES.get(engine, engine)} {match['id']}"


def _parse_status_field(status: str, name: str) -> str:
    """Return the first word of a field of /proc/PID/status, or "" if it is missing."""
    match = re.search(rf"^{name}:[ \t]*(\S{{1,100}})", status, re.MULTILINE)
    return match[1] if match is not None else ""


def find_user_name(system: System, uid: str) -> str:
    """Return the name of a user, or the user ID if the name is not known.

    The `id` command is used, because the name may be in a directory service such as LDAP.
    """
    result = (
        system.run(("id", "-nu", uid), timeout=ID_TIMEOUT_S, key=f"id -nu {uid}") if uid.isdigit() else None
    )
    name = clean_line(result.stdout, limit=64) if result is not None and result.ok else ""
    return name or uid


def _find_command(system: System, folder: str) -> str:
    """Return the script or module of a process ("train.py", "-m pkg.train"), NOTEBOOK_COMMAND or "".

    Other arguments are omitted, because they can contain secrets.
    """
    try:
        arguments = system.read_text(f"{folder}/cmdline", limit=4096).split("\0")
    except OSError:
        return ""
    if any("ipykernel" in argument for argument in arguments[1:4]):
        return NOTEBOOK_COMMAND
    for index, argument in enumerate(arguments[1:], 1):
        if argument == "-m" and index + 1 < len(arguments):
            return clean_line(f"-m {arguments[index + 1]}", limit=80)
        if argument in ("-c", "-"):
            return ""
        if not argument.startswith("-"):
            name = posixpath.basename(argument)
            return clean_line(name, limit=80) if name.endswith((".py", ".pyc", ".ipynb")) else ""
    return ""
