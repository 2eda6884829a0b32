"""Restore the files of an environment from their saved contents.

The saved contents are not trusted: they may have been modified, and another user may run the undo. Therefore nothing
outside the environment is changed, links to folders are not followed, and no file gets more permissions than it has.
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

from tfdoctor.environments.folder import (
    get_unfinished_path,
    give_to_owner_of_folder,
    is_folder,
    remove_path,
    sync_path,
    sync_paths,
)
from tfdoctor.environments.history.snapshot import (
    SET_ID_BITS,
    PathChange,
    PathState,
    SavedFile,
    Scope,
    copy_file,
    hash_file,
    is_python_cache,
    lstat_below,
    make_hard_link,
    scan_states,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class SavedContents:
    """The saved contents of files, which may have been modified."""

    def __init__(self, steps: str) -> None:
        """Use the saved files in `steps`, which contains a folder for each step."""
        self._steps = steps
        self._real_folders: set[str] = set()

    def get_path(self, file: SavedFile) -> str:
        """Return the absolute path of a saved file."""
        return f"{self._steps}/{file.path}"

    def get_info(self, file: SavedFile) -> os.stat_result | None:
        """Return the lstat result of a saved file; None if it does not exist or is not a regular file."""
        info = lstat_below(self._steps, file.path, self._real_folders)
        return info if info is not None and stat.S_ISREG(info.st_mode) else None

    def are_intact(self, before: PathState, file: SavedFile | None) -> bool:
        """Return whether the saved file exists and still has the contents of `before`.

        The file is usually a hard link, so its contents change if a program writes into the original.
        """
        info = self.get_info(file) if file is not None else None
        if file is None or info is None or info.st_size != before.size:
            return False
        return info.st_mtime_ns == before.mtime_ns or (
            before.sha256 is not None and hash_file(self.get_path(file)) == before.sha256
        )


class Restorer:
    """Restores paths to their earlier states.

    First new paths are removed, then folders, files and links are restored. Each file is replaced by one rename. If the
    process is killed, the file is either unchanged or restored, and the next run can start from the beginning.
    `unrestored` lists the paths that could not be restored because their contents are lost or other files are in the way.
    """

    def __init__(
        self,
        top: str,
        stage_folder: str,
        contents: SavedContents,
        changes: Iterable[PathChange],
        *,
        valid_pyc: Mapping[str, tuple[int, int]] | None = None,
        includes_pyc: bool = False,
    ) -> None:
        """Prepare the restoration of `changes`.

        `top` is the environment. `stage_folder` is a temporary folder for prepared files, which is deleted at the end.
        `valid_pyc` maps the paths of the compiled files that belong to the restored sources to (size, mtime in ns). If
        `includes_pyc`, the changes come from a scan of the whole environment, so they include the compiled files. Otherwise,
        outdated compiled files of the changed sources are searched and removed.
        """
        self._top = top
        self._stage_folder = stage_folder
        self._contents = contents
        self._changes = sorted(changes, key=lambda change: change.path)
        self._staged_paths: dict[str, str] = {}
        """The path of each prepared file in the temporary folder, by path in the environment."""
        self._valid_pyc = valid_pyc or {}
        self._includes_pyc = includes_pyc
        self._touched_folders: set[str] = set()
        """The folders that have to be synced to the disk."""
        self._real_folders: set[str] = set()
        """Paths that are known to be folders and not links: a cache for `lstat_below`."""
        self._changed_folders: set[str] = set()
        """The changed paths that were folders at the start."""
        self._final_modes: dict[str, int] = {}
        """The final mode of each folder, by path."""
        self.unrestored: list[str] = []

    # -------- preparing files first, so that a full disk is noticed before anything changes

    def stage_files(self) -> None:
        """Prepare every file that has to be restored, without changing the environment.

        Raise OSError if that fails. It can be called again after an error.
        """
        remove_path(self._stage_folder)
        os.mkdir(self._stage_folder, 0o700)
        self._staged_paths.clear()
        for change in self._changes:
            if change.before is not None and change.before.type == "file":
                self._stage_file(change)
        sync_path(self._stage_folder)

    def _stage_file(self, change: PathChange) -> str | None:
        """Prepare a file and return its path in the temporary folder; None if the contents are lost."""
        before, saved_file = change.before, change.kept
        if before is None or saved_file is None or not self._contents.are_intact(before, saved_file):
            return None
        staged_path = f"{self._stage_folder}/{len(self._staged_paths)}"
        remove_path(staged_path)
        if not make_hard_link(self._contents.get_path(saved_file), staged_path):
            copy_file(self._contents.get_path(saved_file), staged_path)
            sync_path(staged_path)
        self._staged_paths[change.path] = staged_path
        return staged_path

    # -------- restoring

    def apply(self) -> None:
        """Restore all paths and sync them to the disk. Raise OSError if that fails; then call it again."""
        if not self._staged_paths:  # files are prepared one by one when they are restored
            remove_path(self._stage_folder)
            os.mkdir(self._stage_folder, 0o700)
        self._make_folders_writable()
        # Remove new paths, then folders that are in the way (deepest first), before anything is restored.
        for change in self._changes:
            if change.before is None:
                self._remove(change.path)
        if not self._includes_pyc:
            self._remove_outdated_pyc()
        for change in reversed(self._changes):
            if change.path in self._changed_folders and (
                change.before is None or change.before.type != "dir"
            ):
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
        for path in sorted(self._final_modes, reverse=True):
            info = self._lstat(path)
            if (
                info is not None
                and stat.S_ISDIR(info.st_mode)
                and stat.S_IMODE(info.st_mode) != self._final_modes[path]
            ):
                self._chmod(path, self._final_modes[path])
        sync_paths(
            [folder for folder in map(self._resolve, sorted(self._touched_folders)) if is_folder(folder)]
        )
        remove_path(self._stage_folder)

    def _resolve(self, path: str) -> str:
        """Return the absolute path of a path in the environment."""
        return f"{self._top}/{path}" if path else self._top

    def _lstat(self, path: str) -> os.stat_result | None:
        """Return the lstat result of a path; None if it does not exist or a parent folder is a link."""
        return lstat_below(self._top, path, self._real_folders)

    def _has_parent_folder(self, path: str) -> bool:
        """Return whether the parent folder of a path exists and is not reached through a link."""
        folder = path.rpartition("/")[0]
        if not folder or folder in self._real_folders:
            return True
        info = self._lstat(folder)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def _mark_touched(self, path: str) -> None:
        """Record that the parent folder of a path was changed and has to be synced."""
        self._touched_folders.add(path.rpartition("/")[0])

    def _record_unrestored(self, path: str) -> None:
        """Record that a path could not be restored, unless Python creates it by itself."""
        if not is_python_cache(path) and path not in self.unrestored:
            self.unrestored.append(path)

    def _chmod(self, path: str, mode: int) -> None:
        os.chmod(self._resolve(path), mode)
        self._touched_folders.add(path)

    def _make_folders_writable(self) -> None:
        """Make the changed folders writable. `apply` restores their modes at the end."""
        for path in [change.path for change in self._changes]:
            info = self._lstat(path)
            if info is None or not stat.S_ISDIR(info.st_mode):
                continue
            self._changed_folders.add(path)
            if info.st_mode & 0o700 != 0o700:
                self._final_modes.setdefault(path, stat.S_IMODE(info.st_mode))
                self._chmod(path, stat.S_IMODE(info.st_mode) | 0o700)

    def _remove(self, path: str) -> None:
        """Remove a file or link. Record a socket, pipe or device as not restored; ignore a folder."""
        info = self._lstat(path)
        if info is None or stat.S_ISDIR(info.st_mode):
            return
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            self._record_unrestored(path)
            return
        os.unlink(self._resolve(path))
        self._mark_touched(path)

    def _remove_outdated_pyc(self) -> None:
        """Remove the compiled files of changed sources, except those that belong to the restored sources."""
        restored_paths = {change.path for change in self._changes if change.before is not None}
        stems_by_folder: dict[str, set[str]] = {}
        for change in self._changes:
            folder, _, name = change.path.rpartition("/")
            if name.endswith(".py"):
                stems_by_folder.setdefault(folder, set()).add(name.removesuffix(".py"))
        for folder, stems in stems_by_folder.items():
            cache_folder = f"{folder}/__pycache__".lstrip("/")
            removed_from_cache = False
            for folder_to_list in (cache_folder, folder):
                for path, info in self._list_folder(folder_to_list):
                    name = path.rpartition("/")[2]
                    stem = (
                        name.split(".", 1)[0] if folder_to_list == cache_folder else name.removesuffix(".pyc")
                    )
                    is_valid = self._valid_pyc.get(path) == (info.st_size, info.st_mtime_ns)
                    if (
                        name.endswith(".pyc")
                        and stem in stems
                        and path not in restored_paths
                        and not is_valid
                    ):
                        self._remove(path)
                        removed_from_cache = removed_from_cache or folder_to_list == cache_folder
            if removed_from_cache and cache_folder not in restored_paths:
                with contextlib.suppress(OSError):  # the folder may not be empty
                    os.rmdir(self._resolve(cache_folder))
                    self._real_folders.discard(cache_folder)

    def _list_folder(self, folder: str) -> list[tuple[str, os.stat_result]]:
        """Return (path, lstat result) of the entries of a folder; empty if the path is not a folder."""
        if not is_folder(self._resolve(folder)) or (folder and self._lstat(folder) is None):
            return []
        with os.scandir(self._resolve(folder)) as entries:
            return [
                (f"{folder}/{entry.name}".lstrip("/"), entry.stat(follow_symlinks=False)) for entry in entries
            ]

    def _remove_folder(self, path: str) -> None:
        """Remove a folder if it contains only compiled files; otherwise record it as not restored."""
        info = self._lstat(path)
        if info is None or not stat.S_ISDIR(info.st_mode):
            return
        paths_below = [
            f"{folder[len(self._top) :]}/{name}"
            for folder, folder_names, file_names in os.walk(self._resolve(path))
            for name in chain(folder_names, file_names)
        ]
        if not all(map(is_python_cache, paths_below)):
            self._record_unrestored(path)
            return
        remove_path(self._resolve(path))
        self._real_folders = {
            real for real in self._real_folders if real != path and not real.startswith(f"{path}/")
        }
        self._final_modes.pop(path, None)
        self._mark_touched(path)

    def _make_folder(self, path: str, mode: int) -> None:
        """Create a folder if it is missing, and record its final mode."""
        info = self._lstat(path)
        if info is None or not stat.S_ISDIR(info.st_mode):
            if not self._has_parent_folder(path):
                self._record_unrestored(path)
                return
            self._remove(path)
            os.mkdir(self._resolve(path), 0o700)
            give_to_owner_of_folder(self._resolve(path))
            self._mark_touched(path)
        self._final_modes[path] = mode

    def _restore_path(self, change: PathChange, before: PathState) -> None:
        """Restore a file or link. Record it as not restored if its contents or its parent folder are missing."""
        path = change.path
        if not self._has_parent_folder(path):
            self._record_unrestored(path)
            return
        current_info = self._lstat(path)
        if before.type == "link":
            if (
                current_info is not None
                and stat.S_ISLNK(current_info.st_mode)
                and os.readlink(self._resolve(path)) == before.target
            ):
                return
            staged_link = f"{self._stage_folder}/link"
            remove_path(staged_link)
            os.symlink(before.target or "", staged_link)
            self._rename(staged_link, path)
            give_to_owner_of_folder(self._resolve(path))
            return
        saved_file = change.kept
        staged_path = self._staged_paths.get(path)
        if saved_file is None or (staged_path is None and not self._contents.are_intact(before, saved_file)):
            if is_python_cache(path):
                self._remove(path)
            self._record_unrestored(path)
            return
        saved_info = self._contents.get_info(saved_file)
        if current_info is not None and saved_info is not None and os.path.samestat(current_info, saved_info):
            # Both paths are links to one file, and renaming one onto the other would do nothing.
            self._set_mode_and_mtime(self._resolve(path), current_info, before)
            return
        staged_path = staged_path or self._stage_file(change) or ""
        self._set_mode_and_mtime(staged_path, os.lstat(staged_path), before)
        self._rename(staged_path, path)

    def _set_mode_and_mtime(self, absolute_path: str, info: os.stat_result, before: PathState) -> None:
        """Set the mode and the mtime of a file.

        The set-user-ID and set-group-ID bits are never added, because another user may run the undo.
        """
        if info.st_mtime_ns != before.mtime_ns:
            os.utime(absolute_path, ns=(before.mtime_ns, before.mtime_ns), follow_symlinks=False)
        mode = before.mode & ~(SET_ID_BITS & ~info.st_mode)
        if stat.S_IMODE(info.st_mode) != mode:
            os.chmod(absolute_path, mode)

    def _rename(self, staged_path: str, path: str) -> None:
        """Rename a prepared file to its path in the environment."""
        try:
            os.replace(staged_path, self._resolve(path))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # The path is on another file system, so copy the file next to it first.
            copy_path = get_unfinished_path(self._resolve(path))
            remove_path(copy_path)
            shutil.copy2(staged_path, copy_path, follow_symlinks=False)
            os.replace(copy_path, self._resolve(path))
            os.unlink(staged_path)
        self._mark_touched(path)


def list_blocking_paths(top: str, folder: str, expected_paths: Collection[str]) -> list[str]:
    """Return the paths in a folder that are neither in `expected_paths` nor created by Python."""
    return [
        path
        for path in scan_states(top, Scope((folder,)))
        if path not in expected_paths and not is_python_cache(path)
    ]
