"""What tfdoctor has changed in an environment: what was there before the first step, and what we left there.

`history.json` has it all: the steps that were done, and every path that is not any more what it was before the first of
them, with both states and where the bytes of the first one are. A step is merged into it (`with_step`).
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor.environment.folder import is_folder
from tfdoctor.environment.history import snapshot
from tfdoctor.environment.history.restore import Bytes, paths_in_way
from tfdoctor.environment.history.snapshot import (
    JournalError,
    PathChange,
    PathState,
    alike,
    check_kept,
    check_path,
    check_state,
    is_derived,
    look,
    make_damage_error,
    older,
    read_json,
    write_json,
)
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdoctor.environment.history.snapshot import PathRow

HISTORY, UNDO, STEPS = "history.json", "undo.json", "steps"
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_LISTED = 10
"""Paths named in a sentence."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A step that was done. `when`: UTC, ISO 8601; `changes`: how many paths it changed."""

    number: int
    title: str
    codes: tuple[str, ...]
    when: str
    changes: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """All that was done since the environment was as its owner had it."""

    entries: tuple[HistoryEntry, ...] = ()
    """Oldest first."""
    changes: Mapping[str, PathChange] = field(default_factory=dict)
    """path → what was there before the first step, and what the last one left."""
    compiled: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """path → size and mtime of compiled files that belong to what was there, though their source was changed."""

    def __contains__(self, number: int) -> bool:
        return any(entry.number == number for entry in self.entries)


# ---------------------------------------------------------------- a step is merged


def changes_of(
    top: str, steps: str, rows: Mapping[str, PathRow], found: Mapping[str, PathState]
) -> list[PathChange]:
    """Return what a step has changed, with the hashes of both sides. Raises OSError.

    rows: its snapshot; found: a scan after it.
    """
    kept, changed = Bytes(steps), snapshot.differences(top, rows, found)
    unknown = {}  # of what was linked, unless somebody wrote into it
    for change in changed:
        before, bytes_of = change.before, change.kept
        if before is not None and bytes_of is not None and before.sha256 is None:
            unknown[change.path] = kept.place(bytes_of) if kept.are_whole(before, bytes_of) else ""
    now = [f"{top}/{change.path}" for change in changed if change.after and change.after.type == "file"]
    hashes = snapshot.digests([*now, *filter(None, unknown.values())])
    result = []
    for change in changed:
        path, before, after, bytes_of = change.path, change.before, change.after, change.kept
        if before is not None and path in unknown:
            before = before._replace(sha256=hashes.get(unknown[path]))
            bytes_of = bytes_of if before.sha256 is not None else None
        if after is not None and after.type == "file":
            after = after._replace(sha256=hashes.get(f"{top}/{path}"))
        complete = PathChange(path, before, after, bytes_of)
        if not _is_unchanged(complete):  # replaced by the same
            result.append(complete)
    return result


def _is_unchanged(change: PathChange) -> bool:
    """Return whether a path is what it was."""
    before = change.before
    known = before is None or before.type != "file" or before.sha256 is not None
    return known and alike(before, change.after, times=True)


def _was(before: PathState | None, state: PathState | None) -> bool:
    """Return whether a step began with this state.

    What it wrote into in place has no hash: its size and mtime had to do.
    """
    if before is not None and state is not None and before.type == "file" and before.sha256 is None:
        before = before._replace(sha256=state.sha256)
        return alike(before, state, times=True)
    return alike(before, state)


