"""Whether the disks have room for an environment: on its own, on the installer's cache's, on that of temporary files.

Sizes are the plan's (compat/). What a user's own requirements take nobody knows before they are fetched.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.environment.installers import InstallFailedError, child_environment
from tfdoctor.system import children
from tfdoctor.text import clean_line, upper_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Need",
    "NoRoomError",
    "Writing",
    "capture_output",
    "needs",
    "refuse",
    "room_for_pips_cache",
    "used",
]

_CHECKING = 120.0
"""Seconds that a fresh Python, or uv, may take to answer."""


class NoRoomError(InstallFailedError):
    """A disk is too small for the plan."""


@dataclass(frozen=True, slots=True)
class Need:
    """What is written to one file system."""

    folder: Path
    """One that is there, on it."""
    what: tuple[str, ...]
    """`"the environment"`, `"uv's cache"`, `"temporary files"`."""
    size: int
    """Bytes that are written."""
    free: int
    """Bytes that are free for this user."""

    @property
    def enough(self) -> bool:
        return self.size <= self.free

    @property
    def text(self) -> str:
        """`"/home (the environment and uv's cache): 5.2 GB needed, 40.1 GB free"`."""
        where = clean_line(str(self.folder))
        return (
            f"{where} ({' and '.join(self.what)}): {gigabytes(self.size)} needed, {gigabytes(self.free)} free"
        )


@dataclass(frozen=True, slots=True)
class Writing:
    """What an environment takes and what makes it."""

    folder: Path
    size: int | None
    """Bytes, unpacked; None: not known."""
    download: int
    """Bytes."""
    wheels: Mapping[str, int]
    """The large ones: name → bytes, unpacked."""
    locks: tuple[Path, ...]
    uv: str | None
    """None: pip."""
    base: str
    """The Python it is made from: a path, or a version."""
    env: Mapping[str, str]


def gigabytes(count: int) -> str:
    """Return `"5.2 GB"`, decimal."""
    return f"{max(count, 0) / 1e9:.1f} GB"


def nearest(path: Path) -> Path:
    """Return the folder itself, or the nearest one above it that is there."""
    for one in (path, *path.parents):
        if one.is_dir():
            return one
    return Path("/")


def group_by_disk(wishes: Iterable[tuple[str, Path, int]]) -> tuple[Need, ...]:
    """Return (what, where, bytes) of everything that is written → one need a file system, in their order.

    A file system that cannot be asked is left out: nothing is concluded from it.
    """
    found: dict[int, Need] = {}
    for what, where, size in wishes:
        folder = nearest(where)
        try:
            device, free = os.stat(folder).st_dev, shutil.disk_usage(folder).free  # noqa: PTH116
        except OSError:
            continue
        known = found.get(device)
        found[device] = (
            Need(folder, (what,), size, free)
            if known is None
            else Need(known.folder, (*known.what, what), known.size + size, free)
        )
    return tuple(found.values())


def refuse(needs: Iterable[Need], shown: str) -> None:
    """Raise NoRoomError where one is not met. `shown`: the environment's folder, as it is printed."""
    short = [need for need in needs if not need.enough]
    if short:
        told = "; ".join(need.text for need in short)
        msg = f"There is not enough room for {shown}: {told}."
        others = {what for need in short for what in need.what}
        ways = ["free some space"]
        if "the environment" in others:
            ways.append("name a folder on another disk (--into DIR)")
        if "uv's cache" in others:
            ways.append("put uv's cache on another disk (UV_CACHE_DIR)")
        if "temporary files" in others:
            ways.append("put temporary files on another disk (TMPDIR)")
        hint = f"{', or '.join(ways)}."
        raise NoRoomError(msg, hint=upper_first(hint))


