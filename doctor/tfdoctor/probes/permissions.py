"""Find the owner and mode of files that the loader found but was not allowed to use."""

from __future__ import annotations

import dataclasses
import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.facts import FOLDER_DENIED, NOEXEC_ERROR, PERMISSION_DENIED, Fact, Known, LoaderFacts
from tfdoctor.core.facts.python import DeniedPath
from tfdoctor.probes.processes import find_user_name

if TYPE_CHECKING:
    from tfdoctor.system import System

MAX_FILES = 40
"""The maximum number of files whose owner is looked up."""
STAT_TIMEOUT_S = 2.0
"""The time limit in seconds for each lookup."""


def add_denied_files(system: System, loader: Fact[LoaderFacts]) -> Fact[LoaderFacts]:
    """Return the loader facts with an explanation of each file that the loader was not allowed to use.

    The facts are unchanged if there is no such file, or if they are not known.
    """
    if not isinstance(loader, Known):
        return loader
    facts = loader.value
    problem_by_path: dict[str, str] = {}
    for resolution in (*facts.import_needs, *facts.resolutions):
        for attempt in resolution.tried:
            if attempt.problem in (FOLDER_DENIED, PERMISSION_DENIED, NOEXEC_ERROR) and not resolution.ok:
                problem_by_path.setdefault(posixpath.normpath(attempt.path), attempt.problem)
    if not problem_by_path:
        return loader
    denied = tuple(
        DeniedPath(path=path, closed=path, why="noexec")
        if problem == NOEXEC_ERROR
        else explain_denied(system, path)
        for path, problem in list(problem_by_path.items())[:MAX_FILES]
    )
    return dataclasses.replace(loader, value=dataclasses.replace(facts, denied=denied))


def explain_denied(system: System, path: str) -> DeniedPath:
    """Return the file or parent folder that forbids reading `path`, with its owner and mode.

    This is the nearest path whose status can be read. If there is none, owner and mode are missing.
    """
    nearest, status = path, _load_status(system, path)
    while status is None and nearest not in ("/", "", "."):
        nearest = posixpath.dirname(nearest)
        status = _load_status(system, nearest)
    if status is None:
        return DeniedPath(path=path, closed=path)
    uid, mode = status
    is_own = uid == system.platform.get("uid")
    return DeniedPath(path=path, closed=nearest, owner=find_user_name(system, uid), own=is_own, mode=mode)


def _load_status(system: System, path: str) -> tuple[str, str] | None:
    """Return (user ID of the owner, mode) of a file, with links followed, or None if they are not known."""
    result = system.run(("stat", "-L", "-c", "%u %a", "--", path), timeout=STAT_TIMEOUT_S, key=f"stat {path}")
    fields = result.stdout.split()
    return (
        (fields[0], fields[1])
        if result.ok and len(fields) == 2 and all(field.isdigit() for field in fields)
        else None
    )
