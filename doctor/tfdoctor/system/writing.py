"""Write the files that a user names on the command line, either completely or not at all.

A regular file is replaced only with --force. Pipes and character devices are written to directly. All other
targets, such as symbolic links, are refused.
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

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

__all__ = [
    "append_line",
    "check_output_file",
    "make_scratch_folder",
    "place_file",
    "write_atomically",
    "write_file",
    "write_tree",
]

SCRATCH_PREFIX = "tfdoctor-run-"
MIN_FREE_BYTES = 1 << 16
"""The least space on the disk with which a command begins its work."""
PIPE_TIMEOUT_S = 10
"""Time to wait for a program to open a pipe for reading."""

_DESCRIPTOR_PATH = re.compile(r"/dev/fd/([0-9]{1,6})|/proc/(?:self|thread-self)/fd/([0-9]{1,6})")
_STANDARD_STREAMS = {"-": 1, "/dev/stdout": 1, "/dev/stderr": 2}
_REPLACEMENT_ERRORS = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.EXDEV)


def check_output_file(
    target: Path, *, force: bool, option: str = "-o", input_paths: Iterable[Path | str | None] = ()
) -> None:
    """Check that a file can be written to `target`.

    `input_paths` are the files and folders that the command reads. They, the files in these folders and standard input are
    not replaced, even with --force. None in `input_paths` is ignored.

    Raise UsageError if the target is invalid, or Error if this user may not write there.
    """
    display_name = clean_line(str(target))
    if not target.name or "\0" in str(target):
        message = f"{option}: {str(target)!r} is no name of a file."
        raise UsageError(message)
    if _get_descriptor(target) is not None:
        return
    if target.is_symlink():
        message = f"{option}: {display_name} is a symbolic link."
        raise UsageError(message, hint="It was not followed. Name the file itself, or another one.")
    kind = _get_kind(target, option)
    if kind == "other":
        description = "a folder" if target.is_dir() else "neither a file nor a pipe"
        message = f"{option}: {display_name} is {description}."
        raise UsageError(message, hint="It was left unchanged. Name another place.")
    if kind == "stream":
        if _is_same_file(target, "/dev/full"):
            raise Error(f"{option}: {display_name}: No space left on device.", hint="Name another place.")  # noqa: EM102
        return
    if not target.parent.is_dir():
        message = f"{option}: there is no folder {clean_line(str(target.parent))}."
        raise UsageError(message, hint="Make it first, or name another place.")
    if kind == "file" and not force:
        message = f"{option}: {display_name} exists."
        raise UsageError(message, hint="Name another place, or give --force to replace it.")
    if kind == "file":
        resolved = target.resolve()
        if _is_same_file(target, "/dev/stdin") or any(
            resolved.is_relative_to(Path(source).resolve()) or _is_same_file(target, source)
            for source in input_paths
            if source
        ):
            message = f"{option}: {display_name} is what this command reads."
            raise UsageError(message, hint="It was left unchanged. Name another place.")
    if kind == "nothing" and not os.access(target.parent, os.W_OK | os.X_OK):
        message = f"{option}: this user may not write to {clean_line(str(target.parent))}."
        raise Error(message, hint="Name another place.")
    if kind == "file" and not (os.access(target.parent, os.W_OK | os.X_OK) or os.access(target, os.W_OK)):
        message = f"{option}: this user may not write to {display_name}."
        raise Error(message, hint="Name another place.")
    if shutil.disk_usage(target.parent).free < MIN_FREE_BYTES:
        message = f"{option}: there is no space left for {display_name}."
        raise Error(message, hint="Name another place.")


def _is_same_file(target: Path, other: Path | str) -> bool:
    try:
        return target.samefile(other)
    except (OSError, ValueError):
        return False


def write_file(target: Path, content: bytes, *, force: bool, option: str = "-o") -> None:
    """Write a file completely or not at all. A pipe or a device is written to directly.

    Raise UsageError if the target is invalid, or Error if it cannot be written.
    """
    check_output_file(target, force=force, option=option)
    try:
        descriptor = _get_descriptor(target)
        if descriptor is not None:  # opening it by name would overwrite a redirected file from its start
            _write_descriptor(os.dup(descriptor), content)
            return
        if _get_kind(target, option) == "stream":
            # Without O_CREAT and O_TRUNC: the path may have changed since it was checked.
            _write_descriptor(_open_stream(target), content)
        else:
            _replace_file(target, content, force=force)
    except OSError as error:
        message = f"{option}: {clean_line(str(target))} could not be written: {error.strerror or error}"
        raise Error(message, hint=f"Name another place with {option}.") from error


def _get_descriptor(target: Path) -> int | None:
    """Return the descriptor that `target` names, such as 1 for /dev/stdout; None if it is not such a path."""
    text = str(target)
    match = _DESCRIPTOR_PATH.fullmatch(text)
    if match:
        return int(match[1] or match[2])
    return _STANDARD_STREAMS.get(text)


def _get_kind(path: Path, option: str) -> str:
    """Return the kind of a path: "nothing", "file", "stream" (a pipe or a character device) or "other".

    Raise UsageError if the path cannot be inspected.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError as error:
        message = f"{option}: {clean_line(str(path))} cannot be looked at: {error.strerror or error}."
        raise UsageError(message) from error
    if stat.S_ISREG(mode):
        return "file"
    return "stream" if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) else "other"


