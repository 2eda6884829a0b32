"""The recorded changes of an environment: its states before the first and after the last step.

`history.json` holds the finished steps and every path that differs from the state before the first of them, with both
states and the location of the old contents. `with_step` merges a step into it.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor.environment.folder import is_folder
from tfdoctor.environment.history import snapshot
from tfdoctor.environment.history.restore import KeptContents, list_blocking_paths
from tfdoctor.environment.history.snapshot import (
    JournalError,
    PathChange,
    PathState,
    are_equal,
    check_kept,
    check_path,
    check_state,
    is_derived,
    lstat_below,
    make_damage_error,
    make_format_error,
    read_json,
    write_json,
)
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdoctor.environment.history.snapshot import PathRow

HISTORY, UNDO, STEPS = "history.json", "undo.json", "steps"
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_MAX_LISTED_PATHS = 10
"""The largest number of paths named in a sentence."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A finished step. `when` is in UTC, as ISO 8601; `changes` is the number of paths that it changed."""

    number: int
    title: str
    codes: tuple[str, ...]
    when: str
    changes: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """All finished steps since the environment was in its original state, and their combined changes."""

    entries: tuple[HistoryEntry, ...] = ()
    """Oldest first."""
    changes: Mapping[str, PathChange] = field(default_factory=dict)
    """The state before the first step and after the last one, by path."""
    compiled: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """(size, mtime) by path, of compiled files that match the original state although their sources were changed."""

    def __contains__(self, number: int) -> bool:
        return any(entry.number == number for entry in self.entries)


# ---------------------------------------------------------------- merging a step


def compute_changes(
    top: str, steps: str, rows: Mapping[str, PathRow], found: Mapping[str, PathState]
) -> list[PathChange]:
    """Return the changes of a step, with the hashes of both states. Raise OSError.

    `rows` is the snapshot before the step, `found` a scan after it.
    """
    contents, changed = KeptContents(steps), snapshot.differences(top, rows, found)
    paths_to_hash = {}  # of files kept by hard link, unless somebody wrote into them
    for change in changed:
        before, kept_file = change.before, change.kept
        if before is not None and kept_file is not None and before.sha256 is None:
            paths_to_hash[change.path] = (
                contents.get_path(kept_file) if contents.are_intact(before, kept_file) else ""
            )
    current_files = [
        f"{top}/{change.path}" for change in changed if change.after and change.after.type == "file"
    ]
    hashes = snapshot.digests([*current_files, *filter(None, paths_to_hash.values())])
    result = []
    for change in changed:
        path, before, after, kept_file = change.path, change.before, change.after, change.kept
        if before is not None and path in paths_to_hash:
            before = before._replace(sha256=hashes.get(paths_to_hash[path]))
            kept_file = kept_file if before.sha256 is not None else None
        if after is not None and after.type == "file":
            after = after._replace(sha256=hashes.get(f"{top}/{path}"))
        complete = PathChange(path, before, after, kept_file)
        if not _is_unchanged(complete):  # otherwise the file was replaced by an identical one
            result.append(complete)
    return result


def _is_unchanged(change: PathChange) -> bool:
    """Return whether both states of a path are the same."""
    before = change.before
    is_known = before is None or before.type != "file" or before.sha256 is not None
    return is_known and are_equal(before, change.after, times=True)


def _began_with(before: PathState | None, state: PathState | None) -> bool:
    """Return whether a step began with this state.

    A file that was modified in place has no hash: its size and mtime are compared instead.
    """
    if before is not None and state is not None and before.type == "file" and before.sha256 is None:
        before = before._replace(sha256=state.sha256)
        return are_equal(before, state, times=True)
    return are_equal(before, state)


