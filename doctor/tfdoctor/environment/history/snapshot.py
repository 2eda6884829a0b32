"""What an environment's files are, kept so that they can be put back: the half of the journal that touches files.

A snapshot lies in a step's folder:

    links/0/0, links/0/1, …   hard links to the files that were there, a thousand a folder, by number
    pack.bin                  the bytes of small files that programs rewrite in place, and of those without links
    manifest.json             every path with type, mode, size, mtime, and where its bytes are kept

Linking costs no data, so an environment of gigabytes takes a second. What a link cannot survive is somebody who
writes *into* the file: the link changes with it. That is seen (size, mtime, and the hash where it is known), and told.

Paths are strings below the environment, "/" between their parts; `OWN` is never looked into, links to folders never
followed. OSError passes through: the journal turns it into its own error.
"""
# 40,000 names, also such that are not UTF-8: plain strings are ten times faster than Path.
# ruff: noqa: PTH102, PTH105, PTH115, PTH120, PTH123

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tfdoctor.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA_VERSION = 1
OWN = ".tfdoctor"
"""The journal's folder in an environment."""
HINT_DAMAGED = (
    f"Nothing was changed. Without its {OWN} folder the environment works as it is, but cannot be taken back."
)

LINKS, PACK, KEPT_PACK, MANIFEST = "links", "pack.bin", "kept.bin", "manifest.json"
IN_PLACE = frozenset({"bin", "etc", "conda-meta", "Scripts"})
"""Folders of an environment whose files are rewritten in place (a script's first line, conda's history)."""
SITE = frozenset({"site-packages", "dist-packages"})
SMALL, SMALL_IN_SITE, SMALL_IF_NAMED = 1 << 20, 64 << 10, 16 << 20
"""Largest files copied, in bytes: in `IN_PLACE`; directly in site-packages; where the step names its paths."""
NO_LINK = frozenset({errno.EPERM, errno.EACCES, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP})
MAX_JSON = 512 << 20

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)

Type = Literal["file", "link", "dir"]


class JournalError(Error):
    """The environment's journal could not be written, read or carried out: not writable, disk full, damaged."""

    kind = "journal"


@dataclass(frozen=True, slots=True)
class State:
    """What a path was. `size` and `sha256` of files, `target` of links; `sha256` None of a file: not known any more."""

    type: Type
    mode: int
    size: int | None
    sha256: str | None
    target: str | None
    mtime_ns: int


class Kept(NamedTuple):
    """Where a file's bytes are: a link's number, or a piece of the pack. Owner: for root, who makes the file anew."""

    link: int | None
    offset: int
    length: int
    uid: int
    gid: int


class Seen(NamedTuple):
    """A path as a scan finds it."""

    type: Type
    mode: int
    size: int
    mtime_ns: int
    target: str | None
    inode: int


class Row(NamedTuple):
    """A path as the manifest remembers it. `sha256` of copies only: hashing what is linked would read gigabytes."""

    path: str
    seen: Seen
    kept: Kept | None
    sha256: str | None


class Target(NamedTuple):
    """A path and what it has to be again. `before` None: it was not there."""

    path: str
    before: State | None
    kept: Kept | None


class Scope(NamedTuple):
    """What a step may change: everything at and below `roots` ("" is the environment), and the `folders` above."""

    roots: tuple[str, ...]
    folders: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        return "" in self.roots


# ---------------------------------------------------------------- files


def fsync(path: str, *, folder: bool = True) -> None:
    """Write a folder's entries, or a file, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | (os.O_DIRECTORY if folder else 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: str, value: object) -> None:
    """JSON into a file that is there wholly or not at all, whatever happens meanwhile."""
    new = f"{path}.new"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(json.dumps(value, separators=(",", ":")).encode())
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(new, path)
    fsync(os.path.dirname(path))


def read_json(path: str) -> Any:
    """What `write_atomically` wrote. Raises JournalError where it is no JSON, FileNotFoundError where nothing is."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_JSON:
            raise damaged(path, "not a file, or far too large")
        try:
            return json.loads(stream.read(MAX_JSON + 1))
        except (ValueError, RecursionError) as error:
            raise damaged(path, "not JSON") from error


