"""A probe of the owner and mode of files that exist but may not be used."""

from __future__ import annotations

import dataclasses
import posixpath
from typing import TYPE_CHECKING

from tfdoctor.facts import DENIED, FOLDER_CLOSED, NOEXEC_ERROR, Fact, Known, LoaderFacts
from tfdoctor.facts.python import Denied
from tfdoctor.probes.processes import find_user_name

if TYPE_CHECKING:
    from tfdoctor.system import System

MAX_FILES = 40
"""The largest number of files whose owner is looked up."""
STAT_TIMEOUT_S = 2.0
"""The time limit in seconds for each lookup."""


def add_denied(system: System, loader: Fact[LoaderFacts]) -> Fact[LoaderFacts]:
    """Return the facts with the reason for each file that the loader found but may not use."""
    if not isinstance(loader, Known):
        return loader
    facts = loader.value
    refused: dict[str, str] = {}
    for resolution in (*facts.import_needs, *facts.resolutions):
        for tried in resolution.tried:
            if tried.problem in (FOLDER_CLOSED, DENIED, NOEXEC_ERROR) and not resolution.ok:
                refused.setdefault(posixpath.normpath(tried.path), tried.problem)
    if not refused:
        return loader
    denied = tuple(
        Denied(path, path, "noexec") if problem == NOEXEC_ERROR else explain_denied(system, path)
        for path, problem in list(refused.items())[:MAX_FILES]
    )
    return dataclasses.replace(loader, value=dataclasses.replace(facts, denied=denied))


def explain_denied(system: System, path: str) -> Denied:
    """Return what forbids reading `path`: the file itself, or a parent folder."""
    current, status = path, _load_status(system, path)
    while status is None and current not in ("/", "", "."):
        current = posixpath.dirname(current)
        status = _load_status(system, current)
    if status is None:
        return Denied(path, path)
    uid, mode = status
    is_own = uid == system.platform.get("uid")
    return Denied(path, current, owner=find_user_name(system, uid), own=is_own, mode=mode)


def _load_status(system: System, path: str) -> tuple[str, str] | None:
    """Return (owner's number, mode) of the file that a path leads to; None if they are not known."""
    result = system.run(("stat", "-L", "-c", "%u %a", "--", path), timeout=STAT_TIMEOUT_S, key=f"stat {path}")
    fields = result.stdout.split()
    return (
        (fields[0], fields[1])
        if result.ok and len(fields) == 2 and all(field.isdigit() for field in fields)
        else None
    )
