"""A snapshot of a folder by hard links: puts it back, and says what is different.

It knows nothing of tfdoctor's own journal, so that the one can be held against the other. Derived files
(`__pycache__`) do not count.
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

SHORT = 1 << 16
"""Files below this many bytes that lie in these folders are copied: a program may write into them in place."""
REWRITTEN = ("bin", "etc", "conda-meta")
CERTIFICATES = "cacert.pem"
"""Where a machine has a certificate authority of its own, something may add it to these files, in place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One path as it was."""

    kind: str
    """ "file", "link" or "dir"."""
    mode: int
    """Permissions; 0 for a link."""
    size: int
    mtime_ns: int
    """Of a file; 0 otherwise."""
    inode: int
    """Of a file; 0 otherwise."""
    target: str
    """Of a link."""


def list_tree(root: Path) -> dict[str, Entry]:
    """Everything below a folder, by its path relative to it, derived files left out."""
    found: dict[str, Entry] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                status = entry.stat(follow_symlinks=False)
                mode = stat.S_IMODE(status.st_mode)
                if entry.is_symlink():
                    found[path] = Entry("link", 0, 0, 0, 0, os.readlink(root / path))  # noqa: PTH115 - as written
                elif entry.is_dir():
                    if entry.name != "__pycache__":
                        found[path] = Entry("dir", mode, 0, 0, 0, "")
                        folders.append(path)
                else:
                    found[path] = Entry("file", mode, status.st_size, status.st_mtime_ns, status.st_ino, "")
    return found


class Snapshot:
    """What a folder was when this was made."""

    def __init__(self, root: Path, store: Path) -> None:
        """Keep `root` in `store`, a folder of the same file system that is not there yet."""
        self.root, self.store = root, store
        self.entries = list_tree(root)
        store.mkdir(parents=True)
        for path, entry in self.entries.items():
            if entry.kind == "file":
                kept = store / path
                kept.parent.mkdir(parents=True, exist_ok=True)
                if _may_be_written_into(path, entry.size):
                    shutil.copy2(root / path, kept)
                else:
                    os.link(root / path, kept)

    def differences(self) -> list[str]:
        """What is not as it was: a line for each path; paths, kinds, modes, targets, times and contents."""
        now = list_tree(self.root)
        lines = [f"not there any more: {path}" for path in sorted(self.entries.keys() - now.keys())]
        lines += [f"was not there: {path}" for path in sorted(now.keys() - self.entries.keys())]
        for path in sorted(now.keys() & self.entries.keys()):
            before, after = self.entries[path], now[path]
            if before == after or path.endswith(f"/{CERTIFICATES}"):
                continue
            if replace(before, inode=0) != replace(after, inode=0):
                lines.append(f"changed: {path}: {before} -> {after}")
            elif not filecmp.cmp(self.store / path, self.root / path, shallow=False):
                lines.append(f"other content: {path}")
        return lines

    def restore(self) -> None:
        """Put everything back. Raises RuntimeError where a kept file itself was written into."""
        self.root.mkdir(exist_ok=True)  # a command may have taken all of it
        now = list_tree(self.root)
        for path in sorted(now, key=len, reverse=True):
            if path not in self.entries or self.entries[path].kind != now[path].kind:
                _remove(self.root / path)
        for path, entry in self.entries.items():  # folders come before what is in them
            here = self.root / path
            if entry.kind == "dir":
                here.mkdir(exist_ok=True)
                here.chmod(entry.mode)
            elif now.get(path) == entry:
                continue
            elif entry.kind == "link":
                here.unlink(missing_ok=True)
                here.symlink_to(entry.target)
            else:
                self._put_back(path, entry)

    def _put_back(self, path: str, entry: Entry) -> None:
        kept, here = self.store / path, self.root / path
        status = kept.stat()
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
            message = f"{path} was written into in place, and with it what was kept of it"
            raise RuntimeError(message)
        here.unlink(missing_ok=True)
        if status.st_ino == entry.inode:
            os.link(kept, here)
            here.chmod(entry.mode)
        else:
            shutil.copy2(kept, here)
            self.entries[path] = replace(entry, inode=here.stat().st_ino)

    def drop(self) -> None:
        """Forget it."""
        shutil.rmtree(self.store)


def _may_be_written_into(path: str, size: int) -> bool:
    rewritten = path.startswith((*(f"{name}/" for name in REWRITTEN), "pyvenv.cfg"))
    return (rewritten and size < SHORT) or path.endswith(f"/{CERTIFICATES}")


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
