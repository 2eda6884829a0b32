"""tfdoctor's own folder in an environment, its locks, and changing files so that a kill leaves the old one or the new.

`system/writing.py` writes what a user names, into folders of anybody: under a name that nobody can guess, and only
where nothing is replaced by mistake. Here what is half-written has a name that is known beforehand (`unwritten`), for
whoever comes after a kill has to find it: fix takes it back with the rest, install writes over it.

Paths may be strings: an environment has 40,000 files, with names that need not be UTF-8.
"""
# ruff: noqa: PTH105, PTH108, PTH120

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

from tfdoctor.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

__all__ = [
    "OWN",
    "UNWRITTEN",
    "find_outward_links",
    "fsync",
    "is_folder",
    "lock",
    "remove",
    "sync",
    "unwritten",
    "write",
]

OWN = ".tfdoctor"
"""The folder in an environment that is tfdoctor's own: install.json of `install`, the history of `fix`."""
UNWRITTEN = ".unwritten"
_MANY = 64


def is_folder(path: str) -> bool:
    """Return whether a folder is there, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def find_outward_links(prefix: str, sites: Collection[str]) -> tuple[tuple[str, str], ...]:
    """(link, where it leads) of links to folders outside of an environment, below its folders for packages and above
    these: what is changed behind them is none of its history. Folders that cannot be read are passed over."""
    home = os.path.realpath(prefix)
    found = {}

    def look(path: str) -> bool:
        """Return whether it is a folder to go on in; a link out of here is noted."""
        if is_folder(path):
            return True
        real = os.path.realpath(path)
        if is_folder(real) and real != home and not real.startswith(f"{home}/"):
            found[path] = real
        return False

    todo = []
    for site in sites:
        below = os.path.relpath(site, prefix)
        parts = below.split("/") if not below.startswith("..") else []
        above = ["/".join((prefix.rstrip("/"), *parts[:depth])) for depth in range(1, len(parts) + 1)]
        if all(look(path) for path in above):
            todo.append(site)
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            todo += [one.path for one in entries if one.is_dir() and look(one.path)]
    return tuple(found.items())


def fsync(path: str) -> None:
    """Write a file, or the names in a folder, to the disk. Raises OSError, also for a link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync(paths: Collection[str]) -> None:
    """`fsync` each; where they are many, everything at once, which is quicker."""
    if len(paths) > _MANY:
        os.sync()
        return
    for path in paths:
        fsync(path)


def unwritten(path: str | Path) -> str:
    """Return what is to take this place lies here until it is whole."""
    return f"{path}{UNWRITTEN}"


def write(path: str | Path, content: bytes, *, private: bool = False) -> None:
    """Write a file down to the disk. Whenever this ends, the old one is there or the new one.

    It keeps the owner, mode and extended attributes of the file that it replaces. `private`: a new one is for its owner
    alone. Raises OSError.
    """
    spare = unwritten(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(spare)
    handle = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600 if private else 0o666)
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
        os.replace(spare, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(spare)
        raise
    fsync(os.path.dirname(path))


def copy_attributes(source: str | Path | int, target: str | Path | int) -> None:
    """Copy extended attributes, as far as the file system and this user can."""
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def give_to_owner_of_folder(path: str) -> None:
    """As root, give a new path to the owner of the folder that it lies in; a link itself, not what it leads to."""
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        above, info = os.stat(os.path.dirname(path)), os.lstat(path)  # noqa: PTH116
        if info.st_uid == 0 and (above.st_uid, above.st_gid) != (0, info.st_gid):
            os.lchown(path, above.st_uid, above.st_gid)


def remove(path: str | Path) -> None:
    """A file, a link, or a folder with all that is in it; nothing where nothing is there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if is_folder(str(path)):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def lock(path: str, make_folder: Callable[[], None], on_wait: Callable[[int], None]) -> int:
    """Take a lock: a file that its last holder may delete together with its folder. → its file descriptor.

    `make_folder` makes the folder that it lies in; it is called again whenever that was deleted meanwhile. `on_wait` is
    called once, with the lock's descriptor, before waiting for another process. Programs that keep the descriptor open
    hold the lock, too, until they end. Raises OSError.
    """
    if os.name != "posix":  # pragma: no cover - Windows
        raise Error("Environments can be changed on Linux and macOS only.")
    import fcntl

    waited = False
    while True:
        make_folder()
        try:
            handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
            )
        except FileNotFoundError:
            continue  # the folder was deleted between the two lines
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    on_wait(handle)
                waited = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if os.path.samestat(
                    os.fstat(handle), os.lstat(path)
                ):  # else: a lock that nobody finds any more
                    held, handle = handle, -1
                    return held
        finally:
            if handle >= 0:
                os.close(handle)
