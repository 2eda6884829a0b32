"""Files that a user names on the command line, and that we write: whole or not at all, and nothing else replaced.

A regular file is replaced only with --force; a pipe, a terminal or a device takes what is written as it comes;
everything else is refused, symbolic links among it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.errors import Error, UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["append_line", "atomically", "check_file", "place_file", "scratch_folder", "write_file"]

SCRATCH = "tfdoctor-run-"
PIPE_TIMEOUT_S = 10

_DESCRIPTOR = re.compile(r"/dev/fd/([0-9]{1,6})|/proc/(?:self|thread-self)/fd/([0-9]{1,6})")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_NO_ROOM_BESIDE = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.EXDEV)


def check_file(
    target: Path, *, force: bool, option: str = "-o", reads: Iterable[Path | str | None] = ()
) -> None:
    """Check that a text can be written to `target`. Raises UsageError, or Error if this user may not.

    reads: files and folders that the command reads; not even --force replaces one of them, or a file in one.
    """
    shown = clean_line(str(target))
    if not target.name or "\0" in str(target):
        message = f"{option}: {str(target)!r} is no name of a file."
        raise UsageError(message)
    if _descriptor(target) is not None:
        return
    if target.is_symlink():
        message = f"{option}: {shown} is a symbolic link."
        raise UsageError(message, hint="It was not followed. Name the file itself, or another one.")
    kind = _kind(target, option)
    if kind == "other":
        what = "a folder" if target.is_dir() else "neither a file nor a pipe"
        message = f"{option}: {shown} is {what}."
        raise UsageError(message, hint="It was left unchanged. Name another place.")
    if kind == "stream":
        return
    if not target.parent.is_dir():
        message = f"{option}: there is no folder {clean_line(str(target.parent))}."
        raise UsageError(message, hint="Make it first, or name another place.")
    if kind == "file" and not force:
        message = f"{option}: {shown} exists."
        raise UsageError(message, hint="Name another place, or give --force to replace it.")
    if kind == "file":
        real = target.resolve()
        if any(real.is_relative_to(Path(one).resolve()) or _is_same(target, one) for one in reads if one):
            message = f"{option}: {shown} is what this command reads."
            raise UsageError(message, hint="It was left unchanged. Name another place.")
    if kind == "nothing" and not os.access(target.parent, os.W_OK | os.X_OK):
        message = f"{option}: this user may not write to {clean_line(str(target.parent))}."
        raise Error(message, hint="Name another place.")


def _is_same(target: Path, other: Path | str) -> bool:
    try:
        return target.samefile(other)
    except (OSError, ValueError):
        return False


def write_file(target: Path, content: bytes, *, force: bool, option: str = "-o") -> None:
    """Write one file, whole or not at all; into a pipe or a device as it goes. Raises UsageError or Error."""
    check_file(target, force=force, option=option)
    try:
        number = _descriptor(target)
        if number is not None:  # opened again, a file would be written from its beginning
            _write_descriptor(os.dup(number), content)
            return
        if _kind(target, option) == "stream":
            # Not O_CREAT, not O_TRUNC: what is there now may not be what was there then.
            _write_descriptor(_open_stream(target), content)
        else:
            _replace(target, content, force=force)
    except OSError as error:
        message = f"{option}: {clean_line(str(target))} could not be written: {error.strerror or error}"
        raise Error(message, hint=f"Name another place with {option}.") from error


def _descriptor(target: Path) -> int | None:
    """Return the number of a descriptor of ours that `target` is a name of."""
    text = str(target)
    match = _DESCRIPTOR.fullmatch(text)
    if match:
        return int(match[1] or match[2])
    return _STANDARD.get(text)


def _kind(place: Path, option: str) -> str:
    """Return what is there: "nothing", "file", "stream" (takes what is written as it comes) or "other"."""
    try:
        mode = place.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError as error:
        message = f"{option}: {clean_line(str(place))} cannot be looked at: {error.strerror or error}."
        raise UsageError(message) from error
    if stat.S_ISREG(mode):
        return "file"
    return "stream" if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) else "other"


def _open_stream(target: Path) -> int:
    """Open a device, or a pipe as soon as somebody reads it. Raises OSError if nobody does for PIPE_TIMEOUT_S."""
    deadline = time.monotonic() + PIPE_TIMEOUT_S
    while True:
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_NOCTTY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > deadline:
                raise OSError(errno.ENXIO, "nobody reads this pipe") from error
            time.sleep(0.05)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def _write_descriptor(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _replace(place: Path, content: bytes, *, force: bool) -> None:
    try:
        place_file(place, content, force=force)
    except OSError as error:
        # A file that is mounted there alone, or in a folder that is not ours: then it is written where it is.
        if not (force and error.errno in _NO_ROOM_BESIDE and place.is_file() and os.access(place, os.W_OK)):
            raise
        _write_descriptor(os.open(place, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)), content)


def place_file(target: Path, content: bytes, *, force: bool) -> None:
    """Put a file there, whole or not at all; one that is there is replaced with `force` alone. Raises OSError."""

    def make(temporary: Path) -> None:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if force and target.is_file():
            with contextlib.suppress(OSError):
                shutil.copymode(target, temporary)

    def place(temporary: Path) -> None:
        if not force:
            with contextlib.suppress(OSError):  # file systems without hard links
                os.link(temporary, target)  # fails where somebody was quicker
                return
            if os.path.lexists(target):
                raise FileExistsError(17, "File exists", str(target))
        temporary.replace(target)

    atomically(target, make, place)


def append_line(target: Path, text: str) -> None:
    """Add a line to a regular file, which may be new. Raises OSError; a symbolic link is not followed."""
    flags = (
        os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    )
    with os.fdopen(os.open(target, flags, 0o666), "ab") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        stream.write(text.encode("utf-8") + b"\n")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a temporary folder; remove those that earlier processes of this user left when they were killed.

    A process holds a lock on its folder for as long as it lives.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        with tempfile.TemporaryDirectory(prefix=SCRATCH) as name:
            yield Path(name)
        return
    for old in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):
            handle = os.open(old, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.geteuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(old, ignore_errors=True)
            finally:
                os.close(handle)
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as name:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield Path(name)
        finally:
            os.close(handle)


def atomically(target: Path, make: Callable[[Path], None], place: Callable[[Path], None]) -> None:
    """Make it beside the target and move it there; Ctrl-C and a full disk leave nothing behind."""
    with tempfile.TemporaryDirectory(
        prefix=".tfdoctor-", dir=target.parent, ignore_cleanup_errors=True
    ) as beside:
        temporary = Path(beside, "bundle")
        make(temporary)
        place(temporary)
