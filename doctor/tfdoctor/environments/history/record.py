"""Read, write and extend the history of an environment, and find conflicts with an undo.

`history.json` lists the finished steps, and every path that they changed: its state before the first step, its state
after the last step, and the location of its old contents. `add_step` merges another step into the history.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor.core.text import clean_line, join_first
from tfdoctor.environments.folder import is_folder
from tfdoctor.environments.history import snapshot
from tfdoctor.environments.history.restore import SavedContents, list_blocking_paths
from tfdoctor.environments.history.snapshot import (
    JournalError,
    PathChange,
    PathState,
    are_equal_states,
    is_python_cache,
    lstat_below,
    make_damage_error,
    make_format_error,
    parse_saved_file,
    read_json,
    validate_path,
    validate_state,
    write_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdoctor.environments.history.snapshot import SnapshotEntry

HISTORY_FILE, UNDO_FILE, STEPS_FOLDER = "history.json", "undo.json", "steps"
"""The names of the files, and of the folder that contains all steps, in `.tfdoctor`."""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_MAX_LISTED_PATHS = 10
"""The largest number of paths that a message lists."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A finished step. The field names are keys in history.json."""

    number: int
    title: str
    codes: tuple[str, ...]
    """The codes of the findings that the step fixed."""
    when: str
    """The time in UTC, in ISO 8601 format."""
    changes: int = 0
    """The number of changed paths."""


@dataclass(frozen=True, slots=True)
class History:
    """All finished steps since the original state of the environment, and their combined changes."""

    entries: tuple[HistoryEntry, ...] = ()
    """Oldest first."""
    changes: Mapping[str, PathChange] = field(default_factory=dict)
    """The combined change of each path, by path."""
    valid_pyc: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """(size, mtime in ns) of the compiled files that belong to the original versions of changed sources, by path."""

    def __contains__(self, number: int) -> bool:
        return any(entry.number == number for entry in self.entries)


# ---------------------------------------------------------------- merging a step


def compute_changes(
    top: str, steps: str, old_entries: Mapping[str, SnapshotEntry], new_states: Mapping[str, PathState]
) -> list[PathChange]:
    """Return the changes that a step made, with the hashes of both states.

    `top` is the environment, and `steps` the folder of all steps. `old_entries` is the snapshot before the step, and
    `new_states` are the states after the step. Raise OSError if a file cannot be read.
    """
    contents, changes = SavedContents(steps), snapshot.compare_with_snapshot(top, old_entries, new_states)
    paths_to_hash = {}  # the saved hard links, by path in the environment; "" if a program wrote into the file
    for change in changes:
        before, saved_file = change.before, change.kept
        if before is not None and saved_file is not None and before.sha256 is None:
            paths_to_hash[change.path] = (
                contents.get_path(saved_file) if contents.are_intact(before, saved_file) else ""
            )
    current_files = [
        f"{top}/{change.path}" for change in changes if change.after and change.after.type == "file"
    ]
    hashes = snapshot.hash_files([*current_files, *filter(None, paths_to_hash.values())])
    result = []
    for change in changes:
        path, before, after, saved_file = change.path, change.before, change.after, change.kept
        if before is not None and path in paths_to_hash:
            before = before._replace(sha256=hashes.get(paths_to_hash[path]))
            saved_file = saved_file if before.sha256 is not None else None
        if after is not None and after.type == "file":
            after = after._replace(sha256=hashes.get(f"{top}/{path}"))
        change_with_hashes = PathChange(path=path, before=before, after=after, kept=saved_file)
        if not _is_unchanged(change_with_hashes):  # not if the file was replaced by an identical file
            result.append(change_with_hashes)
    return result


def _is_unchanged(change: PathChange) -> bool:
    """Return whether both states of a path are known to be the same."""
    before = change.before
    is_known = before is None or before.type != "file" or before.sha256 is not None
    return is_known and are_equal_states(before, change.after, compare_times=True)


def _matches_state(before: PathState | None, state: PathState | None) -> bool:
    """Return whether `before`, the state at the beginning of a step, is the same as `state`.

    If `before` has no hash, because the file was modified in place, sizes and mtimes are compared instead.
    """
    if before is not None and state is not None and before.type == "file" and before.sha256 is None:
        before = before._replace(sha256=state.sha256)
        return are_equal_states(before, state, compare_times=True)
    return are_equal_states(before, state)


