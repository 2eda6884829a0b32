"""tfdoctor's folder in an environment, its lock, and atomic file changes.

An unfinished file has a predictable name (`get_unfinished_path`). If this process is killed, the next run finds the file:
fix removes it, and install overwrites it. Files that the user names are written by `system/writing.py` instead, which
uses a random name.

Paths may be strings: an environment has about 40,000 files, and their names may not be valid UTF-8.
"""
# ruff: noqa: PTH105, PTH108, PTH120

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

from tfdoctor.core.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

__all__ = [
    "STATE_FOLDER",
    "UNFINISHED_SUFFIX",
    "acquire_lock",
    "find_outward_links",
    "get_unfinished_path",
    "is_folder",
    "remove_path",
    "sync_path",
    "sync_paths",
    "write_atomically",
]

STATE_FOLDER = ".tfdoctor"
"""The name of tfdoctor's folder in an environment. It contains install.json of `install` and the journal of `fix`."""
UNFINISHED_SUFFIX = ".unwritten"
"""The suffix of a file that is still being written."""
_MAX_SINGLE_SYNCS = 64
"""The largest number of paths that are synced one by one."""


def is_folder(path: str) -> bool:
    """Return whether a path is a folder and not a link."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def find_outward_links(prefix: str, site_folders: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return (link, target) for each link in an environment that leads to a folder outside it.

    `site_folders` are the site-packages folders, which are searched recursively; their parent folders in the environment are also
    checked. The history would not record changes behind such a link. Unreadable folders are skipped.
    """
    real_prefix = os.path.realpath(prefix)
    links = {}

    def check_folder(path: str) -> bool:
        """Return whether a path is a folder and not a link. Record a link that leads outside."""
        if is_folder(path):
            return True
        real_path = os.path.realpath(path)
        if is_folder(real_path) and real_path != real_prefix and not real_path.startswith(f"{real_prefix}/"):
            links[path] = real_path
        return False

    pending = []
    for site in site_folders:
        relative = os.path.relpath(site, prefix)
        parts = relative.split("/") if not relative.startswith("..") else []
        folders = ["/".join((prefix.rstrip("/"), *parts[:depth])) for depth in range(1, len(parts) + 1)]
        if all(check_folder(path) for path in folders):
            pending.append(site)
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            pending += [entry.path for entry in entries if entry.is_dir() and check_folder(entry.path)]
    return tuple(links.items())


def sync_path(path: str) -> None:
    """Sync a file, or the entries of a folder, to the disk. Raise OSError if that fails or the path is a link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_paths(paths: Collection[str]) -> None:
    """Sync paths to the disk. If there are many paths, sync all file systems at once, which is faster."""
    if len(paths) > _MAX_SINGLE_SYNCS:
        os.sync()
        return
    for path in paths:
        sync_path(path)


def get_unfinished_path(path: str | Path) -> str:
    """Return the path under which a new version of the file `path` is written."""
    return f"{path}{UNFINISHED_SUFFIX}"


def write_atomically(path: str | Path, content: bytes, *, is_private: bool = False) -> None:
    """Write a file atomically and sync it to the disk.

    The owner (if this process is root), mode and extended attributes of an existing file are kept. If `is_private`, only
    the owner can read a new file. Raise OSError if writing fails.
    """
    unfinished_path = get_unfinished_path(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unfinished_path)
    handle = os.open(
        unfinished_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600 if is_private else 0o666
    )
    try:
        with os.fdopen(handle, "wb") as stream:
            with contextlib.suppress(FileNotFoundError):
                info = os.stat(path)  # noqa: PTH116
                if os.geteuid() == 0:
                    os.fchown(handle, info.st_uid, info.st_gid)
                os.fchmod(handle, stat.S_IMODE(info.st_mode))
                copy_attributes(path, handle)
            stream.write(content)
            stream.flush()
            os.fsync(handle)
        os.replace(unfinished_path, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished_path)
        raise
    sync_path(os.path.dirname(path))


def copy_attributes(source: str | Path | int, target: str | Path | int) -> None:
    """Copy the extended attributes of a file, as far as the file system and the permissions allow it."""
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def give_to_owner_of_folder(path: str) -> None:
    """If this process is root, change the owner of a path from root to the owner of its folder.

    If the path is a link, the link itself is changed, not its target. Errors are ignored.
    """
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        folder_info, info = os.stat(os.path.dirname(path)), os.lstat(path)  # noqa: PTH116
        if info.st_uid == 0 and (folder_info.st_uid, folder_info.st_gid) != (0, info.st_gid):
            os.lchown(path, folder_info.st_uid, folder_info.st_gid)


def remove_path(path: str | Path) -> None:
    """Remove a file, a link, or a folder with its content; do nothing if the path does not exist.

    Raise OSError if the path cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        if is_folder(str(path)):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def acquire_lock(path: str, make_folder: Callable[[], None], on_wait: Callable[[int], None]) -> int:
    """Lock a file and return its file descriptor.

    `make_folder` creates the folder of the file. If another process deletes the file and its folder when it releases the
    lock, both are created again. `on_wait` is called once, with the descriptor, before waiting for another process.
    Child processes that inherit the descriptor hold the lock until they end. Raise OSError if the file cannot be created
    or locked, or Error on Windows.
    """
    if os.name != "posix":  # pragma: no cover - Windows
        raise Error("Environments can be changed on Linux and macOS only.")
    import fcntl

    has_waited = False
    while True:
        make_folder()
        try:
            handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
            )
        except FileNotFoundError:
            continue  # the folder was deleted after it was created
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not has_waited:
                    on_wait(handle)
                has_waited = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                # If this is not the same file, the locked file was deleted while we waited.
                if os.path.samestat(os.fstat(handle), os.lstat(path)):
                    locked_handle, handle = handle, -1  # -1: not to be closed below
                    return locked_handle
        finally:
            if handle >= 0:
                os.close(handle)