def with_step(
    history: History, entry: HistoryEntry, found: Iterable[PathChange], rows: Mapping[str, PathRow]
) -> History:
    """Return the history after another step: what was there before the first one stays, what is there now is the last
    one's.

    What somebody changed between two steps is theirs from then on: that is what an undo gives back. found: what this
    step changed; rows: its snapshot.
    """
    changes, compiled = dict(history.changes), dict(history.compiled)
    found = list(found)
    for change in found:
        path, before = change.path, change.before
        first, known = change, changes.pop(path, None)
        if known is not None:
            ours = is_derived(path) or any(_was(before, one) for one in (known.after, known.before))
            first = known._replace(after=change.after) if ours else change._replace(foreign=True)
        elif (
            before is not None
            and path.endswith(".pyc")
            and _source_of(path) in history.changes
            and compiled.get(path) != (before.size, before.mtime_ns)
        ):
            first = change._replace(before=None, kept=None)  # Python had made it of a source of ours
        changes[path] = first
    touched = {change.path for change in found}
    sources = {path for path in touched if path.endswith(".py") and path not in history.changes}
    for path, row in rows.items():
        if sources and path.endswith(".pyc") and path not in touched and _source_of(path) in sources:
            compiled.setdefault(path, (row.state.size, row.state.mtime_ns))
    return History((*history.entries, entry), changes, compiled)


def _source_of(compiled: str) -> str:
    """Return the source of a compiled file, by its name."""
    folder, _, name = compiled.rpartition("/")
    if folder.rpartition("/")[2] == "__pycache__":
        return f"{folder.rpartition('/')[0]}/{name.split('.', 1)[0]}.py".lstrip("/")
    return compiled.removesuffix("c")


# ---------------------------------------------------------------- what speaks against an undo


def conflicts(top: str, history: History, kept: Bytes) -> tuple[list[str], list[str], set[str]]:
    """Return the paths that somebody changed since we did; those whose bytes are lost.

    Those of both that cannot be undone.
    """
    real: set[str] = set()
    hashes = snapshot.digests(_to_hash(top, history, real))
    foreign, lost, left = [], [], set()
    for path, change in history.changes.items():
        before, after = change.before, change.after
        if is_derived(path):
            continue
        ours = any(is_now(top, path, one, hashes, real) for one in (after, before))
        # An undo puts something else where a folder is: then nobody's files may be in it.
        gives_way = before is not None and before.type != "dir" and after is not None and after.type == "dir"
        if not ours or (gives_way and paths_in_way(top, path, history.changes)):
            foreign.append(path)
            left.add(path)
        elif before is not None and before.type == "file" and not kept.are_whole(before, change.kept):
            lost.append(path)
            left.add(path)
        elif change.foreign:
            foreign.append(path)
    return foreign, lost, left


def _to_hash(top: str, history: History, real: set[str]) -> set[str]:
    """Return files whose size does not tell already whether somebody changed them."""
    wanted = set()
    for path, change in history.changes.items():
        info = None if is_derived(path) else look(top, path, real)
        if info is not None and stat.S_ISREG(info.st_mode):
            sizes = {state.size for state in (change.before, change.after) if state is not None}
            if info.st_size in sizes:
                wanted.add(f"{top}/{path}")
    return wanted


def is_now(
    top: str, path: str, state: PathState | None, hashes: dict[str, str], real: set[str] | None = None
) -> bool:
    """Return whether a path is now in this state: type, size, mode and hash.

    A file whose hash is not known never is.

    `hashes` remembers the hashes of files from one call to the next.
    """
    now = snapshot.see(top, path, real)
    if now is None:
        return state is None and look(top, path, real) is None
    if state is None or now.type != state.type:
        return False
    if now.type == "file":
        if state.sha256 is None or now.size != state.size:
            return False
        place = f"{top}/{path}"
        if place not in hashes:
            hashes[place] = snapshot.digest(place)
        now = now._replace(sha256=hashes[place])
    return alike(now, state)


def check_conflicts(foreign: list[str], lost: list[str]) -> None:
    """Raise JournalError where an undo would overwrite somebody's work, or could not do all."""
    if not foreign and not lost:
        return
    parts = []
    if foreign:
        parts.append(f"changed by somebody since tfdoctor changed them: {join_paths(foreign)}")
    if lost:
        parts.append(
            f"what they were is no longer kept, for a program wrote into the files themselves: {join_paths(lost)}"
        )
    message = "Nothing was taken back: " + "; ".join(parts) + "."
    raise JournalError(
        message, hint="With --force these are left as they are, and everything else is taken back."
    )


