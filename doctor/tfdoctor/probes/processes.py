"""Who the processes on a card are: nvidia-smi tells numbers, /proc tells whose they are.

In a container the numbers are the host's, or those of another container: nothing is looked up there.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.facts import NOTEBOOK
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.facts import SmiProcess
    from tfdoctor.system import System

MAX_USERS = 5
"""Other users whose names are asked for."""
_CONTAINER = re.compile(
    r"(?:(?P<engine>cri-containerd|docker|libpod|crio)-|/(?P<folder>docker|kubepods)/(?:[^/\n]{1,100}/){0,4})"
    r"(?P<id>[0-9a-f]{12})[0-9a-f]{52}(?![0-9a-f])"
)
"""A cgroup's path: "…/docker-ID.scope" where systemd makes them, "/docker/ID" where the engine does."""
_ENGINES = {"libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd", "kubepods": "Kubernetes"}
ASK = 1.0
"""Seconds for each: a directory service can be slow, or away."""


def identify(
    system: System, processes: Iterable[SmiProcess], *, container: bool = False
) -> tuple[SmiProcess, ...]:
    """Return the same processes, with the user, state, program and container of each, as far as /proc shows them."""
    found = tuple(processes)
    if container or not found or system.platform.get("system") != "Linux":
        return found
    # Where others' processes are hidden (hidepid), one that is not to be seen is not gone.
    complete = system.exists("/proc/1/status")
    seen = [_identify(system, process, complete=complete) for process in found]
    others = list(dict.fromkeys(p.user for p in seen if p.user and not p.own))[:MAX_USERS]
    names = {uid: user_name(system, uid) for uid in others}
    return tuple(dataclasses.replace(p, user=names.get(p.user or "", p.user)) for p in seen)


def _identify(system: System, process: SmiProcess, *, complete: bool) -> SmiProcess:
    """`user` is the number still."""
    if process.pid is None or process.pid <= 0:
        return process
    folder = f"/proc/{process.pid}"
    try:
        status = system.read_text(f"{folder}/status", limit=4096)
    except FileNotFoundError:
        return dataclasses.replace(process, state="gone") if complete else process
    except OSError:
        return process
    uid = _field(status, "Uid")
    state = _field(status, "State")
    return dataclasses.replace(
        process,
        name=process.name or clean_line(_field(status, "Name"), limit=64) or None,
        user=uid or None,
        own=uid == system.platform.get("uid") if uid else None,
        state="zombie" if state.startswith("Z") else None,
        command=_command(system, folder),
        container=_container(system, folder),
    )


def _container(system: System, folder: str) -> str:
    """Return the engine and the first twelve digits of the container, as the engine lists it.

    "" outside of any.
    """
    try:
        match = _CONTAINER.search(system.read_text(f"{folder}/cgroup", limit=4096))
    except OSError:
        return ""
    if match is None:
        return ""
    engine = match["engine"] or match["folder"]
    return f"{_ENGINES.get(engine, engine)} {match['id']}"


def _field(status: str, name: str) -> str:
    """Return the first word of a line of /proc/PID/status."""
    match = re.search(rf"^{name}:[ \t]*(\S{{1,100}})", status, re.MULTILINE)
    return match[1] if match is not None else ""


def user_name(system: System, uid: str) -> str:
    """Return the name of a user, asked of the system (it may be in LDAP); the number where it has none."""
    result = system.run(("id", "-nu", uid), timeout=ASK, key=f"id -nu {uid}") if uid.isdigit() else None
    name = clean_line(result.stdout, limit=64) if result is not None and result.ok else ""
    return name or uid


def _command(system: System, folder: str) -> str:
    """Return what runs, without its arguments, which can hold secrets: "train.py", "-m pkg.train", a notebook."""
    try:
        words = system.read_text(f"{folder}/cmdline", limit=4096).split("\0")
    except OSError:
        return ""
    if any("ipykernel" in word for word in words[1:4]):
        return NOTEBOOK
    for number, word in enumerate(words[1:], 1):
        if word == "-m" and number + 1 < len(words):
            return clean_line(f"-m {words[number + 1]}", limit=80)
        if word in ("-c", "-"):
            return ""
        if not word.startswith("-"):
            name = posixpath.basename(word)
            return clean_line(name, limit=80) if name.endswith((".py", ".pyc", ".ipynb")) else ""
    return ""
