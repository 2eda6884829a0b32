"""Take snapshots of an environment's files, and compare them with the current state.

A snapshot is stored in the folder of a step:

    files/0/0, files/0/1, …   the contents of the files, numbered, a thousand in each folder
    manifest.json             every path with its type, mode, size, mtime, and the number of its contents

The contents are hard links to the files, which take no space: a snapshot of several gigabytes takes about a second. Small
files that programs rewrite in place are copied, and so are all files if linking is impossible. If a program writes *into*
a linked file, the saved contents change too. The size, the mtime or the hash reveals this, and undo reports it.

Paths are strings relative to the environment, with "/" as the separator. The folder `.tfdoctor` is never scanned, and
links to folders are never followed. Stored data is not trusted, because another user may own the environment. Functions
here raise OSError; the journal converts it to JournalError.
"""
# Plain strings are ten times faster than Path, and an environment has about 40,000 files.
# ruff: noqa: PTH102, PTH115

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tfdoctor.core.errors import Error
from tfdoctor.environments.folder import STATE_FOLDER, copy_attributes, sync_paths, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT_VERSION = 2
"""The format version of manifest.json, history.json and undo.json. In format 1 each step had a record.json."""
CONTENTS_FOLDER, MANIFEST_FILE = "files", "manifest.json"
"""The names of the folder of saved contents, and of the list of paths, in the folder of a step."""
REWRITTEN_FOLDERS = frozenset({"bin", "etc", "conda-meta", "Scripts"})
"""Folders whose files programs rewrite in place: the `#!` line of scripts, and conda's history."""
INSTALLER_FILES = frozenset({"REQUESTED", "INSTALLER", "RECORD", "direct_url.json"})
"""Files of a .dist-info folder that uv writes in place, also if it links the others from its cache."""
SITE_FOLDER_NAMES = frozenset({"site-packages", "dist-packages"})
"""The names of folders in which packages are installed."""
MAX_COPY_BYTES, MAX_SITE_COPY_BYTES, MAX_NAMED_COPY_BYTES = 1 << 20, 64 << 10, 16 << 20
"""The largest sizes in bytes of files that are copied instead of linked.

They apply to files in `REWRITTEN_FOLDERS`, to files directly in site-packages, and to all files of a step that is
limited to some paths.
"""
LINK_ERRNOS = frozenset(
    {errno.EPERM, errno.EACCES, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP}
)
"""The errors that mean that a file cannot be linked, so that it is copied instead."""
MAX_JSON_BYTES = 512 << 20
"""The largest size in bytes of a JSON file that is read."""
SET_ID_BITS = stat.S_ISUID | stat.S_ISGID
"""The set-user-ID and set-group-ID bits of a mode."""

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_UNDO_NEEDS_FOLDER = (
    f"Without its {STATE_FOLDER} folder the environment works as it is, but cannot be taken back."
)


class JournalError(Error):
    """The history of an environment could not be written, read or undone."""

    kind = "journal"


class PathState(NamedTuple):
    """The type and attributes of a path. The field names are keys in history.json."""

    type: Literal["file", "link", "dir"]
    mode: int
    size: int
    """The size of a file in bytes; 0 for other types."""
    mtime_ns: int
    target: str | None = None
    """The target of a link; None for other types."""
    sha256: str | None = None
    """The hash of a file; None for other types, or if it is not known."""
    inode: int = 0
    """The inode of a file, for comparisons only: it is not written to history.json."""


class SavedFile(NamedTuple):
    """The location of a file's saved contents: the number of the step, and the number of the file in it."""

    step: int
    number: int

    @property
    def path(self) -> str:
        """The path relative to the folder that contains all steps."""
        return f"{self.step}/{CONTENTS_FOLDER}/{self.number // 1000}/{self.number}"


class SnapshotEntry(NamedTuple):
    """The entry of a path in a snapshot.

    Only copied files have a hash, because hashing the linked ones would mean reading several gigabytes.
    """

    state: PathState
    saved_file: SavedFile | None
    """The saved contents; None if the path is not a file."""