def join_paths(paths: Iterable[str]) -> str:
    """Return up to ten paths, for a sentence."""
    names = sorted(paths)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(clean_line(name) for name in names[:_LISTED]) + more


# ---------------------------------------------------------------- on the disk


def numbers(own: str) -> list[int]:
    """Return the steps that have a folder, oldest first. Raises JournalError, OSError."""
    steps = f"{own}/{STEPS}"
    if not is_folder(steps):
        if os.path.lexists(steps):
            raise make_damage_error(steps, "not a folder")
        return []
    found = os.listdir(steps)  # noqa: PTH208 - as in snapshot.py
    return sorted(int(name) for name in found if _NUMBER.fullmatch(name) and is_folder(f"{steps}/{name}"))


def write_history(own: str, history: History) -> None:
    """From now on, this is what was done. Raises OSError."""
    value = {
        "entries": [
            {name: getattr(entry, name) for name in HistoryEntry.__slots__} for entry in history.entries
        ],
        "changes": [
            {
                **change._asdict(),
                "before": _state_to_json(change.before),
                "after": _state_to_json(change.after),
            }
            for change in history.changes.values()
        ],
        "compiled": [[path, *size_mtime] for path, size_mtime in sorted(history.compiled.items())],
    }
    write_json(f"{own}/{HISTORY}", value)


def _state_to_json(state: PathState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    value = state._asdict()
    del value["inode"]
    return value


def read_history(own: str) -> History:
    """Return what was done; empty if nothing was. Raises JournalError if it cannot be relied on, OSError."""
    place = f"{own}/{HISTORY}"
    try:
        value = read_json(place, {"entries", "changes", "compiled"})
    except FileNotFoundError:
        for number in numbers(own):
            if look(own, f"{STEPS}/{number}/record.json") is not None:
                raise older(own) from None
        return History()
    try:
        entries = tuple(_read_entry(item) for item in value["entries"])
        changes = {change.path: change for change in map(_read_change, value["changes"])}
        if len(changes) != len(value["changes"]):
            raise make_damage_error(place, "a path twice")
        compiled = {check_path(path): (int(size), int(mtime)) for path, size, mtime in value["compiled"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise make_damage_error(place, "not what tfdoctor writes") from error
    return History(entries, changes, compiled)


def _read_entry(item: dict[str, Any]) -> HistoryEntry:
    """Raises KeyError, TypeError, ValueError."""
    texts, counts = (item["title"], item["when"], *item["codes"]), (item["number"], item["changes"])
    if (
        set(item) != set(HistoryEntry.__slots__)
        or not isinstance(item["codes"], list)
        or not all(isinstance(text, str) for text in texts)
        or not all(type(count) is int and count >= 0 for count in counts)
    ):
        raise ValueError("not an entry")
    return HistoryEntry(**{**item, "codes": tuple(item["codes"])})


def _read_change(item: dict[str, Any]) -> PathChange:
    """Raises KeyError, TypeError, ValueError."""
    if set(item) != set(PathChange._fields) or type(item["foreign"]) is not bool:
        raise ValueError("not a change")
    before, after = (
        None if side is None else check_state(PathState(**side)) for side in (item["before"], item["after"])
    )
    kept = check_kept(item["kept"])
    if kept is not None and (before is None or before.type != "file"):
        raise ValueError("bytes of what is no file")
    return PathChange(check_path(item["path"]), before, after, kept, item["foreign"])


def write_undo(own: str, left: Iterable[str]) -> None:
    """From now on everything is taken back but these paths, whatever happens. Raises OSError."""
    write_json(f"{own}/{UNDO}", {"left": sorted(left)})


def read_undo(own: str) -> set[str] | None:
    """Return the paths that an undo leaves; None if none was begun. Raises JournalError, OSError."""
    place = f"{own}/{UNDO}"
    try:
        value = read_json(place, {"left"})
    except FileNotFoundError:
        return None
    try:
        return {check_path(path) for path in value["left"]}
    except (TypeError, ValueError) as error:
        raise make_damage_error(place, "not what tfdoctor writes") from error