def with_step(
    history: History, entry: HistoryEntry, found: Iterable[PathChange], rows: Mapping[str, PathRow]
) -> History:
    """Return the history with one more step: the oldest "before" and the newest "after" of each path.

    If somebody else changed a path between two steps, an undo restores what they made of it. `found` are the
    changes of this step, `rows` its snapshot.
    """
    changes, compiled = dict(history.changes), dict(history.compiled)
    found = list(found)
    for change in found:
        path, before = change.path, change.before
        merged, previous = change, changes.pop(path, None)
        if previous is not None:
            ours = is_derived(path) or any(
                _began_with(before, state) for state in (previous.after, previous.before)
            )
            merged = previous._replace(after=change.after) if ours else change._replace(foreign=True)
        elif (
            before is not None
            and path.endswith(".pyc")
            and _find_source(path) in history.changes
            and compiled.get(path) != (before.size, before.mtime_ns)
        ):
            # Python had compiled it from a source that we changed
            merged = change._replace(before=None, kept=None)
        changes[path] = merged
    touched = {change.path for change in found}
    sources = {path for path in touched if path.endswith(".py") and path not in history.changes}
    for path, saved in rows.items():
        if sources and path.endswith(".pyc") and path not in touched and _find_source(path) in sources:
            compiled.setdefault(path, (saved.state.size, saved.state.mtime_ns))
    return History((*history.entries, entry), changes, compiled)


def _find_source(compiled: str) -> str:
    """Return the source path of a compiled file, derived from its name."""
    folder, _, name = compiled.rpartition("/")
    if folder.rpartition("/")[2] == "__pycache__":
        return f"{folder.rpartition('/')[0]}/{name.split('.', 1)[0]}.py".lstrip("/")
    return compiled.removesuffix("c")


# ---------------------------------------------------------------- conflicts with an undo


def find_conflicts(top: str, history: History, kept: KeptContents) -> tuple[list[str], list[str], set[str]]:
    """Return the paths changed by somebody else, those whose contents are lost, and those not to undo.

    The third is a set of paths from the first two. A path that somebody changed between two steps is in the first list
    only, because it can be undone.
    """
    real: set[str] = set()
    hashes = snapshot.digests(_list_files_to_hash(top, history, real))
    foreign_paths, lost_paths, skipped = [], [], set()
    for path, change in history.changes.items():
        before, after = change.before, change.after
        if is_derived(path):
            continue
        ours = any(has_state(top, path, state, hashes, real) for state in (after, before))
        # An undo replaces the folder by something else, so it must not contain anybody's files.
        gives_way = before is not None and before.type != "dir" and after is not None and after.type == "dir"
        if not ours or (gives_way and list_blocking_paths(top, path, history.changes)):
            foreign_paths.append(path)
            skipped.add(path)
        elif before is not None and before.type == "file" and not kept.are_intact(before, change.kept):
            lost_paths.append(path)
            skipped.add(path)
        elif change.foreign:
            foreign_paths.append(path)
    return foreign_paths, lost_paths, skipped


def _list_files_to_hash(top: str, history: History, real: set[str]) -> set[str]:
    """Return the files whose size alone does not show whether somebody changed them."""
    paths = set()
    for path, change in history.changes.items():
        info = None if is_derived(path) else lstat_below(top, path, real)
        if info is not None and stat.S_ISREG(info.st_mode):
            sizes = {state.size for state in (change.before, change.after) if state is not None}
            if info.st_size in sizes:
                paths.add(f"{top}/{path}")
    return paths


def has_state(
    top: str, path: str, state: PathState | None, hashes: dict[str, str], real: set[str] | None = None
) -> bool:
    """Return whether a path is now in this state: type, size, mode and hash.

    A file state without a hash never matches. `hashes` caches the hashes of files between calls.
    """
    current = snapshot.read_state(top, path, real)
    if current is None:
        return state is None and lstat_below(top, path, real) is None
    if state is None or current.type != state.type:
        return False
    if current.type == "file":
        if state.sha256 is None or current.size != state.size:
            return False
        absolute = f"{top}/{path}"
        if absolute not in hashes:
            hashes[absolute] = snapshot.digest(absolute)
        current = current._replace(sha256=hashes[absolute])
    return are_equal(current, state)


