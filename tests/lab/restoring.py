"""A snapshot of a folder by hard links, which can restore the folder and report differences.

It is independent of tfdoctor's own journal, so that it can check the journal. Derived files (`__pycache__`)
are ignored.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_COPIED_BYTES = 1 << 16
"""Files below this many bytes in the folders of REWRITTEN are copied instead of linked.

Programs may write into them in place.
"""
COPIED_FOLDERS = ("bin", "etc", "conda-meta")
WRITTEN_IN_PLACE = ("/cacert.pem", "/REQUESTED")
"""Files that are written in place: a machine's certificate authority is added, and uv marks what was asked for in files
that its cache and other environments share."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The recorded state of one path."""

    kind: str
    """"file", "link" or "dir"."""
    mode: int
    """Permissions; 0 for a link."""
    size: int
    mtime_ns: int
    """Modification time of a file in nanoseconds; 0 otherwise."""
    inode: int
    """Inode of a file; 0 otherwise."""
    target: str
    """Target of a link; empty otherwise."""


def list_tree(root: Path) -> dict[str, Entry]:
    """Return everything below a folder by relative path, without derived files."""
    tree: dict[str, Entry] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                status = entry.stat(follow_symlinks=False)
                mode = stat.S_IMODE(status.st_mode)
                if entry.is_symlink():
                    tree[path] = Entry("link", 0, 0, 0, 0, os.readlink(root / path))  # noqa: PTH115 - as written
                elif entry.is_dir():
                    if entry.name != "__pycache__":
                        tree[path] = Entry("dir", mode, 0, 0, 0, "")
                        folders.append(path)
                else:
                    tree[path] = Entry("file", mode, status.st_size, status.st_mtime_ns, status.st_ino, "")
    return tree


class Snapshot:
    """The state of a folder at the time of creation."""

    def __init__(self, root: Path, store: Path) -> None:
        """Save `root` in `store`, a folder of the same file system that does not exist yet."""
        self.root, self.store = root, store
        self.entries = list_tree(root)
        store.mkdir(parents=True)
        for path, entry in self.entries.items():
            if entry.kind == "file":
                copy = store / path
                copy.parent.mkdir(parents=True, exist_ok=True)
                if _needs_copy(path, entry.size):
                    shutil.copy2(root / path, copy)
                else:
                    os.link(root / path, copy)

    def differences(self) -> list[str]:
        """Return one line for each path that differs.

        Paths, kinds, modes, targets, times and contents are compared.
        """
        current = list_tree(self.root)
        lines = [f"not there any more: {path}" for path in sorted(self.entries.keys() - current.keys())]
        lines += [f"was not there: {path}" for path in sorted(current.keys() - self.entries.keys())]
        for path in sorted(current.keys() & self.entries.keys()):
            before, after = self.entries[path], current[path]
            if before == after or path.endswith(WRITTEN_IN_PLACE):
                continue
            if replace(before, inode=0) != replace(after, inode=0):
                lines.append(f"changed: {path}: {before} -> {after}")
            elif not filecmp.cmp(self.store / path, self.root / path, shallow=False):
                lines.append(f"other content: {path}")
        return lines

    def restore(self) -> None:
        """Restore everything. Raise RuntimeError if a saved file was written into."""
        self.root.mkdir(exist_ok=True)  # a command may have deleted it
        current = list_tree(self.root)
        for path in sorted(current, key=len, reverse=True):
            if path not in self.entries or self.entries[path].kind != current[path].kind:
                _remove(self.root / path)
        for path, entry in self.entries.items():  # folders come before their content
            destination = self.root / path
            if entry.kind == "dir":
                destination.mkdir(exist_ok=True)
                destination.chmod(entry.mode)
            elif current.get(path) == entry:
                continue
            elif entry.kind == "link":
                destination.unlink(missing_ok=True)
                destination.symlink_to(entry.target)
            else:
                self._put_back(path, entry)

    def _put_back(self, path: str, entry: Entry) -> None:
        copy, destination = self.store / path, self.root / path
        status = copy.stat()
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
            message = f"{path} was written into in place, and with it what was kept of it"
            raise RuntimeError(message)
        destination.unlink(missing_ok=True)
        if status.st_ino == entry.inode:
            os.link(copy, destination)
            destination.chmod(entry.mode)
        else:
            shutil.copy2(copy, destination)
            self.entries[path] = replace(entry, inode=destination.stat().st_ino)

    def drop(self) -> None:
        """Delete the snapshot."""
        shutil.rmtree(self.store)


def _needs_copy(path: str, size: int) -> bool:
    rewritten = path.startswith((*(f"{name}/" for name in COPIED_FOLDERS), "pyvenv.cfg"))
    return (rewritten and size < MAX_COPIED_BYTES) or path.endswith(WRITTEN_IN_PLACE)


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
