"""Files that a user names on the command line, and that we write: whole or not at all, and nothing else replaced.

A regular file is replaced only where that was asked for, a link to one is followed then, not replaced; a pipe, a
terminal or a device takes what is written as it comes; everything else is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.errors import Error, UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["atomically", "check_file", "place_file", "write_file"]

_DESCRIPTOR = re.compile(r"/dev/fd/([0-9]{1,6})|/proc/(?:self|thread-self)/fd/([0-9]{1,6})")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_NO_ROOM_BESIDE = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.EXDEV)


def check_file(target: Path, *, force: bool, option: str = "-o") -> None:
    """Whether a text can be written to `target`. Raises UsageError, or Error where this user may not."""
    shown = clean_line(str(target))
    if not target.name or "\0" in str(target):
        message = f"{option}: {str(target)!r} is no name of a file."
        raise UsageError(message)
    if _descriptor(target) is not None:
        return
    place = _place(target, option)
    kind = _kind(place, option)
    if kind == "other":
        what = "a folder" if place.is_dir() else "neither a file nor a pipe"
        message = f"{option}: {shown} is {what}."
        raise UsageError(message, hint="It was left unchanged. Name another place.")
    if kind == "stream":
        return
    if not place.parent.is_dir():
        message = f"{option}: there is no folder {clean_line(str(place.parent))}."
        raise UsageError(message, hint="Make it first, or name another place.")
    if os.path.lexists(target) and not force:
        link = ", a link that leads nowhere" if kind == "nothing" else ""
        message = f"{option}: {shown} exists{link}."
        raise UsageError(message, hint="Name another place, or give --force to replace it.")
    if kind == "nothing" and not os.access(place.parent, os.W_OK | os.X_OK):
        message = f"{option}: this user may not write to {clean_line(str(place.parent))}."
        raise Error(message, hint="Name another place.")


def write_file(target: Path, content: bytes, *, force: bool, option: str = "-o") -> None:
    """Write one file, whole or not at all; into a pipe or a device as it goes. Raises UsageError or Error."""
    check_file(target, force=force, option=option)
    try:
        number = _descriptor(target)
        if number is not None:  # opened again, a file would be written from its beginning
            _into(os.dup(number), content)
            return
        place = _place(target, option)
        if _kind(place, option) == "stream":
            # Not O_CREAT, not O_TRUNC: what is there now may not be what was there then.
            _into(os.open(place, os.O_WRONLY | os.O_NOCTTY), content)
        else:
            _replace(place, content, force=force)
    except OSError as error:
        message = f"{option}: {clean_line(str(target))} could not be written: {error.strerror or error}"
        raise Error(message, hint=f"Name another place with {option}.") from error


def _descriptor(target: Path) -> int | None:
    """The number of a descriptor of ours that `target` is a name of."""
    text = str(target)
    match = _DESCRIPTOR.fullmatch(text)
    if match:
        return int(match[1] or match[2])
    return _STANDARD.get(text)


def _place(target: Path, option: str) -> Path:
    """Where the links of `target` lead. Raises UsageError for a circle of them."""
    place = Path(os.path.realpath(target))
    if place.is_symlink():
        message = f"{option}: {clean_line(str(target))} is a link that leads to itself."
        raise UsageError(message)
    return place


def _kind(place: Path, option: str) -> str:
    """What is there: "nothing", "file", "stream" (takes what is written as it comes) or "other"."""
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


def _into(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _replace(place: Path, content: bytes, *, force: bool) -> None:
    try:
        place_file(place, content, force=force)
    except OSError as error:
        # A file that is mounted there alone, or in a folder that is not ours: then it is written where it is.
        if not (force and error.errno in _NO_ROOM_BESIDE and place.is_file() and os.access(place, os.W_OK)):
            raise
        _into(os.open(place, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)), content)


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


def atomically(target: Path, make: Callable[[Path], None], place: Callable[[Path], None]) -> None:
    """Make it beside the target and move it there; Ctrl-C and a full disk leave nothing behind."""
    with tempfile.TemporaryDirectory(
        prefix=".tfdoctor-", dir=target.parent, ignore_cleanup_errors=True
    ) as beside:
        temporary = Path(beside, "bundle")
        make(temporary)
        place(temporary)
