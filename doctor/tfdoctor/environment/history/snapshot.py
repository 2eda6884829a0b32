"""What an environment's files are, kept so that they can be put back: the half of the history that looks at files.

A snapshot lies in a step's folder:

    files/0/0, files/0/1, …   the files that were there, a thousand a folder, by number: hard links to them, and copies
                              of small ones that programs rewrite in place (and of all, where nothing can be linked)
    manifest.json             every path with type, mode, size, mtime, and the number of its file

Linking costs no data, so an environment of gigabytes takes a second. What a link cannot survive is somebody who
writes *into* the file: the link changes with it. That is seen (size, mtime, and the hash where it is known), and told.

Paths are strings below the environment, "/" between their parts; `.tfdoctor` is never looked into, links to folders
never followed. What was written down is read as if a stranger had written it: the environment may be somebody else's.
OSError passes through: the journal turns it into its own error.
"""
# 40,000 names, also such that are not UTF-8: plain strings are ten times faster than Path.
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

from tfdoctor.environment.folder import OWN, copy_attributes, sync, write
from tfdoctor.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = 2
"""The version of manifest.json, history.json and undo.json. Format 1 had a record for each step."""
FILES, MANIFEST = "files", "manifest.json"
IN_PLACE = frozenset({"bin", "etc", "conda-meta", "Scripts"})
"""Folders of an environment whose files are rewritten in place (a script's first line, conda's history)."""
SITE = frozenset({"site-packages", "dist-packages"})
SMALL, SMALL_IN_SITE, SMALL_IF_NAMED = 1 << 20, 64 << 10, 16 << 20
"""Largest files copied, in bytes: in `IN_PLACE`; directly in site-packages; where the step names its paths."""
NO_LINK = frozenset({errno.EPERM, errno.EACCES, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP})
MAX_JSON = 512 << 20
SET_ID = stat.S_ISUID | stat.S_ISGID

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WORKS_WITHOUT = f"Without its {OWN} folder the environment works as it is, but cannot be taken back."


class JournalError(Error):
    """The history of an environment could not be written, read or carried out: not writable, disk full, damaged."""

    kind = "journal"


class PathState(NamedTuple):
    """What is at a path. `size` and `sha256` of files, `target` of links; `sha256` None of a file: not known."""

    type: Literal["file", "link", "dir"]
    mode: int
    size: int
    mtime_ns: int
    target: str | None = None
    sha256: str | None = None
    inode: int = 0
    """Only while it is compared; never written into history.json."""


class KeptFile(NamedTuple):
    """Where a file's bytes are: in the step that kept them, under this number."""

    step: int
    number: int

    @property
    def place(self) -> str:
        """The path below the folder of all steps."""
        return f"{self.step}/{FILES}/{self.number // 1000}/{self.number}"


class PathRow(NamedTuple):
    """A path of a snapshot. The hash is known of copies alone: hashing what is linked would read gigabytes."""

    state: PathState
    kept: KeptFile | None


class PathChange(NamedTuple):
    """What became of a path (relative to the environment). None: nothing was, or is, there."""

    path: str
    before: PathState | None
    after: PathState | None
    kept: KeptFile | None
    """The bytes of `before`; None where they are lost, and of what is no file."""
    foreign: bool = False
    """Somebody had changed it between two of our steps: `before` is what they made of it."""


class Scope(NamedTuple):
    """What a step may change: everything at and below `roots` ("" is the environment), and the `folders` above."""

    roots: tuple[str, ...]
    folders: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        return "" in self.roots


class Snapshot(NamedTuple):
    """What a step may change, as it was before it."""

    title: str
    """The step's, for who finds it unfinished."""
    scope: Scope
    rows: dict[str, PathRow]


# ---------------------------------------------------------------- files


def write_json(path: str, value: dict[str, Any]) -> None:
    """A file that is there wholly or not at all. Raises OSError."""
    write(path, json.dumps({"schema_version": FORMAT, **value}, separators=(",", ":")).encode(), private=True)


def read_json(path: str, keys: set[str]) -> dict[str, Any]:
    """Return what `write_json` wrote: an object of these keys.

    Raises JournalError if it is none, or of another version; FileNotFoundError where nothing is.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_JSON:
            raise make_damage_error(path, "not a file, or far too large")
        try:
            value = json.loads(stream.read(MAX_JSON + 1))
        except (ValueError, RecursionError) as error:
            raise make_damage_error(path, "not JSON") from error
    version = value.get("schema_version") if isinstance(value, dict) else None
    if type(version) is int and version > FORMAT:
        message = f"{path}: written by a newer tfdoctor"
        raise JournalError(message, hint="Upgrade tfdoctor: `pip install --upgrade tfdoctor`.")
    if version == 1:
        raise older(path)
    if version != FORMAT or set(value) != {"schema_version", *keys}:
        raise make_damage_error(path, "not what tfdoctor writes")
    return dict(value)


def make_damage_error(path: str, why: str) -> JournalError:
    """Return the error for a history that nobody can rely on."""
    return JournalError(
        f"{path}: the journal is damaged: {why}", hint=f"Nothing was changed. {_WORKS_WITHOUT}"
    )


def older(path: str) -> JournalError:
    """Return the error for what a tfdoctor of format 1 wrote: it is not read, for its steps are told in another way."""
    message = (
        f"{path}: an earlier tfdoctor fixed this environment, and its journal (format 1) is no longer read"
    )
    undo = f"Take its changes back with that version (`tfdoctor fix --undo`), or remove {OWN}."
    return JournalError(message, hint=f"Nothing was changed. {undo} {_WORKS_WITHOUT}")


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
    """Return whether Python makes the file again by itself: it then never speaks against anything."""
    return path.endswith(".pyc") or "__pycache__" in path.split("/")


def digest(path: str) -> str:
    """Return the SHA-256 of a file, which is no link. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb", buffering=0) as stream:
        total = hashlib.sha256()
        while block := stream.read(1 << 20):
            total.update(block)
        return total.hexdigest()