def needs(writing: Writing, *, there: int = 0, exact: bool = False) -> tuple[Need, ...]:
    """Return what is written to which disk.

    Empty if the plan's size is not known. there: bytes that are made already.

    exact: also where there is room enough, without what uv has in its cache.
    """
    size = writing.size
    if size is None:
        return ()
    if writing.uv is None:  # pip keeps all that it downloads until it has unpacked it
        space = Path(writing.env.get("TMPDIR") or writing.folder)
        return group_by_disk(
            [
                ("the environment", writing.folder, max(size - there, 0)),
                ("temporary files", space, writing.download),
            ]
        )
    cache = _cache(writing)
    if cache is None:
        return group_by_disk([("the environment", writing.folder, max(size - there, 0))])
    linked = writing.env.get("UV_LINK_MODE") != "copy" and _is_same_disk(cache, writing.folder)
    environment = 0 if linked else max(size - there, 0)
    found = group_by_disk([("the environment", writing.folder, environment), ("uv's cache", cache, size)])
    if not exact and all(need.enough for need in found):
        return found
    left = max(size - _measure_cached(writing), 0)
    return group_by_disk([("the environment", writing.folder, environment), ("uv's cache", cache, left)])


def room_for_pips_cache(writing: Writing) -> bool:
    """pip keeps another copy of what it downloads; it works without."""
    env = writing.env
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - may not be a path at all
    cache = Path(env.get("PIP_CACHE_DIR") or Path(env.get("XDG_CACHE_HOME") or f"{home}/.cache", "pip"))
    size = writing.size or 0
    space = Path(env.get("TMPDIR") or writing.folder)
    wishes = [("", writing.folder, size), ("", space, writing.download), ("", cache, writing.download)]
    return all(need.enough for need in group_by_disk(wishes))


def _is_same_disk(one: Path, other: Path) -> bool:
    try:
        return os.stat(nearest(one)).st_dev == os.stat(nearest(other)).st_dev  # noqa: PTH116
    except OSError:
        return False


def _cache(writing: Writing) -> Path | None:
    told = capture_output((str(writing.uv), "cache", "dir"), writing.env)
    return Path(told.strip()) if told is not None and told.strip().startswith("/") else None


def _measure_cached(writing: Writing) -> int:
    """Return bytes of the plan that uv has unpacked already: all, or those of the large wheels that it has."""
    if _has(writing, writing.locks):
        return writing.size or 0
    total = 0
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        path = Path(name, "one.txt")
        for line in (row for lock in writing.locks for row in lock.read_text(encoding="utf-8").splitlines()):
            size = writing.wheels.get(line.partition("==")[0])
            if size is not None:
                path.write_text(f"{line}\n", encoding="utf-8")
                total += size if _has(writing, [path]) else 0
    return total


def _has(writing: Writing, files: Iterable[Path]) -> bool:
    """Return whether uv has these in its cache, by its own word."""
    words = ("--dry-run", "--offline", "--no-deps", "--require-hashes", "--no-build-isolation")
    named = [word for path in files for word in ("-r", str(path))]
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        option = "--python" if "/" in writing.base else "--python-version"  # one that is not here yet
        target = (option, writing.base, "--target", name)
        told = capture_output((str(writing.uv), "pip", "install", *words, *target, *named), writing.env)
    return told is not None and "Would download" not in told and "Would install" in told


def capture_output(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return what a command prints; None if it fails."""
    try:
        ran = children.run(command, env=child_environment(env), timeout=_CHECKING)
    except (OSError, ValueError):
        return None
    text = ran.stdout + ran.stderr  # uv tells what it would do on standard error
    return text[:1_000_000].decode("utf-8", "replace") if ran.returncode == 0 else None


def used(folder: Path) -> int:
    """Return bytes on disk of everything below a folder; a file with several names there counts once."""
    total, seen = 0, set()
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(f"{parent}/{name}")
            except OSError:
                continue
            if status.st_ino not in seen:
                seen.add(status.st_ino)
                total += status.st_blocks * 512
    return total