def _open_stream(target: Path) -> int:
    """Open a device, or a pipe as soon as a program reads from it. Return the file descriptor.

    Raise OSError if no program reads the pipe within PIPE_TIMEOUT_S.
    """
    deadline = time.monotonic() + PIPE_TIMEOUT_S
    while True:
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_NOCTTY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: no program has opened the pipe for reading
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


def _replace_file(target: Path, content: bytes, *, force: bool) -> None:
    """Write a file atomically. If `force` is true and it cannot be replaced, overwrite it in place."""
    try:
        place_file(target, content, force=force)
    except OSError as error:
        # A mount point, or a file in a read-only folder, can be overwritten but not replaced.
        if not (
            force and error.errno in _REPLACEMENT_ERRORS and target.is_file() and os.access(target, os.W_OK)
        ):
            raise
        _write_descriptor(os.open(target, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)), content)


def place_file(target: Path, content: bytes, *, force: bool) -> None:
    """Write a file completely or not at all.

    An existing file is replaced only if `force` is true. Raise OSError if the file cannot be written.
    """

    def create(temporary: Path) -> None:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if force and target.is_file():
            with contextlib.suppress(OSError):
                shutil.copymode(target, temporary)

    def move_into_place(temporary: Path) -> None:
        if not force:
            with contextlib.suppress(OSError):  # some file systems have no hard links
                # If the file exists by now, this raises FileExistsError, and the check below reports it.
                os.link(temporary, target)
                return
            if os.path.lexists(target):
                raise FileExistsError(17, "File exists", str(target))  # EEXIST
        temporary.replace(target)

    write_atomically(target, create, move_into_place)


def append_line(target: Path, text: str) -> None:
    """Append a line to a regular file, which is created if necessary. Symbolic links are not followed.

    Raise OSError if it is not a regular file or cannot be written.
    """
    flags = (
        os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    )
    with os.fdopen(os.open(target, flags, 0o666), "ab") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        stream.write(text.encode("utf-8") + b"\n")


@contextlib.contextmanager
def make_scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder. First remove the folders that killed processes of this user left.

    A process locks its folder while it runs, so an unlocked folder is a leftover.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX) as name:
            yield Path(name)
        return
    for leftover in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(leftover, ignore_errors=True)
            finally:
                os.close(descriptor)
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX) as name:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield Path(name)
        finally:
            os.close(descriptor)


def write_atomically(
    target: Path, create: Callable[[Path], None], move_into_place: Callable[[Path], None]
) -> None:
    """Call `create` to create a temporary path beside the target, then `move_into_place`.

    The temporary file or folder is removed in every case, for example after Ctrl-C or if the disk is full.
    """
    with tempfile.TemporaryDirectory(
        prefix=".tfdoctor-", dir=target.parent, ignore_cleanup_errors=True
    ) as folder:
        temporary = Path(folder, "bundle")
        create(temporary)
        move_into_place(temporary)


def write_tree(folder: Path, files: Mapping[str, bytes], executables: Container[str], *, epoch: int) -> None:
    """Write files and their parent folders below a new folder.

    `epoch` is the time stamp of the files, in seconds: a container engine reuses a cached step only if equal files have
    equal times.
    """
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if name in executables else 0o644)
        os.utime(path, (epoch, epoch))