class PathChange(NamedTuple):
    """A change to a path. The field names are keys in history.json."""

    path: str
    before: PathState | None
    """The state before the change; None if the path did not exist."""
    after: PathState | None
    """The state after the change; None if the path no longer exists."""
    kept: SavedFile | None
    """The saved contents of `before`; None if they are lost, or if the path was not a file."""
    foreign: bool = False
    """Whether another program changed the path between two steps. `before` is then the state that the program left."""


class Scope(NamedTuple):
    """The paths that a step may change."""

    roots: tuple[str, ...]
    """Paths that may change with everything below them; "" is the whole environment."""
    parent_folders: tuple[str, ...] = ()
    """The folders above the roots. They may change, but not their other contents."""

    @property
    def is_whole(self) -> bool:
        """Whether the scope is the whole environment."""
        return "" in self.roots


class Snapshot(NamedTuple):
    """The paths that a step may change, as they were before the step."""

    title: str
    """The title of the step, for a message if the step is found unfinished."""
    scope: Scope
    entries: dict[str, SnapshotEntry]
    """The entries by path."""


# ---------------------------------------------------------------- files


def write_json(path: str, value: dict[str, Any]) -> None:
    """Write a JSON file atomically, with the format version. Raise OSError if that fails."""
    write_atomically(
        path,
        json.dumps({"schema_version": FORMAT_VERSION, **value}, separators=(",", ":")).encode(),
        is_private=True,
    )


