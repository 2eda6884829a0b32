"""The restoration of files from the kept contents: the part of the history that changes files.

The kept contents may have been tampered with, and another user may request the undo. So nothing here leaves the
environment, follows a link to a folder, or gives a file more permissions than it had.
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

from tfdoctor.environment.folder import (
    fsync,
    get_unfinished_path,
    give_to_owner_of_folder,
    is_folder,
    remove,
    sync,
)
from tfdoctor.environment.history.snapshot import (
    SET_ID,
    KeptFile,
    PathChange,
    PathState,
    Scope,
    copy,
    digest,
    is_derived,
    lstat_below,
    make_hard_link,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class KeptContents:
    """The kept contents of files, which may have been tampered with."""

    def __init__(self, steps: str) -> None:
        """`steps` is the path of the folder that contains a folder for each step."""
        self._steps = steps
        self._real: set[str] = set()

    def get_path(self, kept: KeptFile) -> str:
        """Return the path of the file that holds the contents."""
        return f"{self._steps}/{kept.path}"

    def info(self, kept: KeptFile) -> os.stat_result | None:
        """Return lstat of that file; None if it does not exist or is not a regular file."""
        info = lstat_below(self._steps, kept.path, self._real)
        return info if info is not None and stat.S_ISREG(info.st_mode) else None

    def are_intact(self, before: PathState, kept: KeptFile | None) -> bool:
        """Return whether the contents are still those of `before`: nobody wrote through the hard link."""
        info = self.info(kept) if kept is not None else None
        if kept is None or info is None or info.st_size != before.size:
            return False
        return info.st_mtime_ns == before.mtime_ns or (
            before.sha256 is not None and digest(self.get_path(kept)) == before.sha256
        )


class Restorer:
    """A restorer of paths: it removes new ones first, then restores folders, then files and links.

    Each path changes by one rename: a killed run leaves every path either untouched or restored, and running it again
    is harmless. `left` are the paths that could not be restored, because contents are lost or somebody's files are in
    the way.
    """

    def __init__(
        self,
        top: str,
        stage: str,
        kept: KeptContents,
        changes: Iterable[PathChange],
        *,
        valid_pyc: Mapping[str, tuple[int, int]] | None = None,
        exact: bool = False,
    ) -> None:
        """Prepare the restoration of `changes`.

        `stage` is a folder that is created for files before they are renamed into place, and deleted at the end.
        `valid_pyc` has (size, mtime) of compiled files that match the restored sources. If `exact`, no other compiled
        files are removed, because the changes come from a scan of everything.
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
        """Paths known to be folders and not links, except those removed since."""
        self._folders: set[str] = set()
        """Changed paths that were folders at the start."""
        self._modes: dict[str, int] = {}
        self.unrestored: list[str] = []

    # -------- staging: a full disk is noticed before anything changes

    def stage(self) -> None:
        """Prepare every file that has to be restored. Change nothing in the environment; may be called again."""
        remove(self._stage_folder)
        os.mkdir(self._stage_folder, 0o700)
        self._staged.clear()
        for change in self._changes:
            if change.before is not None and change.before.type == "file":
                self._stage_file(change)
        fsync(self._stage_folder)

    def _stage_file(self, change: PathChange) -> str | None:
        """Return the path of the prepared file; None if the contents are lost."""
        before, kept_file = change.before, change.kept
        if before is None or kept_file is None or not self._bytes.are_intact(before, kept_file):
            return None
        staged_path = f"{self._stage_folder}/{len(self._staged)}"
        remove(staged_path)
        if not make_hard_link(self._bytes.get_path(kept_file), staged_path):
            copy(self._bytes.get_path(kept_file), staged_path)
            fsync(staged_path)
        self._staged[change.path] = staged_path
        return staged_path

    # -------- restoring

    def apply(self) -> None:
        """Restore everything and sync it to the disk. Raise OSError; may be called again."""
        if not self._staged:
            remove(self._stage_folder)
            os.mkdir(self._stage_folder, 0o700)
        self._make_folders_writable()
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
            if (
                change.before is not None
                and change.before.type != "dir"
                and change.path not in self.unrestored
            ):
                self._restore_path(change, change.before)
        for path in sorted(self._modes, reverse=True):
            info = self._lstat(path)
            if (
                info is not None
                and stat.S_ISDIR(info.st_mode)
                and stat.S_IMODE(info.st_mode) != self._modes[path]
            ):
                self._chmod(path, self._modes[path])
        sync([folder for folder in map(self._resolve, sorted(self._touched)) if is_folder(folder)])
        remove(self._stage_folder)

    def _resolve(self, path: str) -> str:
        """Return the absolute path."""
        return f"{self._top}/{path}" if path else self._top

    def _lstat(self, path: str) -> os.stat_result | None:
        return lstat_below(self._top, path, self._real)

    def _has_parent_folder(self, path: str) -> bool:
        """Return whether the parent folder of a path exists and is reached without links."""
        folder = path.rpartition("/")[0]
        if not folder or folder in self._real:
            return True
        info = self._lstat(folder)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def _mark_touched(self, path: str) -> None:
        """Record that the parent folder of a path was changed and has to be synced."""
        self._touched.add(path.rpartition("/")[0])

    def _record_left(self, path: str) -> None:
        """Record that a path could not be restored."""
        if not is_derived(path) and path not in self.unrestored:
            self.unrestored.append(path)

    def _chmod(self, path: str, mode: int) -> None:
        os.chmod(self._resolve(path), mode)
        self._touched.add(path)

    def _make_folders_writable(self) -> None:
        """Make changed folders writable for the time of the restoration."""
        for path, *_ in self._changes:
            info = self._lstat(path)
            if info is None or not stat.S_ISDIR(info.st_mode):
                continue
            self._folders.add(path)
            if info.st_mode & 0o700 != 0o700:
                self._modes.setdefault(path, stat.S_IMODE(info.st_mode))
                self._chmod(path, stat.S_IMODE(info.st_mode) | 0o700)

    def _remove(self, path: str) -> None:
        """Remove a file or link; leave a path of any other type."""
        info = self._lstat(path)
        if info is None or stat.S_ISDIR(info.st_mode):
            return
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            self._record_left(path)
            return
        os.unlink(self._resolve(path))
        self._mark_touched(path)

    def _purge_compiled(self) -> None:
        """Remove compiled files of the sources that change, unless they match the restored ones."""
        restored = {change.path for change in self._changes if change.before is not None}
        names: dict[str, set[str]] = {}
        for path, *_ in self._changes:
            folder, _, name = path.rpartition("/")
            if name.endswith(".py"):
                names.setdefault(folder, set()).add(name.removesuffix(".py"))
        for folder, stems in names.items():
            cache = f"{folder}/__pycache__".lstrip("/")
            purged = False
            for folder_to_list in (cache, folder):
                for path, info in self._list_folder(folder_to_list):
                    name = path.rpartition("/")[2]
                    stem = name.split(".", 1)[0] if folder_to_list == cache else name.removesuffix(".pyc")
                    valid = self._valid_pyc.get(path) == (info.st_size, info.st_mtime_ns)
                    if name.endswith(".pyc") and stem in stems and path not in restored and not valid:
                        self._remove(path)
                        purged = purged or folder_to_list == cache
            if purged and cache not in restored:
                with contextlib.suppress(OSError):
                    os.rmdir(self._resolve(cache))
                    self._real.discard(cache)

    def _list_folder(self, folder: str) -> list[tuple[str, os.stat_result]]:
        """Return the entries of a folder with their lstat; nothing if the path is not a folder."""
        if not is_folder(self._resolve(folder)) or (folder and self._lstat(folder) is None):
            return []
        with os.scandir(self._resolve(folder)) as entries:
            return [
                (f"{folder}/{entry.name}".lstrip("/"), entry.stat(follow_symlinks=False)) for entry in entries
            ]

    def _remove_folder(self, path: str) -> None:
        """Remove a folder that contains only compiled files; leave it if it contains anything else."""
        info = self._lstat(path)
        if info is None or not stat.S_ISDIR(info.st_mode):
            return
        tree = os.walk(self._resolve(path))
        names = [
            f"{folder[len(self._top) :]}/{name}"
            for folder, *names_in_folder in tree
            for name in chain(*names_in_folder)
        ]
        if not all(map(is_derived, names)):
            self._record_left(path)
            return
        remove(self._resolve(path))
        self._real = {other for other in self._real if other != path and not other.startswith(f"{path}/")}
        self._modes.pop(path, None)
        self._mark_touched(path)

    def _make_folder(self, path: str, mode: int) -> None:
        """Create a missing folder, and record the mode that it gets in the end."""
        info = self._lstat(path)
        if info is None or not stat.S_ISDIR(info.st_mode):
            if not self._has_parent_folder(path):
                self._record_left(path)
                return
            self._remove(path)
            os.mkdir(self._resolve(path), 0o700)
            give_to_owner_of_folder(self._resolve(path))
            self._mark_touched(path)
        self._modes[path] = mode

    def _restore_path(self, change: PathChange, before: PathState) -> None:
        """Restore a file or link, or record that it could not be restored."""
        path = change.path
        if not self._has_parent_folder(path):
            self._record_left(path)
            return
        current = self._lstat(path)
        if before.type == "link":
            if (
                current is not None
                and stat.S_ISLNK(current.st_mode)
                and os.readlink(self._resolve(path)) == before.target
            ):
                return
            link = f"{self._stage_folder}/link"
            remove(link)
            os.symlink(before.target or "", link)
            self._rename(link, path)
            give_to_owner_of_folder(self._resolve(path))
            return
        kept_file = change.kept
        staged = self._staged.get(path)
        if kept_file is None or (staged is None and not self._bytes.are_intact(before, kept_file)):
            if is_derived(path):
                self._remove(path)
            self._record_left(path)
            return
        info = self._bytes.info(kept_file)
        if current is not None and info is not None and os.path.samestat(current, info):
            # It is the same file: renaming a hard link onto another link to that file does nothing.
            self._set_mode_and_mtime(self._resolve(path), current, before)
            return
        staged = staged or self._stage_file(change) or ""
        self._set_mode_and_mtime(staged, os.lstat(staged), before)
        self._rename(staged, path)

    def _set_mode_and_mtime(self, absolute: str, info: os.stat_result, before: PathState) -> None:
        """Set mode and mtime, but never add set-user-ID or set-group-ID: another user may request the undo."""
        if info.st_mtime_ns != before.mtime_ns:
            os.utime(absolute, ns=(before.mtime_ns, before.mtime_ns), follow_symlinks=False)
        mode = before.mode & ~(SET_ID & ~info.st_mode)
        if stat.S_IMODE(info.st_mode) != mode:
            os.chmod(absolute, mode)

    def _rename(self, staged: str, path: str) -> None:
        """Move a prepared file to its path."""
        try:
            os.replace(staged, self._resolve(path))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # A folder of the environment is on another file system, so a second copy is made beside the file.
            copied = get_unfinished_path(self._resolve(path))
            remove(copied)
            shutil.copy2(staged, copied, follow_symlinks=False)
            os.replace(copied, self._resolve(path))
            os.unlink(staged)
        self._mark_touched(path)


def list_blocking_paths(top: str, folder: str, known: Collection[str]) -> list[str]:
    """Return the paths in a folder that are not in `known`, without compiled files."""
    return [path for path in scan(top, Scope((folder,))) if path not in known and not is_derived(path)]