def digests(paths: Iterable[str]) -> dict[str, str]:
    """Return path → SHA-256, a few side by side. Files that are gone meanwhile are left out."""

    def compute_digest(path: str) -> str | None:
        try:
            return digest(path)
        except FileNotFoundError:
            return None

    wanted = sorted(paths)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        found = dict(zip(wanted, pool.map(compute_digest, wanted), strict=True))
    return {path: sha256 for path, sha256 in found.items() if sha256 is not None}


# ---------------------------------------------------------------- looking


def _state(info: os.stat_result, place: str) -> PathState | None:
    """None of sockets, pipes and devices: nobody can put them back."""
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISREG(info.st_mode):
        return PathState("file", mode, info.st_size, info.st_mtime_ns, inode=info.st_ino)
    if stat.S_ISDIR(info.st_mode):
        return PathState("dir", mode, 0, info.st_mtime_ns)
    if stat.S_ISLNK(info.st_mode):
        return PathState("link", mode, 0, info.st_mtime_ns, os.readlink(place))
    return None


def see(top: str, path: str, real: set[str] | None = None) -> PathState | None:
    """Return one path as `scan` would find it."""
    info = look(top, path, real)
    if info is None:
        return None
    try:
        return _state(info, f"{top}/{path}")
    except FileNotFoundError:
        return None


def scan(top: str, scope: Scope) -> dict[str, PathState]:
    """Return path → what is there, of everything a step may change."""
    found: dict[str, PathState] = {}
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
                    seen = _state(entry.stat(follow_symlinks=False), entry.path)
                except FileNotFoundError:
                    continue  # gone while we were looking
                if seen is None:
                    continue
                found[path] = seen
                if seen.type == "dir":
                    pending.append(path)
    return found


# ---------------------------------------------------------------- keeping


def _rewritten_in_place(path: str, state: PathState, scope: Scope) -> bool:
    """Return whether the bytes are copied, because programs may write into the file."""
    if state.mode & SET_ID:
        return False  # made again it would not be what it was, or would be too much
    if not scope.whole:
        return state.size <= SMALL_IF_NAMED
    if state.size > SMALL:
        return False
    folder, _, name = path.rpartition("/")
    return (
        path.split("/", 1)[0] in IN_PLACE
        or path == "pyvenv.cfg"
        or name.endswith(".pth")
        or (state.size <= SMALL_IN_SITE and folder.rpartition("/")[2] in SITE)
    )


def copy(source: str, target: str) -> PathState:
    """Copy a file: bytes, mode, mtime, extended attributes and, for root, owner; not set-user-ID. Raises OSError.

    → its state, with the hash, and the inode of the source.
    """
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(reading, "rb", buffering=0) as stream:
        info = os.fstat(reading)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(writing, "wb") as made:
            total, size = hashlib.sha256(), 0
            while block := stream.read(1 << 20):
                made.write(block)
                total.update(block)
                size += len(block)
            if os.geteuid() == 0:
                os.fchown(writing, info.st_uid, info.st_gid)
            os.fchmod(writing, stat.S_IMODE(info.st_mode) & ~SET_ID)
            copy_attributes(reading, writing)
    os.utime(target, ns=(info.st_mtime_ns, info.st_mtime_ns))
    mode = stat.S_IMODE(info.st_mode)
    return PathState("file", mode, size, info.st_mtime_ns, sha256=total.hexdigest(), inode=info.st_ino)


