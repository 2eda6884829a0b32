"""What `tfdoctor build` writes instead of building: another form of the plan on standard output, or a folder."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.dockerfile.folder import folder_of
from tfdoctor.errors import Error, UsageError
from tfdoctor.render.build import render_context
from tfdoctor.system.writing import place_file
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdoctor.dockerfile.emit import EmittedImage
    from tfdoctor.plan import Option

__all__ = ["format_command", "write_context"]


def format_command(option: Option, given: Iterable[tuple[str, Sequence[object] | object]]) -> str:
    """Return `tfdoctor build` for this plan with the options that were given, as a shell reads it, on one line.

    given: (name, its values, or one, or a flag); None, False and nothing are left out.
    """
    words = [option.commands[0]]
    machine = [
        name for name in ("--gpu", "--driver") if f" {name} " in words[0]
    ]  # which it is for, said already
    for name, value in given:
        if name in machine:
            continue
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{name} {shlex.quote(str(one))}" for one in values]
    return clean_line(" ".join(words), limit=20_000)


def write_context(folder: Path, made: EmittedImage, *, force: bool, dry_run: bool, quiet: bool) -> str:
    """Write the folder, whole or not at all. Returns what is to be told: nothing, where that is not wanted (`quiet`).

    A new folder appears complete under its name. Into one that is there, files that are there with another content go
    with `force` alone, and come back where not all could be written. Raises UsageError, Error.
    """
    shown = clean_line(str(folder))
    files = folder_of(made)
    changed = _find_changed(folder, files, shown)
    if changed and not force and not dry_run:
        msg = f"--emit context: {shown} has {_join_names(changed)} already, with different content."
        raise UsageError(
            msg, hint="Nothing was written. Name another folder, or use --force to replace them."
        )
    kept = [name for name in files if name not in changed and _is_file(folder / name)]
    told = "" if quiet else render_context(shown, files, made, replaced=changed, kept=kept, dry_run=dry_run)
    if dry_run or len(kept) == len(files):
        return told
    try:
        if folder.is_dir() and any(folder.iterdir()):
            _write_into(folder, {name: files[name] for name in files if name not in kept})
        else:
            _new(folder, files, made.context.epoch)
    except OSError as error:
        msg = f"--emit context: {shown} could not be written: {error.strerror or error}."
        raise Error(msg, hint="The folder was left unchanged.") from error
    return told


def _find_changed(folder: Path, files: Mapping[str, bytes], shown: str) -> list[str]:
    """Return the names under which something else is there.

    Raises UsageError for what no file can be put into.
    """
    if "\0" in str(folder) or (os.path.lexists(folder) and not folder.is_dir()):
        msg = f"--emit context: {shown} is not a folder."
        raise UsageError(msg, hint="It was left unchanged. Name another place.")
    found = []
    for name, content in files.items():
        path = folder / name
        if not os.path.lexists(path):
            continue
        if not _is_file(path):
            msg = f"--emit context: {clean_line(str(path))} exists, but is not a file."
            raise UsageError(msg, hint="It was left unchanged. Name another folder.")
        try:
            same = path.stat().st_size == len(content) and path.read_bytes() == content
        except OSError as error:
            msg = f"--emit context: {clean_line(str(path))} cannot be read: {error.strerror or error}."
            raise UsageError(msg) from error
        if not same:
            found.append(name)
    return found


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def _new(folder: Path, files: Mapping[str, bytes], epoch: int) -> None:
    """A folder that is not there yet, or empty: made beside it and moved, with the times that the archive gives."""
    folder = Path(os.path.realpath(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".tfdoctor-", dir=folder.parent))
    try:
        for name, content in files.items():
            path = beside / name
            path.write_bytes(content)
            path.chmod(0o644)
            os.utime(path, (epoch, epoch))
        beside.chmod(stat.S_IMODE(folder.stat().st_mode) if folder.is_dir() else 0o777 & ~_umask())
        beside.replace(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _umask() -> int:
    before = os.umask(0o022)
    os.umask(before)
    return before


def _write_into(folder: Path, files: Mapping[str, bytes]) -> None:
    """Into a folder with other things in it; what was written goes again where one file cannot be."""
    before = {name: (folder / name).read_bytes() if _is_file(folder / name) else None for name in files}
    done: list[str] = []
    try:
        for name, content in files.items():
            done.append(name)
            place_file(folder / name, content, force=True)
    except BaseException:
        for name in done:
            with contextlib.suppress(OSError):
                old = before[name]
                if old is not None:
                    place_file(folder / name, old, force=True)
                else:
                    (folder / name).unlink(missing_ok=True)
        raise
