"""Read a recording from a folder or .tar.gz of unknown origin, and write one atomically.

An archive is read into memory and never unpacked to disk. It is refused if `make_archive` cannot have written it. For
example, it may be too large, contain links or devices, or contain the same name twice.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import tarfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tfdoctor.compat.folder import data_dir
from tfdoctor.core.errors import Error, UsageError
from tfdoctor.system.sources import resolve_path
from tfdoctor.system.writing import place_file, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_COMPRESSED_BYTES = 64 << 20
"""Maximum size of a .tar.gz."""
MAX_TOTAL_BYTES = 128 << 20
"""Maximum total size of the files in a recording."""
MAX_FILES = 20_000
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz")
REJECTED_SUFFIXES = (".zip", ".tar", ".gz", ".xz", ".bz2", ".zst", ".7z", ".json", ".txt", ".md")
"""Suffixes that `-o` rejects, because a recording is not written in these formats."""
HOST_FILE = "host.json"
MANIFEST_FILE = "manifest.json"
RECORDING_FILES = (HOST_FILE, MANIFEST_FILE)
RECORDING_FOLDERS = ("root", "output")
RECORDING_HINT = (
    "A recording is what `tfdoctor capture` writes: a folder with a host.json in it, or a .tar.gz of it."
)
DEMO_PREFIX = "demo:"
DEMOS = (
    "healthy-one-gpu",
    "plain-pip-install",
    "two-other-cudas",
    "updated-without-restart",
    "driver-below-cuda-12",
    "blackwell-with-tf218",
    "container-without-gpu",
    "hidden-by-slurm",
)
"""The names of the recorded machines that come with tfdoctor."""


def is_archive(path: Path) -> bool:
    """Return whether a path has a .tar.gz suffix."""
    return path.name.lower().endswith(ARCHIVE_SUFFIXES)


# ---------------------------------------------------------------- reading


def read_recording(path: Path) -> dict[str, bytes]:
    """Return the content of each file in a recording, by its path relative to the recording's root.

    The path may be `demo:NAME`. Raise UsageError if it is not a recording or if its content is unsafe.
    """
    if str(path).startswith(DEMO_PREFIX):
        path = _find_demo(str(path).removeprefix(DEMO_PREFIX))
    try:
        if path.is_dir():
            return _load_folder(path)
        if not stat.S_ISREG(path.stat().st_mode):
            message = f"{path}: neither a folder nor a file"
            raise UsageError(message, hint=RECORDING_HINT)
        with path.open("rb") as stream:
            content = stream.read(MAX_COMPRESSED_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"{path}: not a recorded machine: {reason or error}"
        raise UsageError(message, hint=RECORDING_HINT) from error
    return read_archive(content, str(path))


def _find_demo(name: str) -> Path:
    """Return the folder of a recording that comes with tfdoctor. Raise UsageError if there is none of that name."""
    if name not in DEMOS:
        message = f"there is no demonstration called {DEMO_PREFIX}{name}."
        raise UsageError(
            message, hint=f"The demonstrations are {', '.join(DEMO_PREFIX + demo for demo in DEMOS)}."
        )
    return data_dir("demo") / name


def _load_folder(folder: Path) -> dict[str, bytes]:
    """Return the content of each file in a recording's folder.

    Raise UsageError if it is not a recording, is too large, or contains a link that leads out of it.
    """
    if not (folder / HOST_FILE).is_file():
        message = f"{folder}: not a recorded machine: No such file or directory: {HOST_FILE}"
        raise UsageError(message, hint=RECORDING_HINT)
    root = resolve_path(folder)
    files: dict[str, bytes] = {}
    remaining = MAX_TOTAL_BYTES
    for name in _iter_names(folder):
        path = folder / name
        if not resolve_path(path).is_relative_to(root):
            message = f"{path}: this link leads out of the recording."
            raise UsageError(message, hint="Nothing of it was read. Look at who made this recording.")
        if not path.is_file():
            message = f"{path}: neither a file nor a folder."
            raise UsageError(message, hint=RECORDING_HINT)
        with path.open("rb") as stream:
            files[name] = stream.read(remaining + 1)
        remaining -= len(files[name])
        if remaining < 0 or len(files) > MAX_FILES:
            message = f"{folder}: larger than a recording is"
            raise UsageError(message, hint=RECORDING_HINT)
    return files


def _iter_names(folder: Path) -> Iterator[str]:
    """Yield the relative names of a recording's files, sorted. Links to folders are yielded, not followed."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            if entry.name in RECORDING_FOLDERS:
                for parent, folders, names in os.walk(entry.path):
                    folders.sort()
                    folder_links = [name for name in folders if Path(parent, name).is_symlink()]
                    for name in sorted((*names, *folder_links)):
                        yield Path(parent, name).relative_to(folder).as_posix()
        else:
            yield entry.name