def check_conflicts(foreign: list[str], lost: list[str]) -> None:
    """Raise JournalError if an undo would overwrite somebody's changes, or if contents are lost."""
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
    """Return up to ten paths as text, and the number of the others."""
    names = sorted(paths)
    suffix = f" and {len(names) - _MAX_LISTED_PATHS} more" if len(names) > _MAX_LISTED_PATHS else ""
    return ", ".join(clean_line(name) for name in names[:_MAX_LISTED_PATHS]) + suffix


# ---------------------------------------------------------------- files


def list_step_numbers(own: str) -> list[int]:
    """Return the numbers of the steps that have a folder, in ascending order. Raise JournalError, OSError."""
    steps = f"{own}/{STEPS}"
    if not is_folder(steps):
        if os.path.lexists(steps):
            raise make_damage_error(steps, "not a folder")
        return []
    names = os.listdir(steps)  # noqa: PTH208 - as in snapshot.py
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name) and is_folder(f"{steps}/{name}"))


def write_history(own: str, history: History) -> None:
    """Write the history. Raise OSError."""
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
    """Return the JSON object of a state, without its inode."""
    if state is None:
        return None
    value = state._asdict()
    del value["inode"]
    return value


def read_history(own: str) -> History:
    """Return the history; it is empty if no file exists. Raise JournalError if it is damaged, or OSError."""
    history_path = f"{own}/{HISTORY}"
    try:
        value = read_json(history_path, {"entries", "changes", "compiled"})
    except FileNotFoundError:
        for number in list_step_numbers(own):
            if lstat_below(own, f"{STEPS}/{number}/record.json") is not None:
                raise make_format_error(own) from None
        return History()
    try:
        entries = tuple(_parse_entry(item) for item in value["entries"])
        changes = {change.path: change for change in map(_parse_change, value["changes"])}
        if len(changes) != len(value["changes"]):
            raise make_damage_error(history_path, "a path twice")
        compiled = {check_path(path): (int(size), int(mtime)) for path, size, mtime in value["compiled"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise make_damage_error(history_path, "not what tfdoctor writes") from error
    return History(entries, changes, compiled)


def _parse_entry(entry: dict[str, Any]) -> HistoryEntry:
    """Parse and check an entry. Raise KeyError, TypeError, ValueError."""
    texts, counts = (entry["title"], entry["when"], *entry["codes"]), (entry["number"], entry["changes"])
    if (
        set(entry) != set(HistoryEntry.__slots__)
        or not isinstance(entry["codes"], list)
        or not all(isinstance(text, str) for text in texts)
        or not all(type(count) is int and count >= 0 for count in counts)
    ):
        raise ValueError("not an entry")
    return HistoryEntry(**{**entry, "codes": tuple(entry["codes"])})


def _parse_change(change: dict[str, Any]) -> PathChange:
    """Parse and check a change. Raise KeyError, TypeError, ValueError."""
    if set(change) != set(PathChange._fields) or type(change["foreign"]) is not bool:
        raise ValueError("not a change")
    before, after = (
        None if state is None else check_state(PathState(**state))
        for state in (change["before"], change["after"])
    )
    kept_file = check_kept(change["kept"])
    if kept_file is not None and (before is None or before.type != "file"):
        raise ValueError("bytes of what is no file")
    return PathChange(check_path(change["path"]), before, after, kept_file, change["foreign"])


def write_undo(own: str, left: Iterable[str]) -> None:
    """Record that an undo has begun, and the paths that it leaves. Raise OSError."""
    write_json(f"{own}/{UNDO}", {"left": sorted(left)})


def read_undo(own: str) -> set[str] | None:
    """Return the paths that an undo leaves; None if none has begun. Raise JournalError, OSError."""
    undo_path = f"{own}/{UNDO}"
    try:
        value = read_json(undo_path, {"left"})
    except FileNotFoundError:
        return None
    try:
        return {check_path(path) for path in value["left"]}
    except (TypeError, ValueError) as error:
        raise make_damage_error(undo_path, "not what tfdoctor writes") from error
