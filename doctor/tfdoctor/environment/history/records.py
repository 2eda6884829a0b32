"""The journal's records: what a step is on the disk, read as if a stranger had written it."""
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tfdoctor.environment.history import snapshot
from tfdoctor.environment.history.restore import Bytes
from tfdoctor.environment.history.snapshot import (
    KEPT_PACK,
    PACK,
    SCHEMA_VERSION,
    JournalError,
    Kept,
    State,
    checked_kept,
    checked_path,
    damaged,
    look,
)

Kind = Literal["added", "removed", "changed"]
RECORD, UNDO, STEPS = "record.json", "undo.json", "steps"
NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a path (relative to the environment, "/" between its parts)."""

    path: str
    kind: Kind
    before: State | None
    after: State | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A step that was done. `when`: UTC, ISO 8601."""

    number: int
    title: str
    codes: tuple[str, ...]
    when: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did. `restored` counts paths; `kept` are those left because somebody changed them since."""

    entries: tuple[Entry, ...]
    restored: int
    kept: tuple[str, ...]


class Record(NamedTuple):
    """A step's record.json."""

    state: Literal["begun", "committed"]
    entry: Entry
    kept: dict[str, Kept]
    """path → where the bytes of `before` are; missing where they were lost."""
    compiled: dict[str, tuple[int, int]]
    """path → size and mtime of compiled files that did not change though their source did."""


def record_of(top: str, folder: str, entry: Entry) -> Record:
    """Compare what is there with the snapshot: the record of a step that is done. Raises OSError."""
    scope, rows = snapshot.read_manifest(folder)
    found = snapshot.scan(top, scope)
    kept_bytes = Bytes(folder, PACK)
    changed = snapshot.differences(top, rows, found)
    to_hash = [f"{top}/{path}" for path, _, seen in changed if seen is not None and seen.type == "file"]
    for _, row, _ in changed:
        if row is not None and row.kept is not None and row.kept.link is not None:
            unsure = State("file", row.seen.mode, row.seen.size, None, None, row.seen.mtime_ns)
            if kept_bytes.are_whole(unsure, row.kept):
                to_hash.append(kept_bytes.place(row.kept))
    hashes = snapshot.digests(to_hash)
    changes, kept = [], {}
    for path, row, seen in changed:
        before = after = None
        if row is not None:
            sha256 = row.sha256
            if row.kept is not None and row.kept.link is not None:
                sha256 = hashes.get(kept_bytes.place(row.kept))
            before = snapshot.state_of(row.seen, sha256)
            if row.kept is not None and sha256 is not None:
                kept[path] = row.kept
        if seen is not None:
            after = snapshot.state_of(seen, hashes.get(f"{top}/{path}"))
        if before is not None and after is not None and before == after and path in kept:
            continue  # replaced by the same
        kind: Kind = "added" if before is None else "removed" if after is None else "changed"
        changes.append(Change(path, kind, before, after))
    done = Entry(entry.number, entry.title, entry.codes, entry.when, tuple(changes))
    paths = {change.path for change in changes}
    sources = {path for path in paths if path.endswith(".py")}
    compiled = {
        path: (row.seen.size, row.seen.mtime_ns)
        for path, row in rows.items()
        if sources and path.endswith(".pyc") and path not in paths and _source(path) in sources
    }
    return Record("committed", done, _keep_pieces(kept_bytes, folder, paths, kept), compiled)


def _source(compiled: str) -> str:
    """The source of a compiled file, by its name."""
    folder, _, name = compiled.rpartition("/")
    if folder.rpartition("/")[2] == "__pycache__":
        return f"{folder.rpartition('/')[0]}/{name.split('.', 1)[0]}.py".lstrip("/")
    return compiled.removesuffix("c")


def _keep_pieces(kept_bytes: Bytes, folder: str, paths: set[str], kept: dict[str, Kept]) -> dict[str, Kept]:
    """Where the bytes of changed files are once the snapshot's pack is gone: the pieces needed get their own."""
    result, offset = {}, 0
    with open(f"{folder}/{KEPT_PACK}", "wb") as pack:
        for path in sorted(kept.keys() & paths):
            place = kept[path]
            if place.link is None:
                for block in kept_bytes.blocks(place):
                    pack.write(block)
                place = place._replace(offset=offset)
                offset += place.length
            result[path] = place
        pack.flush()
        os.fsync(pack.fileno())
    return result


