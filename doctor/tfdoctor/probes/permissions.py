"""Whose it is and which mode it has, what is there and may not be used."""

from __future__ import annotations

import dataclasses
import posixpath
from typing import TYPE_CHECKING

from tfdoctor.facts import CLOSED, DENIED, NOEXEC, Fact, Known, LoaderFacts
from tfdoctor.facts.python import Denied
from tfdoctor.probes.processes import user_name

if TYPE_CHECKING:
    from tfdoctor.system import System

MAX_FILES = 40
"""Files whose owner is asked for."""
ASK = 2.0
"""Seconds for each."""


def with_denied(system: System, loader: Fact[LoaderFacts]) -> Fact[LoaderFacts]:
    """Return the same, with what forbids each file that the loader met and may not use."""
    if not isinstance(loader, Known):
        return loader
    facts = loader.value
    refused: dict[str, str] = {}
    for resolution in (*facts.import_needs, *facts.resolutions):
        for tried in resolution.tried:
            if tried.problem in (CLOSED, DENIED, NOEXEC) and not resolution.ok:
                refused.setdefault(posixpath.normpath(tried.path), tried.problem)
    if not refused:
        return loader
    found = tuple(
        Denied(path, path, "noexec") if problem == NOEXEC else explain_denied(system, path)
        for path, problem in list(refused.items())[:MAX_FILES]
    )
    return dataclasses.replace(loader, value=dataclasses.replace(facts, denied=found))


def explain_denied(system: System, path: str) -> Denied:
    """Return what forbids reading `path`: itself, or the folder above it that this user may not search."""
    at, entry = path, _status(system, path)
    while entry is None and at not in ("/", "", "."):
        at = posixpath.dirname(at)
        entry = _status(system, at)
    if entry is None:
        return Denied(path, path)
    uid, mode = entry
    own = uid == system.platform.get("uid")
    return Denied(path, at, owner=user_name(system, uid), own=own, mode=mode)


def _status(system: System, path: str) -> tuple[str, str] | None:
    """Return (owner's number, mode) of what a path leads to; None if it cannot be told."""
    result = system.run(("stat", "-L", "-c", "%u %a", "--", path), timeout=ASK, key=f"stat {path}")
    fields = result.stdout.split()
    return (
        (fields[0], fields[1])
        if result.ok and len(fields) == 2 and all(f.isdigit() for f in fields)
        else None
    )
