"""What stands against an undo: paths that somebody changed since, and files whose bytes are lost."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from tfdoctor.environment.history import snapshot
from tfdoctor.environment.history.records import STEPS, Change, Record
from tfdoctor.environment.history.restore import Bytes, paths_in_way
from tfdoctor.environment.history.snapshot import KEPT_PACK, JournalError, State, is_derived, look
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable

_LISTED = 10
"""Paths named in a sentence."""


def conflicts(
    top: str, own: str, newest_first: list[Record]
) -> tuple[dict[int, set[str]], list[str], list[str]]:
    """step → paths to leave; paths that somebody changed since; paths whose bytes are lost.

    Steps may touch the same path: undoing one gives what the one before it has to find.
    """
    real: set[str] = set()
    hashes = snapshot.digests(_to_hash(top, newest_first, real))
    known = {change.path for record in newest_first for change in record.entry.changes}
    later: dict[str, State | None] = {}
    foreign: dict[str, None] = {}
    lost: dict[str, None] = {}
    left: dict[int, set[str]] = {}
    for record in newest_first:
        kept = Bytes(f"{own}/{STEPS}/{record.entry.number}", KEPT_PACK)
        leave = left.setdefault(record.entry.number, set())
        for change in record.entry.changes:
            path, before, after = change.path, change.before, change.after
            if is_derived(path):
                continue
            if path in foreign or path in lost:
                leave.add(path)
                continue
            if path in later:
                fits = any(_alike(later[path], state) for state in (before, after))
            else:
                fits = any(is_now(top, path, state, hashes, real) for state in (after, before))
                if fits and _from_folder(change) and paths_in_way(top, path, known):
                    fits = False
            later[path] = before
            if not fits:
                foreign[path] = None
                leave.add(path)
            elif (
                before is not None
                and before.type == "file"
                and not kept.are_whole(before, record.kept.get(path))
            ):
                lost[path] = None
                leave.add(path)
    return left, list(foreign), list(lost)


def _from_folder(change: Change) -> bool:
    """Whether an undo puts something else where a folder is."""
    before, after = change.before, change.after
    return before is not None and before.type != "dir" and after is not None and after.type == "dir"


def _to_hash(top: str, newest_first: list[Record], real: set[str]) -> set[str]:
    """Files whose size does not tell already whether somebody changed them."""
    wanted = set()
    for record in newest_first:
        for change in record.entry.changes:
            info = None if is_derived(change.path) else look(top, change.path, real)
            if info is not None and stat.S_ISREG(info.st_mode):
                sizes = {state.size for state in (change.before, change.after) if state is not None}
                if info.st_size in sizes:
                    wanted.add(f"{top}/{change.path}")
    return wanted


def is_now(
    top: str, path: str, state: State | None, hashes: dict[str, str], real: set[str] | None = None
) -> bool:
    """Whether a path is now in this state. Times do not count, nor what a file was that nobody knows any more."""
    seen = snapshot.see(top, path, real)
    if seen is None:
        return state is None and look(top, path, real) is None
    if state is None or seen.type != state.type:
        return False
    if seen.type != "file":
        return _alike(snapshot.state_of(seen, None), state)
    if state.sha256 is None or seen.size != state.size or seen.mode != state.mode:
        return False
    place = f"{top}/{path}"
    if place not in hashes:
        hashes[place] = snapshot.digest(place)
    return hashes[place] == state.sha256


def _alike(one: State | None, other: State | None) -> bool:
    """Whether two states are the same but for times."""
    if one is None or other is None:
        return one is other
    mode = one.type == "link" or one.mode == other.mode
    return mode and (one.type, one.size, one.sha256, one.target) == (
        other.type,
        other.size,
        other.sha256,
        other.target,
    )


def refuse(foreign: list[str], lost: list[str]) -> None:
    """Raise where an undo would overwrite somebody's work, or could not do all."""
    if not foreign and not lost:
        return
    parts = []
    if foreign:
        parts.append(f"changed by somebody since tfdoctor changed them: {some(foreign)}")
    if lost:
        parts.append(
            f"what they were is not kept any more, for a program wrote into the files themselves: {some(lost)}"
        )
    message = "Nothing was taken back: " + "; ".join(parts) + "."
    raise JournalError(
        message, hint="With --force these are left as they are, and everything else is taken back."
    )


def some(paths: Iterable[str]) -> str:
    """Up to ten paths, for a sentence."""
    names = sorted(paths)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(clean_line(name) for name in names[:_LISTED]) + more
