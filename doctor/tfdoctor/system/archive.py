"""A recording's files: read from a folder or a .tar.gz that anybody may have sent, and written whole or not at all.

Nothing is unpacked: an archive is read into memory, and refused where it is not what `write_archive` makes (too
large, too many files, links, devices, names that lead elsewhere, the same name twice).
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

from tfdoctor.errors import Error, UsageError
from tfdoctor.system.sources import real_path
from tfdoctor.system.writing import atomically, place_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_COMPRESSED = 64 << 20
MAX_BYTES = 128 << 20
MAX_FILES = 20_000
ARCHIVES = (".tar.gz", ".tgz")
OTHERS = (".zip", ".tar", ".gz", ".xz", ".bz2", ".zst", ".7z", ".json", ".txt", ".md")
HOST = "host.json"
MANIFEST = "manifest.json"
OUR_FILES = (HOST, MANIFEST)
OUR_FOLDERS = ("root", "output")
HINT = "A recording is what `tfdoctor capture` writes: a folder with a host.json in it, or a .tar.gz of it."


def is_archive(path: Path) -> bool:
    """Return whether a name asks for a .tar.gz."""
    return path.name.lower().endswith(ARCHIVES)


# ---------------------------------------------------------------- reading


def read(path: Path) -> dict[str, bytes]:
    """Return every file of a recording, by its name below it.

    Raises UsageError if it is none, or not to be trusted.
    """
    try:
        if path.is_dir():
            return _read_folder(path)
        if not stat.S_ISREG(path.stat().st_mode):
            message = f"{path}: neither a folder nor a file"
            raise UsageError(message, hint=HINT)
        with path.open("rb") as stream:
            content = stream.read(MAX_COMPRESSED + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        message = f"{path}: not a recorded machine: {why or error}"
        raise UsageError(message, hint=HINT) from error
    return read_archive(content, str(path))


def _read_folder(folder: Path) -> dict[str, bytes]:
    """host.json and what stands beside and below it. Links that lead out of the folder are refused."""
    if not (folder / HOST).is_file():
        message = f"{folder}: not a recorded machine: No such file or directory: {HOST}"
        raise UsageError(message, hint=HINT)
    home = real_path(folder)
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    for name in _walk(folder):
        path = folder / name
        if not real_path(path).is_relative_to(home):
            message = f"{path}: this link leads out of the recording."
            raise UsageError(message, hint="Nothing of it was read. Look at who made this recording.")
        if not path.is_file():
            message = f"{path}: neither a file nor a folder."
            raise UsageError(message, hint=HINT)
        with path.open("rb") as stream:
            files[name] = stream.read(left + 1)
        left -= len(files[name])
        if left < 0 or len(files) > MAX_FILES:
            message = f"{folder}: larger than a recording is"
            raise UsageError(message, hint=HINT)
    return files


def _walk(folder: Path) -> Iterator[str]:
    """Yield the names of a recording's files, sorted; links to folders are followed nowhere."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            if entry.name in OUR_FOLDERS:
                for where, folders, names in os.walk(entry.path):
                    folders.sort()
                    linked = [name for name in folders if Path(where, name).is_symlink()]
                    for name in sorted((*names, *linked)):
                        yield Path(where, name).relative_to(folder).as_posix()
        else:
            yield entry.name


def read_archive(content: bytes, name: str) -> dict[str, bytes]:
    """Return the files of a .tar.gz, in memory. Raises UsageError if it is none, or not to be trusted."""

    def refuse(why: str) -> NoReturn:
        raise UsageError(f"{name}: {why}", hint=HINT)  # noqa: EM102 - this is what the name is for

    if len(content) > MAX_COMPRESSED:
        refuse("larger than a recording is")
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            plain = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        refuse(f"not a recorded machine: not a whole .tar.gz ({error})")
    if len(plain) > MAX_BYTES:
        refuse("unpacks to more than a recording has")
    files: dict[str, bytes] = {}
    last = -1
    try:
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
            while (member := tar.next()) is not None:
                if member.offset <= last or len(files) > MAX_FILES:
                    refuse("not a .tar.gz that a recording is in")
                last = member.offset
                if member.isdir():
                    continue
                inside = _normalize_name(member.name)
                if inside is None or member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    refuse(f"has something in it that no recording has: {member.name[:100]!r}")
                if member.issparse() or not 0 <= member.size <= len(plain):
                    refuse(f"has a file of an impossible size in it: {member.name[:100]!r}")
                if inside in files:
                    refuse(f"has the same file in it twice: {member.name[:100]!r}")
                whole = tar.extractfile(member)
                files[inside] = whole.read() if whole is not None else b""
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        refuse(f"not a recorded machine: not a .tar.gz ({error})")
    tops = {inside.partition("/")[0] for inside in files}
    if HOST not in files and len(tops) == 1:  # somebody packed the folder with its name
        top = f"{tops.pop()}/"
        files = {inside.removeprefix(top): data for inside, data in files.items()}
    if HOST not in files:
        refuse(f"not a recorded machine: there is no {HOST} in it")
    return files


def _normalize_name(name: str) -> str | None:
    """Return the name without what leads nowhere; None if it leads out."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or not parts or ".." in parts or "\\" in name or "\0" in name:
        return None
    return "/".join(parts)


# ---------------------------------------------------------------- writing


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return a .tar.gz of `files` that tells nothing of who made it when: the same files give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()


def check_target(target: Path, *, force: bool) -> None:
    """Whether a recording can be written to `target`, before anything is looked at.

    Raises UsageError where the request is wrong, Error where this user may not write there.
    """
    name = target.name
    if not name or "\0" in str(target):
        message = f"-o: {str(target)!r} names no file."
        raise UsageError(message)
    if name.lower().endswith(OTHERS) and not is_archive(target):
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
    """Return whether what is there is a bundle that `capture` wrote, and nothing else."""
    if target.is_symlink():
        return False
    try:
        if target.is_dir():
            names = {entry.name for entry in target.iterdir()}
            return {HOST, MANIFEST} <= names <= {*OUR_FILES, *OUR_FOLDERS}
        return target.is_file() and MANIFEST in read(target)
    except (OSError, UsageError):
        return False


def write(target: Path, files: Mapping[str, bytes], *, force: bool) -> int:
    """Write a recording to a folder or .tar.gz, whole or not at all. Returns the bytes on disk. Raises Error."""
    check_target(target, force=force)
    try:
        if is_archive(target):
            content = archive(files)
            place_file(target, content, force=force)
            return len(content)
        _write_folder(target, files)
        return sum(map(len, files.values()))
    except OSError as error:
        message = f"-o: {target} could not be written: {error.strerror or error}"
        raise Error(message, hint="Nothing was left behind. Name another place with -o.") from error


def _write_folder(target: Path, files: Mapping[str, bytes]) -> None:
    def make(temporary: Path) -> None:
        temporary.mkdir()
        for name, content in sorted(files.items()):
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def place(temporary: Path) -> None:
        if not os.path.lexists(target):
            temporary.rename(target)
            return
        aside = temporary.with_name(f"{temporary.name}.old")
        target.rename(aside)
        try:
            temporary.rename(target)
        except BaseException:
            aside.rename(target)
            raise
        shutil.rmtree(aside, ignore_errors=True)

    atomically(target, make, place)
