"""Putting an environment's files back from what a step kept: the half of the journal that changes them.

The bytes may have been tampered with, and the record that asks for them may be somebody else's: nothing here leaves
the environment, follows a link to a folder, or gives a file more rights than it had.
"""
# Paths are plain strings, as in snapshot.py.
# ruff: noqa: PTH101, PTH102, PTH103, PTH105, PTH106, PTH108, PTH115, PTH120, PTH211

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

from tfdoctor.environment.history.snapshot import (
    LINKS,
    NO_LINK,
    OWN,
    JournalError,
    Kept,
    Scope,
    State,
    Target,
    damaged,
    digest,
    fsync,
    is_derived,
    look,
    remove_tree,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

STAGE = "stage"
MANY = 64
"""Folders, from which on writing everything to the disk is quicker than one by one."""
PART = f"{OWN}.part"
"""A file on its way into a folder on another file system."""


class Bytes:
    """The kept bytes of one step, which may have been tampered with."""

    def __init__(self, folder: str, pack: str) -> None:
        self.folder = folder
        self._pack = f"{folder}/{pack}"
        self._real: set[str] = set()

    def place(self, kept: Kept) -> str:
        """Of a link."""
        return f"{self.folder}/{self._shelf(kept)}"

    def _shelf(self, kept: Kept) -> str:
        number = kept.link or 0
        return f"{LINKS}/{number // 1000}/{number}"

    def link_info(self, kept: Kept) -> os.stat_result | None:
        """lstat of a link's file; None where there is none."""
        info = look(self.folder, self._shelf(kept), self._real)
        return info if info is not None and stat.S_ISREG(info.st_mode) else None

    def are_whole(self, before: State, kept: Kept | None) -> bool:
        """Whether they are still what the file was: nobody wrote into the file that a link shares."""
        if kept is None:
            return False
        if kept.link is None:
            try:
                total = hashlib.sha256()
                for block in self.blocks(kept):
                    total.update(block)
            except (OSError, JournalError):
                return False
            return kept.length == before.size and total.hexdigest() == before.sha256
        info = self.link_info(kept)
        if info is None or info.st_size != before.size:
            return False
        return info.st_mtime_ns == before.mtime_ns or (
            before.sha256 is not None and digest(self.place(kept)) == before.sha256
        )

    def blocks(self, kept: Kept) -> Iterator[bytes]:
        """Of a piece of the pack."""
        handle = os.open(self._pack, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb", buffering=0) as stream:
            stream.seek(kept.offset)
            left = kept.length
            while left:
                block = stream.read(min(left, 1 << 20))
                if not block:
                    raise damaged(self._pack, "it ends early")
                left -= len(block)
                yield block

    def file(self, kept: Kept) -> Iterator[bytes]:
        """Of either kind."""
        if kept.link is None:
            yield from self.blocks(kept)
            return
        handle = os.open(self.place(kept), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb", buffering=0) as stream:
            while block := stream.read(1 << 20):
                yield block


class Restorer:
    """Puts paths back to what they were: first what was not there goes, then folders, then files and links.

    Each path changes by one rename, so a run that is killed leaves it as it was or as it has to be, and doing all
    of it again is harmless. `left` are the paths that could not be put back, because bytes are lost or because
    somebody's files are in the way.
    """

    def __init__(
        self,
        top: str,
        kept: Bytes,
        targets: Iterable[Target],
        *,
        valid_pyc: Mapping[str, tuple[int, int]] | None = None,
        exact: bool = False,
    ) -> None:
        """`valid_pyc`: path → (size, mtime) of compiled files that belong to what is put back.

        `exact`: the targets are all there is to do (they come from a scan of everything): purge nothing else.
        """
        self._top = top
        self._bytes = kept
        self._targets = sorted(targets)
        self._staged: dict[str, str] = {}
        self._valid_pyc = valid_pyc or {}
        self._exact = exact
        self._touched: set[str] = set()
        self._real: set[str] = set()
        """Folders known to be folders and no links; those we remove leave it."""
        self._folders: set[str] = set()
        """Targets that were folders when we began."""
        self._modes: dict[str, int] = {}
        self.left: list[str] = []

    # -------- bytes that are needed are made ready first: a full disk shows before anything changes

    def stage(self) -> None:
        """Make every file that has to come back. Changes nothing in the environment; may be done again."""
        folder = f"{self._bytes.folder}/{STAGE}"
        remove_tree(folder)
        os.mkdir(folder, 0o700)
        self._staged.clear()
        for target in self._targets:
            if target.before is not None and target.before.type == "file":
                self._stage(target)
        fsync(folder)

    def _stage(self, target: Target) -> str | None:
        """Where the file is made ready; None where the bytes are lost or the file is there with only another mode."""
        before, kept = target.before, target.kept
        if before is None or kept is None or not self._bytes.are_whole(before, kept):
            return None
        place = f"{self._bytes.folder}/{STAGE}/{len(self._staged)}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        if kept.link is not None:
            try:
                os.link(self._bytes.place(kept), place, follow_symlinks=False)
            except OSError as error:
                if error.errno not in NO_LINK:
                    raise
                _write(place, self._bytes.file(kept), before, kept)
        else:
            _write(place, self._bytes.blocks(kept), before, kept)
        self._staged[target.path] = place
        return place

    # -------- the environment

    def apply(self) -> None:
        """Put everything back, down to the disk. Raises OSError; may be done again."""
        os.makedirs(f"{self._bytes.folder}/{STAGE}", 0o700, exist_ok=True)
        self._open_folders()
        for target in self._targets:
            if target.before is None:
                self._remove(target.path)
        if not self._exact:
            self._purge_compiled()
        for target in reversed(self._targets):
            if target.path in self._folders and (target.before is None or target.before.type != "dir"):
                self._remove_folder(target.path)
        for target in self._targets:
            if target.before is not None and target.before.type == "dir":
                self._make_folder(target.path, target.before.mode)
        for target in self._targets:
            if target.before is not None and target.before.type != "dir" and target.path not in self.left:
                self._put(target, target.before)
        for path in sorted(self._modes, reverse=True):
            info = self._look(path)
            if (
                info is not None
                and stat.S_ISDIR(info.st_mode)
                and stat.S_IMODE(info.st_mode) != self._modes[path]
            ):
                self._chmod(path, self._modes[path])
        self._sync()

    def _at(self, path: str) -> str:
        return f"{self._top}/{path}"

    def _look(self, path: str) -> os.stat_result | None:
        return look(self._top, path, self._real)

    def _has_folder(self, path: str) -> bool:
        """Whether the folder a path lies in is there, reached without links."""
        folder = path.rpartition("/")[0]
        if not folder or folder in self._real:
            return True
        info = self._look(folder)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def _touch(self, path: str) -> None:
        self._touched.add(path.rpartition("/")[0])

    def _leave(self, path: str) -> None:
        if not is_derived(path) and path not in self.left:
            self.left.append(path)

    def _chmod(self, path: str, mode: int) -> None:
        os.chmod(self._at(path), mode)
        self._touched.add(path)

    def _open_folders(self) -> None:
        """Folders among the targets that nobody may write into: for as long as we do."""
        for path, *_ in self._targets:
            info = self._look(path)
            if info is None or not stat.S_ISDIR(info.st_mode):
                continue
            self._folders.add(path)
            if info.st_mode & 0o700 != 0o700:
                self._modes.setdefault(path, stat.S_IMODE(info.st_mode))
                self._chmod(path, stat.S_IMODE(info.st_mode) | 0o700)

    def _remove(self, path: str) -> None:
        info = self._look(path)
        if info is None or stat.S_ISDIR(info.st_mode):
            return
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            self._leave(path)
            return
        os.unlink(self._at(path))
        self._touch(path)

    def _purge_compiled(self) -> None:
        """Compiled files of sources that go or come back: Python made them of something else."""
        ours = {target.path for target in self._targets if target.before is not None}
        names: dict[str, set[str]] = {}
        for path, *_ in self._targets:
            folder, _, name = path.rpartition("/")
            if name.endswith(".py"):
                names.setdefault(folder, set()).add(name.removesuffix(".py"))
        for folder, stems in names.items():
            cache = f"{folder}/__pycache__".lstrip("/")
            purged = False
            for below in (cache, folder):
                for path, info in self._list(below):
                    name = path.rpartition("/")[2]
                    stem = name.split(".", 1)[0] if below == cache else name.removesuffix(".pyc")
                    valid = self._valid_pyc.get(path) == (info.st_size, info.st_mtime_ns)
                    if name.endswith(".pyc") and stem in stems and path not in ours and not valid:
                        self._remove(path)
                        purged = purged or below == cache
            if purged and cache not in ours:
                with contextlib.suppress(OSError):
                    os.rmdir(self._at(cache))
                    self._real.discard(cache)

    def _list(self, folder: str) -> list[tuple[str, os.stat_result]]:
        """The entries of a folder that is one, with lstat."""
        info = self._look(folder) if folder else os.lstat(self._top)
        if info is None or not stat.S_ISDIR(info.st_mode):
            return []
        with os.scandir(self._at(folder) if folder else self._top) as entries:
            return [
                (f"{folder}/{entry.name}".lstrip("/"), entry.stat(follow_symlinks=False)) for entry in entries
            ]

    def _remove_folder(self, path: str) -> None:
        info = self._look(path)
        if info is None or not stat.S_ISDIR(info.st_mode):
            return
        below = self._below(path)
        if any(not is_derived(one) for one, _ in below):
            self._leave(path)
            return
        for one, is_folder in reversed(below):
            (os.rmdir if is_folder else os.unlink)(self._at(one))
        os.rmdir(self._at(path))
        self._real -= {path, *(one for one, _ in below)}
        self._modes.pop(path, None)
        self._touch(path)

    def _below(self, folder: str) -> list[tuple[str, bool]]:
        """Everything in a folder, parents first, with whether it is a folder."""
        found: list[tuple[str, bool]] = []
        pending = [folder]
        while pending:
            for path, info in self._list(pending.pop()):
                found.append((path, stat.S_ISDIR(info.st_mode)))
                if found[-1][1]:
                    pending.append(path)
        return found

    def _make_folder(self, path: str, mode: int) -> None:
        info = self._look(path)
        if info is None or not stat.S_ISDIR(info.st_mode):
            if not self._has_folder(path):
                self._leave(path)
                return
            self._remove(path)
            os.mkdir(self._at(path), 0o700)
            self._touch(path)
        self._modes[path] = mode

    def _put(self, target: Target, before: State) -> None:
        path = target.path
        if not self._has_folder(path):
            self._leave(path)
            return
        now = self._look(path)
        if before.type == "link":
            if now is not None and stat.S_ISLNK(now.st_mode) and os.readlink(self._at(path)) == before.target:
                return
            place = f"{self._bytes.folder}/{STAGE}/link"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place)
            os.symlink(before.target or "", place)
            self._rename(place, path)
            return
        kept = target.kept
        ready = self._staged.get(path)
        if kept is None or (ready is None and not self._bytes.are_whole(before, kept)):
            if is_derived(path):
                self._remove(path)
            self._leave(path)
            return
        info = self._bytes.link_info(kept) if kept.link is not None else None
        if now is not None and info is not None and os.path.samestat(now, info):
            # The very file: renaming a link onto another of the same file does nothing.
            self._set(self._at(path), now, before)
            return
        ready = ready or self._stage(target) or ""
        made = os.lstat(ready)
        if info is not None and os.path.samestat(made, info):
            self._set(ready, made, before)
        self._rename(ready, path)

    def _set(self, place: str, info: os.stat_result, before: State) -> None:
        if info.st_mtime_ns != before.mtime_ns:
            os.utime(place, ns=(before.mtime_ns, before.mtime_ns), follow_symlinks=False)
        if stat.S_IMODE(info.st_mode) != before.mode:
            os.chmod(place, before.mode)

    def _rename(self, place: str, path: str) -> None:
        try:
            os.replace(place, self._at(path))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # A folder of the environment on another file system: by way of a second copy beside it.
            part = self._at(f"{os.path.dirname(path)}/{PART}".lstrip("/"))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            shutil.copy2(place, part, follow_symlinks=False)
            os.replace(part, self._at(path))
            os.unlink(place)
        self._touch(path)

    def _sync(self) -> None:
        if len(self._touched) > MANY:
            os.sync()
            return
        for path in sorted(self._touched):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                fsync(self._at(path) if path else self._top)


def _write(place: str, blocks: Iterator[bytes], before: State, kept: Kept) -> None:
    """A file made anew, with what it was: bytes, owner where we may, mode, mtime."""
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb", buffering=0) as stream:
        for block in blocks:
            view = memoryview(block)
            while view:
                view = view[stream.write(view) :]
        info = os.fstat(handle)
        if os.geteuid() == 0 and kept.link is None and (info.st_uid, info.st_gid) != (kept.uid, kept.gid):
            os.fchown(handle, kept.uid, kept.gid)
        # Never more rights than a file had that was kept as a link: a record may be forged.
        os.fchmod(handle, before.mode & ~(stat.S_ISUID | stat.S_ISGID))
        os.fsync(handle)
    os.utime(place, ns=(before.mtime_ns, before.mtime_ns))


def paths_in_way(top: str, folder: str, known: Collection[str]) -> list[str]:
    """What is in a folder that nobody of `known` accounts for, compiled files apart."""
    return [path for path in scan(top, Scope((folder,))) if path not in known and not is_derived(path)]
