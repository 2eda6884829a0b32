"""Edit a user's text file without changing anything else.

The other bytes, the owner, the mode, extended attributes and hard links are preserved. A file that has changed
since it was read is not edited.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.edits import Edit, EditError, apply_edits

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["edit_file"]


def edit_file(path: Path, old_content: bytes, edits: Iterable[Edit]) -> None:
    """Apply edits to a file whose content was `old_content`.

    The file is replaced with an edited copy if it has no other hard links and the copy can get the same owner,
    mode and extended attributes. Otherwise it is overwritten in place, and until that is done a backup exists in
    the same folder.

    Raise EditError if the file has changed, is read-only, is not a regular file or cannot be written.
    """
    new_content = apply_edits(old_content, edits)
    path = Path(os.path.realpath(path))
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            current = file.read(len(old_content) + 1)
        if not stat.S_ISREG(status.st_mode):
            raise EditError("it is not a regular file")
        if current != old_content:
            raise EditError("it has changed since it was read")
        if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
            raise EditError("it is read-only")
        with tempfile.TemporaryDirectory(
            prefix=".tfdoctor-", dir=path.parent, ignore_cleanup_errors=True
        ) as folder:
            temporary_copy = Path(folder, path.name)
            if status.st_nlink == 1 and _write_copy(path, status, temporary_copy, new_content):
                temporary_copy.replace(path)
            else:
                _write_synced(temporary_copy, old_content)
                _write_in_place(path, new_content, old_content)
    except OSError as error:
        raise EditError(error.strerror or str(error)) from error


def _write_copy(path: Path, status: os.stat_result, temporary_copy: Path, content: bytes) -> bool:
    """Write `content` to `temporary_copy`, with the owner, mode and extended attributes of `path`.

    Return whether all of them could be set.
    """
    _write_synced(temporary_copy, content)
    copy_status = temporary_copy.stat()
    try:
        if hasattr(os, "chown") and (copy_status.st_uid, copy_status.st_gid) != (
            status.st_uid,
            status.st_gid,
        ):
            os.chown(temporary_copy, status.st_uid, status.st_gid)
        temporary_copy.chmod(stat.S_IMODE(status.st_mode))
        if hasattr(os, "listxattr"):
            for name in os.listxattr(path):
                value = os.getxattr(path, name)
                if name not in os.listxattr(temporary_copy) or os.getxattr(temporary_copy, name) != value:
                    os.setxattr(temporary_copy, name, value)
    except OSError:
        return False
    return True


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _write_in_place(path: Path, content: bytes, old_content: bytes) -> None:
    """Overwrite a file and keep its mode. Restore the old content if that fails, for example on a full disk."""
    with path.open("r+b") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        try:
            _overwrite(file.fileno(), content)
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) != mode:  # writing clears set-user-ID
                path.chmod(mode)
        except BaseException:
            with contextlib.suppress(OSError):
                _overwrite(file.fileno(), old_content)
            raise


def _overwrite(descriptor: int, content: bytes) -> None:
    if hasattr(os, "posix_fallocate") and len(content) > os.fstat(descriptor).st_size:
        # Some file systems do not support it. If the disk is full, the write below raises the error.
        with contextlib.suppress(OSError):
            os.posix_fallocate(descriptor, 0, len(content))
    os.lseek(descriptor, 0, os.SEEK_SET)
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]
    os.ftruncate(descriptor, len(content))
    os.fsync(descriptor)