def read_archive(content: bytes, name: str) -> dict[str, bytes]:
    """Return the files of a recording in a .tar.gz. `name` is the archive's name for error messages.

    Raise UsageError if it is not a recording or if its content is unsafe.
    """

    def refuse_archive(reason: str) -> NoReturn:
        """Raise UsageError with this reason."""
        raise UsageError(f"{name}: {reason}", hint=RECORDING_HINT)  # noqa: EM102 - the message begins with the file's name

    if len(content) > MAX_COMPRESSED_BYTES:
        refuse_archive("larger than a recording is")
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            uncompressed = stream.read(MAX_TOTAL_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        refuse_archive(f"not a recorded machine: not a whole .tar.gz ({error})")
    if len(uncompressed) > MAX_TOTAL_BYTES:
        refuse_archive("unpacks to more than a recording has")
    files: dict[str, bytes] = {}
    last_offset = -1
    try:
        with tarfile.open(fileobj=io.BytesIO(uncompressed), mode="r:") as tar:
            while (member := tar.next()) is not None:
                # An offset that does not increase would make this loop endless.
                if member.offset <= last_offset or len(files) > MAX_FILES:
                    refuse_archive("not a .tar.gz that a recording is in")
                last_offset = member.offset
                if member.isdir():
                    continue
                path = _normalize_name(member.name)
                if path is None or member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    refuse_archive(f"has something in it that no recording has: {member.name[:100]!r}")
                if member.issparse() or not 0 <= member.size <= len(uncompressed):
                    refuse_archive(f"has a file of an impossible size in it: {member.name[:100]!r}")
                if path in files:
                    refuse_archive(f"has the same file in it twice: {member.name[:100]!r}")
                member_file = tar.extractfile(member)
                files[path] = member_file.read() if member_file is not None else b""
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        refuse_archive(f"not a recorded machine: not a .tar.gz ({error})")
    top_folders = {path.partition("/")[0] for path in files}
    if HOST_FILE not in files and len(top_folders) == 1:  # the archive contains the folder itself
        prefix = f"{top_folders.pop()}/"
        files = {path.removeprefix(prefix): data for path, data in files.items()}
    if HOST_FILE not in files:
        refuse_archive(f"not a recorded machine: there is no {HOST_FILE} in it")
    return files


def _normalize_name(name: str) -> str | None:
    """Return a member's name without empty and "." parts.

    Return None if the name is absolute, or contains "..", a backslash or a null character.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or not parts or ".." in parts or "\\" in name or "\0" in name:
        return None
    return "/".join(parts)


# ---------------------------------------------------------------- writing


def make_archive(files: Mapping[str, bytes]) -> bytes:
    """Return a .tar.gz of `files` that is reproducible, because it contains no times and owners."""
    uncompressed = io.BytesIO()
    with tarfile.open(fileobj=uncompressed, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    compressed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=compressed, mode="wb", compresslevel=9, mtime=0) as stream:
        stream.write(uncompressed.getvalue())
    return compressed.getvalue()


def check_target(target: Path, *, force: bool) -> None:
    """Check that a recording can be written to `target`, before any probe runs.

    Raise UsageError if the target is invalid, or Error if this user may not write there.
    """
    name = target.name
    if not name or name == "-" or "\0" in str(target):
        message = f"-o: {str(target)!r} names no file."
        raise UsageError(message)
    if name.lower().endswith(REJECTED_SUFFIXES) and not is_archive(target):
        message = f"-o: {target}: a recording is written as a folder or as a .tar.gz."
        raise UsageError(message, hint=f"Try -o {name.split('.')[0] or 'bundle'}.tar.gz")
    parent = target.parent
    if not parent.is_dir():
        message = f"-o: there is no folder {parent}."
        raise UsageError(message, hint="Make it first, or name another place.")
    if os.path.lexists(target):
        if not _is_recording(target):
            message = f"-o: {target} exists, and is no recording of tfdoctor's."
            raise UsageError(message, hint="It was left unchanged. Name another place.")
        if not force:
            message = f"-o: {target} exists."
            raise UsageError(message, hint="Name another place, or give --force to replace it.")
    if not os.access(parent, os.W_OK | os.X_OK):
        message = f"-o: this user may not write to {parent}."
        raise Error(message, hint="Name another place.")


def _is_recording(target: Path) -> bool:
    """Return whether a path is a recording that `capture` wrote, with no other files in it."""
    if target.is_symlink():
        return False
    try:
        if target.is_dir():
            names = {entry.name for entry in target.iterdir()}
        else:
            names = {name.partition("/")[0] for name in read_recording(target)}
    except (OSError, UsageError):
        return False
    return {HOST_FILE, MANIFEST_FILE} <= names <= {*RECORDING_FILES, *RECORDING_FOLDERS}


def write_recording(target: Path, files: Mapping[str, bytes], *, force: bool) -> int:
    """Write a recording to a folder or .tar.gz atomically, and return the number of bytes of its files.

    Raise UsageError if the target is invalid, or Error if it cannot be written.
    """
    check_target(target, force=force)
    try:
        if is_archive(target):
            content = make_archive(files)
            place_file(target, content, force=force)
            return len(content)
        _write_folder(target, files)
        return sum(map(len, files.values()))
    except OSError as error:
        message = f"-o: {target} could not be written: {error.strerror or error}"
        raise Error(message, hint="Nothing was left behind. Name another place with -o.") from error


def _write_folder(target: Path, files: Mapping[str, bytes]) -> None:
    def create(temporary: Path) -> None:
        temporary.mkdir()
        for name, content in sorted(files.items()):
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def move_into_place(temporary: Path) -> None:
        if not os.path.lexists(target):
            temporary.rename(target)
            return
        old_copy = temporary.with_name(f"{temporary.name}.old")
        target.rename(old_copy)
        try:
            temporary.rename(target)
        except BaseException:  # also on Ctrl-C: put the old recording back
            old_copy.rename(target)
            raise
        shutil.rmtree(old_copy, ignore_errors=True)

    write_atomically(target, create, move_into_place)