def read_json(path: str, keys: set[str]) -> dict[str, Any]:
    """Read a JSON file that `write_json` wrote.

    Raise JournalError if the file does not have exactly these keys, or has another format version. Raise OSError if it
    cannot be read.
    """
    # O_NONBLOCK: opening a named pipe must not wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_JSON_BYTES:
            raise make_damage_error(path, "not a file, or far too large")
        try:
            value = json.loads(stream.read(MAX_JSON_BYTES + 1))
        except (ValueError, RecursionError) as error:
            raise make_damage_error(path, "not JSON") from error
    version = value.get("schema_version") if isinstance(value, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        message = f"{path}: written by a newer tfdoctor"
        raise JournalError(message, hint="Upgrade tfdoctor: `pip install --upgrade tfdoctor`.")
    if version == 1:
        raise make_format_error(path)
    if version != FORMAT_VERSION or set(value) != {"schema_version", *keys}:
        raise make_damage_error(path, "not what tfdoctor writes")
    return dict(value)


def make_damage_error(path: str, reason: str) -> JournalError:
    """Return the error for a damaged file of the journal."""
    return JournalError(
        f"{path}: the journal is damaged: {reason}", hint=f"Nothing was changed. {_UNDO_NEEDS_FOLDER}"
    )


def make_format_error(path: str) -> JournalError:
    """Return the error for a journal in format 1, which is no longer supported."""
    message = (
        f"{path}: an earlier tfdoctor fixed this environment, and its journal (format 1) is no longer read"
    )
    undo = f"Take its changes back with that version (`tfdoctor fix --undo`), or remove {STATE_FOLDER}."
    return JournalError(message, hint=f"Nothing was changed. {undo} {_UNDO_NEEDS_FOLDER}")


def lstat_below(top: str, path: str, real_folders: set[str] | None = None) -> os.stat_result | None:
    """Return the lstat result of a path below `top`; None if it is missing or a parent folder is a link.

    `real_folders` is a cache of paths that are known to be folders and not links, for callers with thousands of paths.
    """
    folder, _, name = path.rpartition("/")
    try:
        if folder and (real_folders is None or folder not in real_folders):
            current = ""
            for part in folder.split("/"):
                current = f"{current}/{part}" if current else part
                if real_folders is not None and current in real_folders:
                    continue
                if not stat.S_ISDIR(os.lstat(f"{top}/{current}").st_mode):
                    return None
                if real_folders is not None:
                    real_folders.add(current)
        return os.lstat(f"{top}/{folder}/{name}" if folder else f"{top}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_python_cache(path: str) -> bool:
    """Return whether Python creates the file by itself. A change to it is never a conflict."""
    return path.endswith(".pyc") or "__pycache__" in path.split("/")


def hash_file(path: str) -> str:
    """Return the SHA-256 of a file. Raise OSError if it cannot be read or is a link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb", buffering=0) as stream:
        total = hashlib.sha256()
        while block := stream.read(1 << 20):
            total.update(block)
        return total.hexdigest()


def hash_files(paths: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each path, computed by up to four threads.

    Files that no longer exist are omitted.
    """

    def hash_if_exists(path: str) -> str | None:
        try:
            return hash_file(path)
        except FileNotFoundError:
            return None

    sorted_paths = sorted(paths)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        hashes = dict(zip(sorted_paths, pool.map(hash_if_exists, sorted_paths), strict=True))
    return {path: sha256 for path, sha256 in hashes.items() if sha256 is not None}


# ---------------------------------------------------------------- reading


def _make_state(info: os.stat_result, absolute_path: str) -> PathState | None:
    """Return the state of a path from its lstat result; None for sockets, pipes and devices."""
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISREG(info.st_mode):
        return PathState("file", mode, info.st_size, info.st_mtime_ns, inode=info.st_ino)
    if stat.S_ISDIR(info.st_mode):
        return PathState("dir", mode, 0, info.st_mtime_ns)
    if stat.S_ISLNK(info.st_mode):
        return PathState("link", mode, 0, info.st_mtime_ns, target=os.readlink(absolute_path))
    return None


def read_state(top: str, path: str, real_folders: set[str] | None = None) -> PathState | None:
    """Return the state of one path; None if it does not exist or is not a file, folder or link."""
    info = lstat_below(top, path, real_folders)
    if info is None:
        return None
    try:
        return _make_state(info, f"{top}/{path}")
    except FileNotFoundError:
        return None


def scan_states(top: str, scope: Scope) -> dict[str, PathState]:
    """Return the state of every path in the scope that exists, by path."""
    states: dict[str, PathState] = {}
    pending: list[str] = []
    for path in (*scope.parent_folders, *scope.roots):
        state = read_state(top, path) if path else None
        if state is not None:
            states[path] = state
        if path in scope.roots and (not path or (state is not None and state.type == "dir")):
            pending.append(path)
    while pending:
        folder = pending.pop()
        try:
            iterator = os.scandir(f"{top}/{folder}" if folder else top)
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted during the scan
        with iterator as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path == STATE_FOLDER:
                    continue
                try:
                    state = _make_state(entry.stat(follow_symlinks=False), entry.path)
                except FileNotFoundError:
                    continue  # deleted during the scan
                if state is None:
                    continue
                states[path] = state
                if state.type == "dir":
                    pending.append(path)
    return states


# ---------------------------------------------------------------- taking a snapshot


def _needs_copy(path: str, state: PathState, scope: Scope) -> bool:
    """Return whether a file has to be copied instead of linked, because programs may write into it."""
    if state.mode & SET_ID_BITS:
        return False  # a copy does not have these bits
    if not scope.is_whole:
        return state.size <= MAX_NAMED_COPY_BYTES
    if state.size > MAX_COPY_BYTES:
        return False
    folder, _, name = path.rpartition("/")
    return (
        path.split("/", 1)[0] in REWRITTEN_FOLDERS
        or path == "pyvenv.cfg"
        or name.endswith(".pth")
        or (name in INSTALLER_FILES and folder.endswith(".dist-info"))
        or (state.size <= MAX_SITE_COPY_BYTES and folder.rpartition("/")[2] in SITE_FOLDER_NAMES)
    )


def copy_file(source: str, target: str) -> PathState:
    """Copy a file with its mode, mtime and extended attributes, but without the set-ID bits.

    If this process is root, the owner is copied too. Return the state of the source, with its hash and inode. Raise
    OSError if the file cannot be copied.
    """
    source_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(source_fd, "rb", buffering=0) as stream:
        info = os.fstat(source_fd)
        target_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(target_fd, "wb") as output:
            sha256, size = hashlib.sha256(), 0
            while block := stream.read(1 << 20):
                output.write(block)
                sha256.update(block)
                size += len(block)
            if os.geteuid() == 0:
                os.fchown(target_fd, info.st_uid, info.st_gid)
            os.fchmod(target_fd, stat.S_IMODE(info.st_mode) & ~SET_ID_BITS)
            copy_attributes(source_fd, target_fd)
    os.utime(target, ns=(info.st_mtime_ns, info.st_mtime_ns))
    mode = stat.S_IMODE(info.st_mode)
    return PathState("file", mode, size, info.st_mtime_ns, sha256=sha256.hexdigest(), inode=info.st_ino)


def make_hard_link(source: str, target: str) -> bool:
    """Create a hard link. Return False if the file system cannot link this file.

    Raise OSError on other errors.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in LINK_ERRNOS:
            raise
        return False
    return True


def take_snapshot(top: str, folder: str, title: str, scope: Scope) -> None:
    """Take a snapshot of a scope, store it in the empty folder of a step, and sync it to the disk.

    `top` is the environment, and `folder` has the form `…/steps/N`. Raise OSError if that fails.
    """
    steps, _, step = folder.rpartition("/")
    content_folders = [f"{folder}/{CONTENTS_FOLDER}"]
    copied_paths: list[str] = []
    entries: dict[str, SnapshotEntry] = {}
    copied_by_inode: dict[int, tuple[PathState, str]] = {}
    """The state and the copy of each copied file, by inode. Other hard links to that file become links to the copy."""
    os.mkdir(content_folders[0], 0o700)
    count = 0
    for path, state in scan_states(top, scope).items():
        if state.type != "file":
            entries[path] = SnapshotEntry(state, None)
            continue
        if count % 1000 == 0:
            content_folders.append(f"{folder}/{CONTENTS_FOLDER}/{count // 1000}")
            os.mkdir(content_folders[-1], 0o700)
        saved_file = SavedFile(int(step), count)
        source, target = f"{top}/{path}", f"{steps}/{saved_file.path}"
        with contextlib.suppress(FileNotFoundError):  # deleted during the scan
            if _needs_copy(path, state, scope) or not make_hard_link(source, target):
                copied_state, copied_path = copied_by_inode.get(state.inode, (None, ""))
                if copied_state is not None and make_hard_link(copied_path, target):
                    entries[path] = SnapshotEntry(copied_state, saved_file)
                else:
                    state_of_copy = copy_file(source, target)  # newer than the state from the scan
                    entries[path] = SnapshotEntry(state_of_copy, saved_file)
                    copied_by_inode[state_of_copy.inode] = state_of_copy, target
                    copied_paths.append(target)
            else:
                entries[path] = SnapshotEntry(state, saved_file)
        count += 1
    sync_paths((*copied_paths, *content_folders))
    value = {
        "title": title,
        "roots": scope.roots,
        "folders": scope.parent_folders,
        "rows": [[path, *entry] for path, entry in entries.items()],
    }
    write_json(f"{folder}/{MANIFEST_FILE}", value)


def read_snapshot(folder: str) -> Snapshot:
    """Return the snapshot in the folder of a step.

    Raise JournalError if it is not valid, or OSError if it cannot be read.
    """
    manifest_path = f"{folder}/{MANIFEST_FILE}"
    value = read_json(manifest_path, {"title", "roots", "folders", "rows"})
    try:
        scope = Scope(
            *(
                tuple(validate_path(path, allow_root=True) for path in value[key])
                for key in ("roots", "folders")
            )
        )
        entries = {}
        for path, state, saved_file in value["rows"]:
            entry = SnapshotEntry(validate_state(PathState(*state)), parse_saved_file(saved_file))
            if (entry.saved_file is None) != (entry.state.type != "file"):
                raise make_damage_error(manifest_path, "a file without bytes")
            entries[validate_path(path)] = entry
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise make_damage_error(manifest_path, "not what tfdoctor writes") from error
    return Snapshot(title=str(value["title"]), scope=scope, entries=entries)


def validate_path(path: object, *, allow_root: bool = False) -> str:
    """Return a stored path if it is below the environment. Raise ValueError if it is not.

    The path "" is accepted only if `allow_root` is true.
    """
    if allow_root and path == "":
        return ""
    if not isinstance(path, str) or "\0" in path:
        raise ValueError("not a path")
    parts = path.split("/")
    if parts[0] == STATE_FOLDER or any(part in {"", ".", ".."} for part in parts):
        raise ValueError("a path that leads elsewhere")
    return path


def _are_valid_integers(*numbers: object) -> bool:
    """Return whether all values are integers from 0 to 2^63 - 1."""
    return all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)


def parse_saved_file(value: object) -> SavedFile | None:
    """Parse the location of saved contents; return None for None.

    Raise ValueError or TypeError if it is not valid.
    """
    if value is None:
        return None
    if not isinstance(value, list):
        raise TypeError("not a place of bytes")
    saved_file = SavedFile(*value)
    if not _are_valid_integers(*saved_file):
        raise ValueError("not a place of bytes")
    return saved_file


def validate_state(state: PathState) -> PathState:
    """Return the state if it is valid. Raise ValueError if it is not."""
    mtime_ns: object = state.mtime_ns
    target: object = state.target
    sha256: object = state.sha256
    is_valid = _are_valid_integers(state.mode, state.size, state.inode) and state.mode <= 0o7777
    is_valid = is_valid and type(mtime_ns) is int and -(1 << 63) <= mtime_ns < 1 << 63
    if state.type == "link":
        is_valid = is_valid and isinstance(target, str) and target != "" and "\0" not in target
    else:
        is_valid = is_valid and state.type in {"file", "dir"} and target is None
    if sha256 is not None:
        is_valid = (
            is_valid
            and state.type == "file"
            and isinstance(sha256, str)
            and _SHA256.fullmatch(sha256) is not None
        )
    if not is_valid:
        raise ValueError("not a state")
    return state


# ---------------------------------------------------------------- comparison


def compare_with_snapshot(
    top: str, entries: Mapping[str, SnapshotEntry], states: Mapping[str, PathState]
) -> list[PathChange]:
    """Return the changes between a snapshot and the current states, sorted by path.

    `entries` are those of the snapshot, and `states` the current states. Besides type, mode, size and mtime, the hash of
    each copied file and the inode of each linked file are compared.
    """
    paths_to_hash = [
        f"{top}/{path}"
        for path, entry in entries.items()
        if entry.state.sha256 is not None
        and path in states
        and (states[path].type, states[path].size) == (entry.state.type, entry.state.size)
    ]
    hashes = hash_files(paths_to_hash)
    changes = []
    for path in sorted(entries.keys() | states.keys()):
        entry, current = entries.get(path), states.get(path)
        if (
            entry is None
            or current is None
            or not _is_same_state(entry.state, current, hashes.get(f"{top}/{path}"))
        ):
            before, saved_file = (entry.state, entry.saved_file) if entry is not None else (None, None)
            changes.append(PathChange(path=path, before=before, after=current, kept=saved_file))
    return changes


def _is_same_state(before: PathState, current: PathState, sha256: str | None) -> bool:
    """Return whether the state in a snapshot and the current state of a path are the same.

    `sha256` is the current hash of the file. If `before` has no hash, the inodes are compared instead.
    """
    if before.type != current.type:
        return False
    if before.type == "link":
        return before.target == current.target
    if before.mode != current.mode:
        return False
    if before.type == "dir":
        return True
    if (before.size, before.mtime_ns) != (current.size, current.mtime_ns):
        return False
    return before.inode == current.inode if before.sha256 is None else before.sha256 == sha256


def are_equal_states(
    first: PathState | None, second: PathState | None, *, compare_times: bool = False
) -> bool:
    """Return whether two states are the same. Mtimes of files count only if `compare_times` is true."""
    if first is None or second is None:
        return first is second
    if (first.type, first.size, first.sha256, first.target) != (
        second.type,
        second.size,
        second.sha256,
        second.target,
    ):
        return False
    if compare_times and first.type == "file" and first.mtime_ns != second.mtime_ns:
        return False
    return first.type == "link" or first.mode == second.mode