def damaged(path: str, why: str) -> JournalError:
    """The error for a journal that nobody can rely on."""
    return JournalError(f"{path}: the journal is damaged: {why}", hint=HINT_DAMAGED)


def look(top: str, path: str, real: set[str] | None = None) -> os.stat_result | None:
    """lstat of a path below `top`; None where nothing is there, or only by way of a link, which may lead anywhere.

    `real` remembers folders that are no links from one call to the next, for who asks about thousands of paths.
    """
    folder, _, name = path.rpartition("/")
    try:
        if folder and (real is None or folder not in real):
            here = ""
            for part in folder.split("/"):
                here = f"{here}/{part}" if here else part
                if real is not None and here in real:
                    continue
                if not stat.S_ISDIR(os.lstat(f"{top}/{here}").st_mode):
                    return None
                if real is not None:
                    real.add(here)
        return os.lstat(f"{top}/{folder}/{name}" if folder else f"{top}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_derived(path: str) -> bool:
    """Whether Python makes the file again by itself: it then never speaks against anything."""
    return path.endswith(".pyc") or "__pycache__" in path.split("/")


def digest(path: str) -> str:
    """The SHA-256 of a file, which is no link. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb", buffering=0) as stream:
        total = hashlib.sha256()
        while block := stream.read(1 << 20):
            total.update(block)
        return total.hexdigest()


def digests(paths: Iterable[str]) -> dict[str, str]:
    """path → SHA-256, a few side by side. Files that are gone meanwhile are left out."""

    def some(batch: list[str]) -> dict[str, str]:
        found = {}
        for path in batch:
            with contextlib.suppress(FileNotFoundError):
                found[path] = digest(path)
        return found

    wanted = sorted(paths)
    batches = [wanted[start : start + 200] for start in range(0, len(wanted), 200)]
    if len(batches) < 2:
        return some(wanted)
    result: dict[str, str] = {}
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for found in pool.map(some, batches):
            result |= found
    return result


def remove_tree(path: str) -> None:
    """Delete a folder of the journal with all that is in it; nothing where it is not there."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


# ---------------------------------------------------------------- looking


def _seen(info: os.stat_result, place: str) -> Seen | None:
    """None of sockets, pipes and devices: nobody can put them back."""
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISREG(info.st_mode):
        return Seen("file", mode, info.st_size, info.st_mtime_ns, None, info.st_ino)
    if stat.S_ISDIR(info.st_mode):
        return Seen("dir", mode, 0, info.st_mtime_ns, None, info.st_ino)
    if stat.S_ISLNK(info.st_mode):
        return Seen("link", mode, 0, info.st_mtime_ns, os.readlink(place), info.st_ino)
    return None


def see(top: str, path: str, real: set[str] | None = None) -> Seen | None:
    """One path as `scan` would find it."""
    info = look(top, path, real)
    if info is None:
        return None
    try:
        return _seen(info, f"{top}/{path}")
    except FileNotFoundError:
        return None


def scan(top: str, scope: Scope) -> dict[str, Seen]:
    """path → what is there, of everything a step may change."""
    found: dict[str, Seen] = {}
    pending: list[str] = []
    for path in (*scope.folders, *scope.roots):
        seen = see(top, path) if path else None
        if seen is not None:
            found[path] = seen
        if path in scope.roots and (not path or (seen is not None and seen.type == "dir")):
            pending.append(path)
    while pending:
        folder = pending.pop()
        try:
            inside = os.scandir(f"{top}/{folder}" if folder else top)
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone while we were looking
        with inside as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path == OWN:
                    continue
                try:
                    seen = _seen(entry.stat(follow_symlinks=False), entry.path)
                except FileNotFoundError:
                    continue  # gone while we were looking
                if seen is None:
                    continue
                found[path] = seen
                if seen.type == "dir":
                    pending.append(path)
    return found


# ---------------------------------------------------------------- keeping


def _rewritten_in_place(path: str, seen: Seen, scope: Scope) -> bool:
    """Whether the bytes are copied, because programs may write into the file."""
    if seen.mode & (stat.S_ISUID | stat.S_ISGID):
        return False  # made anew it would not be what it was, or would be too much
    if not scope.whole:
        return seen.size <= SMALL_IF_NAMED
    if seen.size > SMALL:
        return False
    folder, _, name = path.rpartition("/")
    return (
        path.split("/", 1)[0] in IN_PLACE
        or path == "pyvenv.cfg"
        or name.endswith(".pth")
        or (seen.size <= SMALL_IN_SITE and folder.rpartition("/")[2] in SITE)
    )


class _Keeper:
    """Fills a new step's `links` and `pack.bin`."""

    def __init__(self, top: str, folder: str, pack: Any) -> None:
        self._top, self._folder, self._pack = top, folder, pack
        self._count = 0
        self._offset = 0
        os.mkdir(f"{folder}/{LINKS}", 0o700)

    def link(self, path: str) -> Kept | None:
        """None where the file system makes no link of it."""
        shelf = f"{self._folder}/{LINKS}/{self._count // 1000}"
        if self._count % 1000 == 0:
            with contextlib.suppress(FileExistsError):
                os.mkdir(shelf, 0o700)
        try:
            os.link(f"{self._top}/{path}", f"{shelf}/{self._count}", follow_symlinks=False)
        except OSError as error:
            if error.errno in NO_LINK:
                return None
            raise
        self._count += 1
        return Kept(self._count - 1, 0, 0, 0, 0)

    def copy(self, path: str) -> Row:
        """The row of a file whose bytes are now in the pack: as they were read, which may be later than the scan."""
        handle = os.open(f"{self._top}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb", buffering=0) as stream:
            info = os.fstat(handle)
            total, length = hashlib.sha256(), 0
            while block := stream.read(1 << 20):
                self._pack.write(block)
                total.update(block)
                length += len(block)
        seen = Seen("file", stat.S_IMODE(info.st_mode), length, info.st_mtime_ns, None, info.st_ino)
        kept = Kept(None, self._offset, length, info.st_uid, info.st_gid)
        self._offset += length
        return Row(path, seen, kept, total.hexdigest())

    def finish(self) -> None:
        self._pack.flush()
        os.fsync(self._pack.fileno())
        for number in range((self._count + 999) // 1000):
            fsync(f"{self._folder}/{LINKS}/{number}")
        fsync(f"{self._folder}/{LINKS}")


def take(top: str, folder: str, scope: Scope) -> None:
    """Make the snapshot of a scope in a step's (new, empty) folder, down to the disk. Raises OSError."""
    rows = []
    with open(f"{folder}/{PACK}", "xb") as pack:
        keeper = _Keeper(top, folder, pack)
        for path, seen in scan(top, scope).items():
            try:
                kept = None
                if seen.type == "file":
                    kept = None if _rewritten_in_place(path, seen, scope) else keeper.link(path)
                    if kept is None:
                        rows.append(keeper.copy(path))
                        continue
                rows.append(Row(path, seen, kept, None))
            except FileNotFoundError:
                continue  # gone while we were looking
        keeper.finish()
    write_atomically(
        f"{folder}/{MANIFEST}",
        {
            "schema_version": SCHEMA_VERSION,
            "roots": scope.roots,
            "folders": scope.folders,
            "rows": [[row.path, row.seen, row.kept, row.sha256] for row in rows],
        },
    )


def read_manifest(folder: str) -> tuple[Scope, dict[str, Row]]:
    """The snapshot in a step's folder. Raises JournalError where it is not as `take` writes it."""
    place = f"{folder}/{MANIFEST}"
    value = read_json(place)
    try:
        if value["schema_version"] != SCHEMA_VERSION or set(value) != {
            "schema_version",
            "roots",
            "folders",
            "rows",
        }:
            raise damaged(place, "not of this version")
        roots, folders = (
            tuple(checked_path(p, root=True) for p in value[key]) for key in ("roots", "folders")
        )
        rows = {}
        for path, seen, kept, sha256 in value["rows"]:
            row = Row(checked_path(path), Seen(*seen), checked_kept(kept), sha256)
            check_state(
                State(row.seen.type, row.seen.mode, row.seen.size, sha256, row.seen.target, row.seen.mtime_ns)
            )
            if (row.kept is None) != (row.seen.type != "file"):
                raise damaged(place, "a file without bytes")
            rows[row.path] = row
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(place, "not what tfdoctor writes") from error
    return Scope(roots, folders), rows


def checked_path(path: object, *, root: bool = False) -> str:
    """A path that stays below the environment. Raises ValueError."""
    if root and path == "":
        return ""
    if not isinstance(path, str) or "\0" in path:
        raise ValueError("not a path")
    parts = path.split("/")
    if parts[0] == OWN or any(part in {"", ".", ".."} for part in parts):
        raise ValueError("a path that leads elsewhere")
    return path


def _whole(*numbers: object) -> bool:
    return all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)


def checked_kept(value: object) -> Kept | None:
    """Raises ValueError, TypeError."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise TypeError("not a place of bytes")
    kept = Kept(*value)
    if not _whole(*kept[1:]) or not (kept.link is None or _whole(kept.link)):
        raise ValueError("not a place of bytes")
    return kept


def check_state(state: State) -> None:
    """Raises ValueError where a state cannot be one: its fields may come from anybody's JSON."""
    mode, size, mtime_ns = state.mode, state.size, state.mtime_ns
    texts: dict[str, Any] = {"target": state.target, "sha256": state.sha256}
    target, sha256 = texts["target"], texts["sha256"]
    good = _whole(mode) and mode <= 0o7777 and type(mtime_ns) is int and -(1 << 63) <= mtime_ns < 1 << 63
    kind: str = state.type
    if kind == "file":
        good = good and _whole(size) and target is None
        good = good and (
            sha256 is None or (isinstance(sha256, str) and _SHA256.fullmatch(sha256) is not None)
        )
    elif kind == "link":
        good = good and isinstance(target, str) and target != "" and "\0" not in target and sha256 is None
    else:
        good = good and kind == "dir" and target is None and sha256 is None
    if not good:
        raise ValueError("not a state")


# ---------------------------------------------------------------- comparing


def differences(
    top: str, rows: Mapping[str, Row], found: Mapping[str, Seen]
) -> list[tuple[str, Row | None, Seen | None]]:
    """Every path that is not as the manifest says, in order. Reads copied files, for they may look the same."""
    same_looks = [
        f"{top}/{path}"
        for path, row in rows.items()
        if row.sha256 is not None and path in found and found[path].size == row.seen.size
    ]
    hashes = digests(same_looks)
    changed = []
    for path in sorted(rows.keys() | found.keys()):
        row, seen = rows.get(path), found.get(path)
        if row is None or seen is None or not _unchanged(row, seen, hashes.get(f"{top}/{path}")):
            changed.append((path, row, seen))
    return changed


def _unchanged(row: Row, seen: Seen, sha256: str | None) -> bool:
    was = row.seen
    if was.type != seen.type:
        return False
    if was.type == "link":
        return was.target == seen.target
    if was.mode != seen.mode:
        return False
    if was.type == "dir":
        return True
    if (was.size, was.mtime_ns) != (seen.size, seen.mtime_ns):
        return False
    return was.inode == seen.inode if row.sha256 is None else row.sha256 == sha256


def state_of(seen: Seen, sha256: str | None) -> State:
    """A path as records tell it."""
    size = seen.size if seen.type == "file" else None
    return State(seen.type, seen.mode, size, sha256, seen.target, seen.mtime_ns)
