"""Check the free disk space for an environment, the installer's cache, and temporary files.

The sizes are those of the planned wheels (compat/). The user's own requirements are not included, because their sizes
are not known before the download.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.text import clean_line, upper_first
from tfdoctor.environments.installers import InstallFailedError, choose_folder, make_child_environment
from tfdoctor.system import children

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "DiskSpaceError",
    "DiskSpaceNeed",
    "InstallSizes",
    "capture_output",
    "compute_needs",
    "find_uv_cache",
    "has_space_for_pip_cache",
    "measure_disk_usage",
    "measure_unfinished_downloads",
    "require_space",
]

_COMMAND_TIMEOUT_S = 120.0
"""The time limit in seconds for a command of uv or of a new Python environment."""
_MAX_OUTPUT_BYTES = 1_000_000
"""The largest size in bytes of a command's output that is returned."""
_STAT_BLOCK_BYTES = 512
"""The unit of `st_blocks` in bytes, which does not depend on the file system."""


class DiskSpaceError(InstallFailedError):
    """A disk does not have enough space for the plan."""


@dataclass(frozen=True, slots=True)
class DiskSpaceNeed:
    """The space that is needed on one file system, and the space that is free."""

    folder: Path
    """An existing folder on the file system."""
    purposes: tuple[str, ...]
    """What the space is for: `"the environment"`, `"uv's cache"` or `"temporary files"`."""
    sizes: tuple[int, ...]
    """The needed space in bytes for each purpose."""
    needed_bytes: int
    """The needed space in bytes."""
    free_bytes: int
    """The free space for this user in bytes."""

    @property
    def is_met(self) -> bool:
        """Whether the free space is sufficient."""
        return self.needed_bytes <= self.free_bytes

    @property
    def text(self) -> str:
        """The need as one line: `"/home: 5.2 GB for the environment and 3.1 GB for uv's cache, 40.1 GB free"`."""
        parts = [
            f"{format_gigabytes(size)} for {purpose}"
            for purpose, size in zip(self.purposes, self.sizes, strict=True)
            if size
        ]
        text = " and ".join(parts) or f"nothing more for {' and '.join(self.purposes)}"
        return f"{clean_line(str(self.folder))}: {text}, {format_gigabytes(self.free_bytes)} free"


@dataclass(frozen=True, slots=True)
class InstallSizes:
    """The sizes of an installation, and the installer and folders that it uses."""

    folder: Path
    """The folder of the environment."""
    unpacked_bytes: int | None
    """The unpacked size of all wheels in bytes; None if it is not known."""
    download_bytes: int
    """The size of the downloads in bytes."""
    unpacked_bytes_by_wheel: Mapping[str, int]
    """The unpacked sizes of the large wheels in bytes, by name."""
    lock_files: tuple[Path, ...]
    """The lock files of the wheels."""
    uv_path: str | None
    """The path of uv; None if pip installs."""
    base_python: str
    """The base interpreter: a path, or a version."""
    env: Mapping[str, str]
    """The environment variables for the installer."""


def format_gigabytes(count: int) -> str:
    """Return a size in decimal gigabytes: `"5.2 GB"`."""
    return f"{max(count, 0) / 1e9:.1f} GB"


def find_existing_folder(path: Path) -> Path:
    """Return the folder if it exists, else the nearest parent that exists."""
    for folder in (path, *path.parents):
        if folder.is_dir():
            return folder
    return Path("/")


def sum_needs_by_disk(sizes: Iterable[tuple[str, Path, int]]) -> tuple[DiskSpaceNeed, ...]:
    """Return the total need of each file system.

    `sizes` contains (purpose, folder, bytes). A file system that cannot be queried is omitted.
    """
    needs_by_device: dict[int, DiskSpaceNeed] = {}
    for purpose, folder, size in sizes:
        existing = find_existing_folder(folder)
        try:
            device, free = os.stat(existing).st_dev, shutil.disk_usage(existing).free  # noqa: PTH116
        except OSError:
            continue
        previous = needs_by_device.get(device)
        needs_by_device[device] = (
            DiskSpaceNeed(existing, (purpose,), (size,), needed_bytes=size, free_bytes=free)
            if previous is None
            else DiskSpaceNeed(
                folder=previous.folder,
                purposes=(*previous.purposes, purpose),
                sizes=(*previous.sizes, size),
                needed_bytes=previous.needed_bytes + size,
                free_bytes=free,
            )
        )
    return tuple(needs_by_device.values())


def require_space(needs: Iterable[DiskSpaceNeed], folder_text: str) -> None:
    """Raise DiskSpaceError if a need is not met. `folder_text` is the environment's folder, as printed."""
    unmet = [need for need in needs if not need.is_met]
    if unmet:
        details = "; ".join(need.text for need in unmet)
        msg = f"There is not enough room for {folder_text}: {details}."
        purposes = {purpose for need in unmet for purpose in need.purposes}
        suggestions = ["free some space"]
        if "the environment" in purposes:
            suggestions.append("name a folder on another disk (--into DIR)")
        if "uv's cache" in purposes:
            suggestions.append("put uv's cache on another disk (UV_CACHE_DIR)")
        if "temporary files" in purposes:
            suggestions.append("put temporary files on another disk (TMPDIR)")
        hint = f"{', or '.join(suggestions)}."
        raise DiskSpaceError(msg, hint=upper_first(hint))