def add_step(
    history: History,
    entry: HistoryEntry,
    step_changes: Iterable[PathChange],
    old_entries: Mapping[str, SnapshotEntry],
) -> History:
    """Return the history with one more step.

    `step_changes` are the changes of the step, and `old_entries` is its snapshot. A merged change has the oldest state as
    `before` and the newest as `after`. If another program changed the path between two steps, `before` is the state that
    the program left.
    """
    changes, compiled = dict(history.changes), dict(history.valid_pyc)
    step_changes = list(step_changes)
    for change in step_changes:
        path, before = change.path, change.before
        merged, previous = change, changes.pop(path, None)
        if previous is not None:
            is_recorded_state = is_python_cache(path) or any(
                _matches_state(before, state) for state in (previous.after, previous.before)
            )
            merged = (
                previous._replace(after=change.after) if is_recorded_state else change._replace(foreign=True)
            )
        elif (
            before is not None
            and path.endswith(".pyc")
            and _find_source(path) in history.changes
            and compiled.get(path) != (before.size, before.mtime_ns)
        ):
            # Python compiled the file from a source that an earlier step changed, so undo must delete the file.
            merged = change._replace(before=None, kept=None)
        changes[path] = merged
    changed_paths = {change.path for change in step_changes}
    changed_sources = {path for path in changed_paths if path.endswith(".py") and path not in history.changes}
    for path, old_entry in old_entries.items():
        if (
            changed_sources
            and path.endswith(".pyc")
            and path not in changed_paths
            and _find_source(path) in changed_sources
        ):
            compiled.setdefault(path, (old_entry.state.size, old_entry.state.mtime_ns))
    return History(entries=(*history.entries, entry), changes=changes, valid_pyc=compiled)


def _find_source(compiled_path: str) -> str:
    """Return the path of the source of a compiled file, according to its name."""
    folder, _, name = compiled_path.rpartition("/")
    if folder.rpartition("/")[2] == "__pycache__":
        return f"{folder.rpartition('/')[0]}/{name.split('.', 1)[0]}.py".lstrip("/")
    return compiled_path.removesuffix("c")


# ---------------------------------------------------------------- conflicts with an undo


def find_conflicts(
    top: str, history: History, contents: SavedContents
) -> tuple[list[str], list[str], set[str]]:
    """Return (paths changed by other programs, paths whose old contents are lost, paths not to restore).

    The third collection does not contain paths that another program changed between two steps, because the change of the
    later step can be undone. Files that Python creates itself are in no collection.
    """
    real_folders: set[str] = set()
    hashes = snapshot.hash_files(_list_files_to_hash(top, history, real_folders))
    externally_changed, lost_paths, skipped = [], [], set()
    for path, change in history.changes.items():
        before, after = change.before, change.after
        if is_python_cache(path):
            continue
        is_recorded_state = any(
            has_state(top, path, state, hashes, real_folders) for state in (after, before)
        )
        # An undo replaces this folder with a file or link, so it must not contain other files.
        blocks_restore = (
            before is not None and before.type != "dir" and after is not None and after.type == "dir"
        )
        if not is_recorded_state or (blocks_restore and list_blocking_paths(top, path, history.changes)):
            externally_changed.append(path)
            skipped.add(path)
        elif before is not None and before.type == "file" and not contents.are_intact(before, change.kept):
            lost_paths.append(path)
            skipped.add(path)
        elif change.foreign:
            externally_changed.append(path)
    return externally_changed, lost_paths, skipped


def _list_files_to_hash(top: str, history: History, real_folders: set[str]) -> set[str]:
    """Return the files whose size is that of a recorded state, so that they must be compared by hash."""
    paths = set()
    for path, change in history.changes.items():
        info = None if is_python_cache(path) else lstat_below(top, path, real_folders)
        if info is not None and stat.S_ISREG(info.st_mode):
            sizes = {state.size for state in (change.before, change.after) if state is not None}
            if info.st_size in sizes:
                paths.add(f"{top}/{path}")
    return paths


def has_state(
    top: str, path: str, state: PathState | None, hashes: dict[str, str], real_folders: set[str] | None = None
) -> bool:
    """Return whether the type, size, mode and hash of a path are those of a state.

    None is the state of a path that does not exist. A file state without a hash never matches. `hashes` is a cache that
    maps absolute paths to hashes.
    """
    current = snapshot.read_state(top, path, real_folders)
    if current is None:
        return state is None and lstat_below(top, path, real_folders) is None
    if state is None or current.type != state.type:
        return False
    if current.type == "file":
        if state.sha256 is None or current.size != state.size:
            return False
        absolute_path = f"{top}/{path}"
        if absolute_path not in hashes:
            hashes[absolute_path] = snapshot.hash_file(absolute_path)
        current = current._replace(sha256=hashes[absolute_path])
    return are_equal_states(current, state)


def require_no_conflicts(externally_changed: list[str], lost_paths: list[str]) -> None:
    """Raise JournalError if other programs changed any paths, or if the old contents of any paths are lost."""
    if not externally_changed and not lost_paths:
        return
    parts = []
    if externally_changed:
        parts.append(f"changed by somebody since tfdoctor changed them: {join_paths(externally_changed)}")
    if lost_paths:
        parts.append(
            f"what they were is no longer kept, for a program wrote into the files themselves: {join_paths(lost_paths)}"
        )
    message = "Nothing was taken back: " + "; ".join(parts) + "."
    raise JournalError(
        message, hint="With --even-if-changed these are left as they are, and everything else is taken back."
    )