def make_hard_link(source: str, target: str) -> bool:
    """Make a hard link; False where the file system makes none of this file. Raises OSError."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        return False
    return True


def take(top: str, folder: str, title: str, scope: Scope) -> None:
    """Make the snapshot of a scope in a step's (new, empty) folder, `…/steps/N`, down to the disk. Raises OSError."""
    steps, _, step = folder.rpartition("/")
    shelves, copies, rows = [f"{folder}/{FILES}"], list[str](), dict[str, PathRow]()
    first: dict[int, tuple[PathState, str]] = {}
    """Inode of a copied file with several names → the copy, which its other names are kept as, too."""
    os.mkdir(shelves[0], 0o700)
    count = 0
    for path, state in scan(top, scope).items():
        if state.type != "file":
            rows[path] = PathRow(state, None)
            continue
        if count % 1000 == 0:
            shelves.append(f"{folder}/{FILES}/{count // 1000}")
            os.mkdir(shelves[-1], 0o700)
        kept = KeptFile(int(step), count)
        source, target = f"{top}/{path}", f"{steps}/{kept.place}"
        with contextlib.suppress(FileNotFoundError):  # gone while we were looking
            if _rewritten_in_place(path, state, scope) or not make_hard_link(source, target):
                if state.inode in first and make_hard_link(first[state.inode][1], target):
                    rows[path] = PathRow(first[state.inode][0], kept)
                else:
                    copied = copy(source, target)  # as it was when it was read, later than the scan
                    rows[path] = PathRow(copied, kept)
                    first[copied.inode] = copied, target
                    copies.append(target)
            else:
                rows[path] = PathRow(state, kept)
        count += 1
    sync((*copies, *shelves))
    value = {
        "title": title,
        "roots": scope.roots,
        "folders": scope.folders,
        "rows": [[path, *row] for path, row in rows.items()],
    }
    write_json(f"{folder}/{MANIFEST}", value)


def read_snapshot(folder: str) -> Snapshot:
    """Return the snapshot in a step's folder. Raises JournalError if it is not as `take` writes it."""
    place = f"{folder}/{MANIFEST}"
    value = read_json(place, {"title", "roots", "folders", "rows"})
    try:
        scope = Scope(
            *(tuple(check_path(path, root=True) for path in value[key]) for key in ("roots", "folders"))
        )
        rows = {}
        for path, state, kept in value["rows"]:
            row = PathRow(check_state(PathState(*state)), check_kept(kept))
            if (row.kept is None) != (row.state.type != "file"):
                raise make_damage_error(place, "a file without bytes")
            rows[check_path(path)] = row
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise make_damage_error(place, "not what tfdoctor writes") from error
    return Snapshot(str(value["title"]), scope, rows)


def check_path(path: object, *, root: bool = False) -> str:
    """Return a path that stays below the environment. Raises ValueError."""
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


def check_kept(value: object) -> KeptFile | None:
    """Raises ValueError, TypeError."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise TypeError("not a place of bytes")
    kept = KeptFile(*value)
    if not _whole(*kept):
        raise ValueError("not a place of bytes")
    return kept


def check_state(state: PathState) -> PathState:
    """Return the state itself, where it can be one. Raises ValueError."""
    mtime_ns: object = state.mtime_ns
    target: object = state.target
    sha256: object = state.sha256
    good = _whole(state.mode, state.size, state.inode) and state.mode <= 0o7777
    good = good and type(mtime_ns) is int and -(1 << 63) <= mtime_ns < 1 << 63
    if state.type == "link":
        good = good and isinstance(target, str) and target != "" and "\0" not in target
    else:
        good = good and state.type in {"file", "dir"} and target is None
    if sha256 is not None:
        good = (
            good
            and state.type == "file"
            and isinstance(sha256, str)
            and _SHA256.fullmatch(sha256) is not None
        )
    if not good:
        raise ValueError("not a state")
    return state


# ---------------------------------------------------------------- comparing


def differences(top: str, rows: Mapping[str, PathRow], found: Mapping[str, PathState]) -> list[PathChange]:
    """Return every path that is not as the snapshot says, in order.

    Reads copied files, for they may look the same.
    """
    same_looks = [
        f"{top}/{path}"
        for path, row in rows.items()
        if row.state.sha256 is not None
        and path in found
        and (found[path].type, found[path].size) == (row.state.type, row.state.size)
    ]
    hashes = digests(same_looks)
    changed = []
    for path in sorted(rows.keys() | found.keys()):
        row, now = rows.get(path), found.get(path)
        if row is None or now is None or not _is_same_state(row.state, now, hashes.get(f"{top}/{path}")):
            changed.append(PathChange(path, row and row.state, now, row and row.kept))
    return changed


def _is_same_state(was: PathState, now: PathState, sha256: str | None) -> bool:
    if was.type != now.type:
        return False
    if was.type == "link":
        return was.target == now.target
    if was.mode != now.mode:
        return False
    if was.type == "dir":
        return True
    if (was.size, was.mtime_ns) != (now.size, now.mtime_ns):
        return False
    return was.inode == now.inode if was.sha256 is None else was.sha256 == sha256


def alike(one: PathState | None, other: PathState | None, *, times: bool = False) -> bool:
    """Return whether two states are the same; mtimes (of files) count with `times` alone."""
    if one is None or other is None:
        return one is other
    if (one.type, one.size, one.sha256, one.target) != (other.type, other.size, other.sha256, other.target):
        return False
    if times and one.type == "file" and one.mtime_ns != other.mtime_ns:
        return False
    return one.type == "link" or one.mode == other.mode
