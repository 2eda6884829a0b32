"""Format the `tfdoctor build` command and write the build folder, for `--emit` and `--print`."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.text import clean_line, join_first
from tfdoctor.images.folder import make_folder_files
from tfdoctor.images.write import APP_CONTEXT_FOLDER
from tfdoctor.render.build import render_build_folder
from tfdoctor.system.writing import place_file, write_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdoctor.images.emit import EmittedImage
    from tfdoctor.images.write import BuildContext
    from tfdoctor.planning import Option

__all__ = ["format_command", "write_context"]


def format_command(option: Option, options: Iterable[tuple[str, Sequence[object] | object]]) -> str:
    """Return the `tfdoctor build` command for a plan on one line, quoted for a shell.

    `options` contains (option, value) for each option of the user. The value is a list for a repeated option, and True
    for a flag. Options whose value is None, False or an empty list are omitted.
    """
    words = [option.commands[0]]
    # The plan's own command may already name the GPU, the driver and the base.
    already_named = [
        option_name for option_name in ("--gpu", "--driver", "--base") if f" {option_name} " in words[0]
    ]
    for option_name, value in options:
        if option_name in already_named:
            continue
        if value is True:
            words.append(option_name)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{option_name} {shlex.quote(str(item))}" for item in values]
    return clean_line(" ".join(words), limit=20_000)


def write_context(folder: Path, image: EmittedImage, *, force: bool, dry_run: bool, quiet: bool) -> str:
    """Write all files of the build folder, or none, and return a report for the user ("" with `quiet`).

    A new folder appears under its name only when it is complete. In an existing folder, files with different content
    are replaced only with `force`, and restored if a later file cannot be written. With `dry_run`, nothing is written.

    Raise UsageError if the folder or a file may not be replaced, and Error if writing fails.
    """
    display_name = clean_line(str(folder))
    files = make_folder_files(image)
    changed_names = _find_changed(folder, files, display_name)
    if changed_names and not force and not dry_run:
        msg = f"--emit context: {display_name} has {join_first(changed_names, 3)} already, with different content."
        raise UsageError(
            msg, hint="Nothing was written. Name another folder, or use --force to replace them."
        )
    unchanged_names = [name for name in files if name not in changed_names and _is_file(folder / name)]
    superfluous_names = _find_superfluous(folder, files)
    if superfluous_names:
        msg = f"--emit context: {display_name} has {join_first(superfluous_names, 3)}, which --copy does not name now."
        raise UsageError(msg, hint="The image would get it. Remove it, or name another folder.")
    report = (
        ""
        if quiet
        else render_build_folder(
            display_name, files, image, replaced=changed_names, unchanged=unchanged_names, dry_run=dry_run
        )
    )
    if dry_run or len(unchanged_names) == len(files):
        return report
    try:
        if folder.is_dir() and any(folder.iterdir()):
            _update_folder(folder, {name: files[name] for name in files if name not in unchanged_names})
            for name in image.context.executables:
                (folder / name).chmod(0o755)
        else:
            _create_folder(folder, files, image.context)
    except OSError as error:
        msg = f"--emit context: {display_name} could not be written: {error.strerror or error}."
        raise Error(msg, hint="The folder was left unchanged.") from error
    return report


def _find_superfluous(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Return the files in the folder of the user's code that are not among these files."""
    if not any(name.startswith(f"{APP_CONTEXT_FOLDER}/") for name in files):
        return []
    paths = (
        Path(parent) / name for parent, _, names in os.walk(folder / APP_CONTEXT_FOLDER) for name in names
    )
    return sorted({path.relative_to(folder).as_posix() for path in paths} - files.keys())


def _find_changed(folder: Path, files: Mapping[str, bytes], display_name: str) -> list[str]:
    """Return the names of the files that already exist with different content.

    Raise UsageError if the folder is not a folder, or if one of the files is not a readable file.
    """
    if "\0" in str(folder) or (os.path.lexists(folder) and not folder.is_dir()):
        msg = f"--emit context: {display_name} is not a folder."
        raise UsageError(msg, hint="It was left unchanged. Name another place.")
    changed_names = []
    for name, content in files.items():
        path = folder / name
        if not os.path.lexists(path):
            continue
        if not _is_file(path):
            msg = f"--emit context: {clean_line(str(path))} exists, but is not a file."
            raise UsageError(msg, hint="It was left unchanged. Name another folder.")
        try:
            is_unchanged = path.stat().st_size == len(content) and path.read_bytes() == content
        except OSError as error:
            msg = f"--emit context: {clean_line(str(path))} cannot be read: {error.strerror or error}."
            raise UsageError(msg) from error
        if not is_unchanged:
            changed_names.append(name)
    return changed_names


def _is_file(path: Path) -> bool:
    """Return whether the path is a regular file, not a symbolic link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _create_folder(folder: Path, files: Mapping[str, bytes], context: BuildContext) -> None:
    """Write a folder that does not exist or is empty. The context has the time stamp and the mode of its files.

    It is created under a temporary name beside the target and then renamed.
    """
    folder = Path(os.path.realpath(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary_folder = Path(tempfile.mkdtemp(prefix=".tfdoctor-", dir=folder.parent))
    try:
        write_tree(temporary_folder, files, context.executables, epoch=context.epoch)
        temporary_folder.chmod(
            stat.S_IMODE(folder.stat().st_mode) if folder.is_dir() else 0o777 & ~_read_umask()
        )
        temporary_folder.replace(folder)
    except BaseException:
        shutil.rmtree(temporary_folder, ignore_errors=True)
        raise


def _read_umask() -> int:
    """Return the umask of the process. It can only be read by setting it, so it is set twice."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _update_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into an existing folder, and restore its previous files if one cannot be written."""
    previous_contents = {
        name: (folder / name).read_bytes() if _is_file(folder / name) else None for name in files
    }
    written_names: list[str] = []
    try:
        for name, content in files.items():
            written_names.append(name)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            place_file(folder / name, content, force=True)
    except BaseException:
        for name in written_names:
            with contextlib.suppress(OSError):
                previous_content = previous_contents[name]
                if previous_content is not None:
                    place_file(folder / name, previous_content, force=True)
                else:
                    (folder / name).unlink(missing_ok=True)
        raise