def join_paths(paths: Iterable[str]) -> str:
    """Join the first `_MAX_LISTED_PATHS` paths to a text for a message, and add the number of the others."""
    return join_first([clean_line(path) for path in sorted(paths)], _MAX_LISTED_PATHS)


# ---------------------------------------------------------------- files


def list_step_numbers(state_folder: str) -> list[int]:
    """Return the numbers of the steps that have a folder, in ascending order.

    Raise JournalError if the folder of steps is not a folder, or OSError if it cannot be listed.
    """
    steps = f"{state_folder}/{STEPS_FOLDER}"
    if not is_folder(steps):
        if os.path.lexists(steps):
            raise make_damage_error(steps, "not a folder")
        return []
    names = os.listdir(steps)  # noqa: PTH208 - as in snapshot.py
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name) and is_folder(f"{steps}/{name}"))


def write_history(state_folder: str, history: History) -> None:
    """Write history.json. Raise OSError if that fails."""
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
        "compiled": [[path, *size_mtime] for path, size_mtime in sorted(history.valid_pyc.items())],
    }
    write_json(f"{state_folder}/{HISTORY_FILE}", value)


def _state_to_json(state: PathState | None) -> dict[str, Any] | None:
    """Return the JSON object of a state, without its inode."""
    if state is None:
        return None
    value = state._asdict()
    del value["inode"]
    return value


def read_history(state_folder: str) -> History:
    """Return the history; it is empty if history.json does not exist.

    Raise JournalError if the file is damaged or has an older format, or OSError if it cannot be read.
    """
    history_path = f"{state_folder}/{HISTORY_FILE}"
    try:
        value = read_json(history_path, {"entries", "changes", "compiled"})
    except FileNotFoundError:
        for number in list_step_numbers(state_folder):  # format 1 had a record.json for each step
            if lstat_below(state_folder, f"{STEPS_FOLDER}/{number}/record.json") is not None:
                raise make_format_error(state_folder) from None
        return History()
    try:
        entries = tuple(_parse_entry(item) for item in value["entries"])
        changes = {change.path: change for change in map(_parse_change, value["changes"])}
        if len(changes) != len(value["changes"]):
            raise make_damage_error(history_path, "a path twice")
        compiled = {validate_path(path): (int(size), int(mtime)) for path, size, mtime in value["compiled"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise make_damage_error(history_path, "not what tfdoctor writes") from error
    return History(entries=entries, changes=changes, valid_pyc=compiled)


def _parse_entry(entry: dict[str, Any]) -> HistoryEntry:
    """Parse an entry of history.json. Raise KeyError, TypeError or ValueError if it is not valid."""
    texts = (entry["title"], entry["when"], *entry["codes"])
    counts = (entry["number"], entry["changes"])
    if (
        set(entry) != set(HistoryEntry.__slots__)
        or not isinstance(entry["codes"], list)
        or not all(isinstance(text, str) for text in texts)
        or not all(type(count) is int and count >= 0 for count in counts)
    ):
        raise ValueError("not an entry")
    return HistoryEntry(**{**entry, "codes": tuple(entry["codes"])})


def _parse_change(change: dict[str, Any]) -> PathChange:
    """Parse a change in history.json. Raise KeyError, TypeError or ValueError if it is not valid."""
    if set(change) != set(PathChange._fields) or type(change["foreign"]) is not bool:
        raise ValueError("not a change")
    before, after = (
        None if state is None else validate_state(PathState(**state))
        for state in (change["before"], change["after"])
    )
    saved_file = parse_saved_file(change["kept"])
    if saved_file is not None and (before is None or before.type != "file"):
        raise ValueError("bytes of what is no file")
    return PathChange(
        path=validate_path(change["path"]),
        before=before,
        after=after,
        kept=saved_file,
        foreign=change["foreign"],
    )


def write_undo(state_folder: str, unrestored: Iterable[str]) -> None:
    """Record that an undo has begun, and the paths that it does not restore. Raise OSError if that fails."""
    write_json(f"{state_folder}/{UNDO_FILE}", {"left": sorted(unrestored)})


def read_undo(state_folder: str) -> set[str] | None:
    """Return the paths that the undo in progress does not restore; None if no undo has begun.

    Raise JournalError if undo.json is damaged, or OSError if it cannot be read.
    """
    undo_path = f"{state_folder}/{UNDO_FILE}"
    try:
        value = read_json(undo_path, {"left"})
    except FileNotFoundError:
        return None
    try:
        return {validate_path(path) for path in value["left"]}
    except (TypeError, ValueError) as error:
        raise make_damage_error(undo_path, "not what tfdoctor writes") from error