def compute_needs(
    install_sizes: InstallSizes, *, installed_bytes: int = 0, subtract_cached: bool = False
) -> tuple[DiskSpaceNeed, ...]:
    """Return the needs of an installation by file system; empty if the unpacked size is not known.

    `installed_bytes` is the size of what is already installed. Wheels that are already in uv's cache need no space
    there, but looking for them takes time: they are subtracted only if space is short or `subtract_cached` is true.
    """
    size = install_sizes.unpacked_bytes
    if size is None:
        return ()
    if install_sizes.uv_path is None:  # pip keeps all downloads until it has unpacked them
        temporary_folder = Path(install_sizes.env.get("TMPDIR") or install_sizes.folder)
        return sum_needs_by_disk(
            [
                ("the environment", install_sizes.folder, max(size - installed_bytes, 0)),
                ("temporary files", temporary_folder, install_sizes.download_bytes),
            ]
        )
    cache = find_uv_cache(install_sizes)
    if cache is None:
        return sum_needs_by_disk([("the environment", install_sizes.folder, max(size - installed_bytes, 0))])
    # uv links the files in its cache into the environment if both are on one disk. They need space only once.
    uses_links = install_sizes.env.get("UV_LINK_MODE") != "copy" and _is_same_disk(
        cache, install_sizes.folder
    )
    environment_size = 0 if uses_links else max(size - installed_bytes, 0)
    disk_needs = sum_needs_by_disk(
        [("the environment", install_sizes.folder, environment_size), ("uv's cache", cache, size)]
    )
    if not subtract_cached and all(need.is_met for need in disk_needs):
        return disk_needs
    remaining = max(size - _measure_cached_wheels(install_sizes), 0)
    return sum_needs_by_disk(
        [("the environment", install_sizes.folder, environment_size), ("uv's cache", cache, remaining)]
    )


def measure_unfinished_downloads(cache: Path) -> int:
    """Return the size in bytes of the downloads in uv's cache that uv did not finish, or is at.

    uv does not go on with them later, and `uv cache prune` removes them.
    """
    return sum(measure_disk_usage(folder) for folder in cache.glob(".tmp*"))


def has_space_for_pip_cache(install_sizes: InstallSizes) -> bool:
    """Return whether there is also enough space for pip's cache, which is a second copy of the downloads.

    pip works without the cache, too.
    """
    env = install_sizes.env
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - may not be a path at all
    cache = Path(env.get("PIP_CACHE_DIR") or Path(env.get("XDG_CACHE_HOME") or f"{home}/.cache", "pip"))
    size = install_sizes.unpacked_bytes or 0
    temporary_folder = Path(env.get("TMPDIR") or install_sizes.folder)
    sizes = [  # without purposes, because the needs are not printed
        ("", install_sizes.folder, size),
        ("", temporary_folder, install_sizes.download_bytes),
        ("", cache, install_sizes.download_bytes),
    ]
    return all(need.is_met for need in sum_needs_by_disk(sizes))


def _is_same_disk(first: Path, second: Path) -> bool:
    """Return whether two folders are on the same disk; False if that is not known."""
    try:
        return os.stat(find_existing_folder(first)).st_dev == os.stat(find_existing_folder(second)).st_dev  # noqa: PTH116
    except OSError:
        return False


def find_uv_cache(install_sizes: InstallSizes) -> Path | None:
    """Return uv's cache folder; None if pip installs, or if uv does not report an absolute path."""
    if install_sizes.uv_path is None:
        return None
    output = capture_output((str(install_sizes.uv_path), "cache", "dir"), install_sizes.env)
    return Path(output.strip()) if output is not None and output.strip().startswith("/") else None


def _measure_cached_wheels(install_sizes: InstallSizes) -> int:
    """Return the unpacked size in bytes of the planned wheels that are in uv's cache.

    If some wheels are missing there, only the large ones are counted.
    """
    if _is_cached(install_sizes, install_sizes.lock_files):
        return install_sizes.unpacked_bytes or 0
    total = 0
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        path = Path(name, "one.txt")
        for line in (
            locked_line
            for lock in install_sizes.lock_files
            for locked_line in lock.read_text(encoding="utf-8").splitlines()
        ):
            size = install_sizes.unpacked_bytes_by_wheel.get(line.partition("==")[0])
            if size is not None:
                path.write_text(f"{line}\n", encoding="utf-8")
                total += size if _is_cached(install_sizes, [path]) else 0
    return total


def _is_cached(install_sizes: InstallSizes, files: Iterable[Path]) -> bool:
    """Return whether uv can install these requirements files without a download."""
    options = ("--dry-run", "--offline", "--no-deps", "--require-hashes", "--no-build-isolation")
    file_options = [argument for path in files for argument in ("-r", str(path))]
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        # The base is a version, not a path, if that Python is not installed yet.
        option = "--python" if "/" in install_sizes.base_python else "--python-version"
        target = (option, install_sizes.base_python, "--target", name)
        output = capture_output(
            (str(install_sizes.uv_path), "pip", "install", *options, *target, *file_options),
            install_sizes.env,
        )
    # uv's dry run prints these messages.
    return output is not None and "Would download" not in output and "Would install" in output


def capture_output(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return the standard output and error of a command; None if the command fails or takes too long."""
    try:
        completed = children.run_program(
            command, env=make_child_environment(env), timeout=_COMMAND_TIMEOUT_S, cwd=choose_folder(command)
        )
    except (OSError, ValueError):
        return None
    text = completed.stdout + completed.stderr  # uv prints on standard error what it would do
    return text[:_MAX_OUTPUT_BYTES].decode("utf-8", "replace") if completed.returncode == 0 else None


def measure_disk_usage(folder: Path) -> int:
    """Return the disk usage of a folder in bytes; a file with several hard links counts once."""
    total, inodes = 0, set()
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(f"{parent}/{name}")
            except OSError:
                continue
            if status.st_ino not in inodes:
                inodes.add(status.st_ino)
                total += status.st_blocks * _STAT_BLOCK_BYTES
    return total
