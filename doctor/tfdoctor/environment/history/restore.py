"""Putting an environment's files back from what was kept of them: the half of the history that changes them.

The bytes may have been tampered with, and what asks for them may be somebody else's: nothing here leaves the
environment, follows a link to a folder, or gives a file more rights than it had.
"""
# Paths are plain strings, as in snapshot.py.
# ruff: noqa: PTH101, PTH102, PTH105, PTH106, PTH108, PTH115, PTH211

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from itertools import chain
from typing import TYPE_CHECKING

from tfdoctor.environment.folder import fsync, give_to_owner_of_folder, is_folder, remove, sync, unwritten
from tfdoctor.environment.history.snapshot import (
    SET_ID,
    KeptFile,
    PathChange,
    PathState,
    Scope,
    copy,
    digest,
    is_derived,
    look,
    make_hard_link,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class Bytes:
    """The kept bytes, which may have been tampered with."""

    def __init__(self, steps: str) -> None:
        """`steps`: the folder with a folder for each step."""
        self._steps = steps
        self._real: set[str] = set()

    def place(self, kept: KeptFile) -> str:
        """Return the path of the file that holds the bytes."""
        return f"{self._steps}/{kept.place}"

    def info(self, kept: KeptFile) -> os.stat_result | None:
        """lstat of that file; None where there is none."""
        info = look(self._steps, kept.place, self._real)
        return info if info is not None and stat.S_ISREG(info.st_mode) else None

    def are_whole(self, before: PathState, kept: KeptFile | None) -> bool:
        """Return whether they are still what the file was: nobody wrote into the file that a link shares."""
        info = self.info(kept) if kept is not None else None
        if kept is None or info is None or info.st_size != before.size:
            return False
        return info.st_mtime_ns == before.mtime_ns or (
            before.sha256 is not None and digest(self.place(kept)) == before.sha256
        )


class Restorer:
    """Puts paths back to what they were: first what was not there goes, then folders, then files and links.

    Each path changes by one rename, so a run that is killed leaves it as it was or as it has to be, and doing all
    of it again is harmless. `left` are the paths that could not be put back, because bytes are lost or because
    somebody's files are in the way.
    """

    def __init__(
        self,
        top: str,
        stage: str,
        kept: Bytes,
        changes: Iterable[PathChange],
        *,
        valid_pyc: Mapping[str, tuple[int, int]] | None = None,
        exact: bool = False,
    ) -> None:
        """`stage`: a folder that is made for files on their way, and deleted at the end.

        `valid_pyc`: path → (size, mtime) of compiled files that belong to what is put back. `exact`: the changes are
        all there is to do (they come from a scan of everything): purge nothing else.
        """
        self._top = top
        self._stage_folder = stage
        self._bytes = kept
        self._changes = sorted(changes, key=lambda change: change.path)
        self._staged: dict[str, str] = {}
        self._valid_pyc = valid_pyc or {}
        self._exact = exact
        self._touched: set[str] = set()
        self._real: set[str] = set()
        """Folders known to be folders and no links; those we remove leave it."""
        self._folders: set[str] = set()
        """Changed paths that were folders when we began."""
        self._modes: dict[str, int] = {}
        self.left: list[str] = []

    # -------- bytes that are needed are made ready first: a full disk shows before anything changes

    def stage(self) -> None:
        """Make every file that has to come back. Changes nothing in the environment; may be done again."""
        remove(self._stage_folder)
        os.mkdir(self._stage_folder, 0o700)
        self._staged.clear()
        for change in self._changes:
            if change.before is not None and change.before.type == "file":
                self._stage(change)
        fsync(self._stage_folder)

    def _stage(self, change: PathChange) -> str | None:
        """Return where the file is made ready; None if the bytes are lost."""
        before, kept = change.before, change.kept
        if before is None or kept is None or not self._bytes.are_whole(before, kept):
            return None
        place = f"{self._stage_folder}/{len(self._staged)}"
        remove(place)
        if not make_hard_link(self._bytes.place(kept), place):
            copy(self._bytes.place(kept), place)
            fsync(place)
        self._staged[change.path] = place
        return place

    # -------- the environment

    def apply(self) -> None:
        """Put everything back, down to the disk. Raises OSError; may be done again."""
        if not self._staged:
            remove(self._stage_folder)
            os.mkdir(self._stage_folder, 0o700)
        self._open_folders()
        for change in self._changes:
            if change.before is None:
                self._remove(change.path)
        if not self._exact:
            self._purge_compiled()
        for change in reversed(self._changes):
            if change.path in self._folders and (change.before is None or change.before.type != "dir"):
                self._remove_folder(change.path)
        for change in self._changes:
            if change.before is not None and change.before.type == "dir":
                self._make_folder(change.path, change.before.mode)
        for change in self._changes:
            if change.before is not None and change.before.type != "dir" and change.path not in self.left:
                self._restore_path(change, change.before)
        for path in sorted(self._modes, reverse=True):
            info = self._look(path)
            if (
                info is not None
                and stat.S_ISDIR(info.st_mode)
                and stat.S_IMODE(info.st_mode) != self._modes[path]
            ):
                self._chmod(path, self._modes[path])
        sync([place for place in map(self._resolve, sorted(self._touched)) if is_folder(place)])
        remove(self._stage_folder)

    def _resolve(self, path: str) -> str:
        return f"{self._top}/{path}" if path else self._top

    def _look(self, path: str) -> os.stat_result | None:
        return look(self._top, path, self._real)

    def _has_folder(self, path: str) -> bool:
        """Return whether the folder a path lies in is there, reached without links."""
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
        os.chmod(self._resolve(path), mode)
        self._touched.add(path)

    def _open_folders(self) -> None:
        """Changed folders that nobody may write into: for as long as we do."""
        for path, *_ in self._changes:
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
        os.unlink(self._resolve(path))
        self._touch(path)

    def _purge_compiled(self) -> None:
        """Compiled files of sources that go or come back: Python made them of something else."""
        ours = {change.path for change in self._changes if change.before is not None}
        names: dict[str, set[str]] = {}
        for path, *_ in self._changes:
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
                    os.rmdir(self._resolve(cache))
                    self._real.discard(cache)

    def _list(self, folder: str) -> list[tuple[str, os.stat_result]]:
        """Return the entries of a folder that is one, with lstat."""
        if not is_folder(self._resolve(folder)) or (folder and self._look(folder) is None):
            return []
        with os.scandir(self._resolve(folder)) as entries:
            return [
                (f"{folder}/{entry.name}".lstrip("/"), entry.stat(follow_symlinks=False)) for entry in entries
            ]

    def _remove_folder(self, path: str) -> None:
        """Remove a folder together with compiled files in it; leave it where anything else is in it."""
        info = self._look(path)
        if info is None or not stat.S_ISDIR(info.st_mode):
            return
        below = os.walk(self._resolve(path))
        names = [f"{folder[len(self._top) :]}/{name}" for folder, *both in below for name in chain(*both)]
        if not all(map(is_derived, names)):
            self._leave(path)
            return
        remove(self._resolve(path))
        self._real = {one for one in self._real if one != path and not one.startswith(f"{path}/")}
        self._modes.pop(path, None)
        self._touch(path)

    def _make_folder(self, path: str, mode: int) -> None:
        info = self._look(path)
        if info is None or not stat.S_ISDIR(info.st_mode):
            if not self._has_folder(path):
                self._leave(path)
                return
            self._remove(path)
            os.mkdir(self._resolve(path), 0o700)
            give_to_owner_of_folder(self._resolve(path))
            self._touch(path)
        self._modes[path] = mode

    def _restore_path(self, change: PathChange, before: PathState) -> None:
        path = change.path
        if not self._has_folder(path):
            self._leave(path)
            return
        now = self._look(path)
        if before.type == "link":
            if (
                now is not None
                and stat.S_ISLNK(now.st_mode)
                and os.readlink(self._resolve(path)) == before.target
            ):
                return
            place = f"{self._stage_folder}/link"
            remove(place)
            os.symlink(before.target or "", place)
            self._rename(place, path)
            give_to_owner_of_folder(self._resolve(path))
            return
        kept = change.kept
        ready = self._staged.get(path)
        if kept is None or (ready is None and not self._bytes.are_whole(before, kept)):
            if is_derived(path):
                self._remove(path)
            self._leave(path)
            return
        info = self._bytes.info(kept)
        if now is not None and info is not None and os.path.samestat(now, info):
            # The very file: renaming a link onto another of the same file does nothing.
            self._set(self._resolve(path), now, before)
            return
        ready = ready or self._stage(change) or ""
        self._set(ready, os.lstat(ready), before)
        self._rename(ready, path)

    def _set(self, place: str, info: os.stat_result, before: PathState) -> None:
        """Mode and mtime. Never more rights than the file has: who asks for them may be somebody else."""
        if info.st_mtime_ns != before.mtime_ns:
            os.utime(place, ns=(before.mtime_ns, before.mtime_ns), follow_symlinks=False)
        mode = before.mode & ~(SET_ID & ~info.st_mode)
        if stat.S_IMODE(info.st_mode) != mode:
            os.chmod(place, mode)

    def _rename(self, place: str, path: str) -> None:
        try:
            os.replace(place, self._resolve(path))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # A folder of the environment on another file system: by way of a second copy beside it.
            part = unwritten(self._resolve(path))
            remove(part)
            shutil.copy2(place, part, follow_symlinks=False)
            os.replace(part, self._resolve(path))
            os.unlink(place)
        self._touch(path)


def paths_in_way(top: str, folder: str, known: Collection[str]) -> list[str]:
    """Return what is in a folder that nobody of `known` accounts for, compiled files apart."""
    return [path for path in scan(top, Scope((folder,))) if path not in known and not is_derived(path)]