def write_record(folder: str, record: Record) -> None:
    entry = record.entry
    value = {
        "schema_version": SCHEMA_VERSION,
        "state": record.state,
        "number": entry.number,
        "title": entry.title,
        "codes": entry.codes,
        "when": entry.when,
        "changes": [
            {
                "path": change.path,
                "kind": change.kind,
                "before": _state(change.before),
                "after": _state(change.after),
                "kept": record.kept.get(change.path),
            }
            for change in entry.changes
        ],
        "compiled": [[path, *size_mtime] for path, size_mtime in sorted(record.compiled.items())],
    }
    snapshot.write_atomically(f"{folder}/{RECORD}", value)


def _state(state: State | None) -> dict[str, Any] | None:
    """A state as JSON. (`dataclasses.asdict` copies deeply: seconds, for an environment.)"""
    return None if state is None else {name: getattr(state, name) for name in State.__slots__}


def read_record(own: str, number: int) -> Record | None:
    """None where the step was never begun. Raises JournalError where the record cannot be relied on."""
    place = f"{own}/{STEPS}/{number}/{RECORD}"
    if look(own, f"{STEPS}/{number}/{RECORD}") is None:
        return None
    try:
        value = snapshot.read_json(place)
    except FileNotFoundError:
        return None
    try:
        _check_version(value, place)
        expected = {"schema_version", "state", "number", "title", "codes", "when", "changes", "compiled"}
        if (
            set(value) != expected
            or value["number"] != number
            or value["state"] not in {"begun", "committed"}
        ):
            raise damaged(place, "not what tfdoctor writes")
        texts = [value["title"], value["when"], *value["codes"]]
        if not isinstance(value["codes"], list) or not all(isinstance(text, str) for text in texts):
            raise damaged(place, "not what tfdoctor writes")
        changes, kept = {}, {}
        for item in value["changes"]:
            change, where = _read_change(item)
            if change.path in changes:
                raise damaged(place, "a path twice")
            changes[change.path] = change
            if where is not None:
                kept[change.path] = where
        compiled = {checked_path(path): (int(size), int(mtime)) for path, size, mtime in value["compiled"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(place, "not what tfdoctor writes") from error
    codes = tuple(value["codes"])
    entry = Entry(number, value["title"], codes, value["when"], tuple(changes.values()))
    return Record(value["state"], entry, kept, compiled)


def _check_version(value: Any, place: str) -> None:
    version = value["schema_version"]
    if type(version) is int and version > SCHEMA_VERSION:
        message = f"{place}: written by a newer tfdoctor"
        raise JournalError(message, hint="Upgrade tfdoctor: `pip install --upgrade tfdoctor`.")
    if version != SCHEMA_VERSION:
        raise damaged(place, "of no version that there is")


def _read_change(item: dict[str, Any]) -> tuple[Change, Kept | None]:
    """Raises KeyError, TypeError, ValueError."""
    if set(item) != {"path", "kind", "before", "after", "kept"}:
        raise ValueError("not a change")
    states = []
    for side in (item["before"], item["after"]):
        state = None if side is None else State(**side)
        if state is not None:
            snapshot.check_state(state)
        states.append(state)
    before, after = states
    kind: Kind = "added" if before is None else "removed" if after is None else "changed"
    kept = checked_kept(item["kept"])
    if item["kind"] != kind or (before is None and after is None):
        raise ValueError("not a change")
    if kept is not None and (before is None or before.type != "file"):
        raise ValueError("bytes of what is no file")
    return Change(checked_path(item["path"]), kind, before, after), kept


def read_undo(own: str) -> dict[int, set[str]] | None:
    """step → paths to leave, in the order of the undo; None where none was begun."""
    place = f"{own}/{UNDO}"
    try:
        value = snapshot.read_json(place)
    except FileNotFoundError:
        return None
    try:
        _check_version(value, place)
        plan: dict[int, set[str]] = {}
        for step in value["steps"]:
            number = step["number"]
            if type(number) is not int or number < 1:
                raise damaged(place, "not a step")
            plan[number] = {checked_path(path) for path in step["left"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(place, "not what tfdoctor writes") from error
    return plan


def write_undo(own: str, left: dict[int, set[str]]) -> None:
    """From now on these steps are undone, in this order, whatever happens. step → paths to leave."""
    steps = [{"number": number, "left": sorted(paths)} for number, paths in left.items()]
    snapshot.write_atomically(f"{own}/{UNDO}", {"schema_version": SCHEMA_VERSION, "steps": steps})


def numbers(own: str) -> list[int]:
    """The steps that have a folder, oldest first."""
    steps = f"{own}/{STEPS}"
    if not is_folder(steps):
        return []
    return sorted(int(n) for n in os.listdir(steps) if NUMBER.fullmatch(n) and is_folder(f"{steps}/{n}"))


def is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
