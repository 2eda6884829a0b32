"""Environments for tests of the journal, and whether two are the same."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environment.killer import plant
from tfdoctor.environment.history.journal import Journal
from tfdoctor.environment.history.record import read_history

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.environment.history.journal import PathChange

DOCTOR = Path(__file__).resolve().parents[2] / "doctor"


def list_tree(prefix: Path) -> dict[str, tuple[Any, ...]]:
    """All that an undo has to bring back: path → type, mode, bytes, target, mtime of files."""
    found: dict[str, tuple[Any, ...]] = {}
    for folder, folders, files in os.walk(prefix):
        if Path(folder) == prefix and ".tfdoctor" in folders:
            folders.remove(".tfdoctor")
        for name in folders + files:
            path = Path(folder) / name
            info = path.lstat()
            key = path.relative_to(prefix).as_posix()
            if path.is_symlink():
                found[key] = ("link", str(path.readlink()))
            elif path.is_dir():
                found[key] = ("dir", stat.S_IMODE(info.st_mode))
            else:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                found[key] = ("file", stat.S_IMODE(info.st_mode), content, info.st_mtime_ns)
    return found


def list_differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def assert_same(prefix: Path, expected: dict[str, Any]) -> None:
    now = list_tree(prefix)
    assert {key: now.get(key) for key in list_differing(now, expected)} == {
        key: expected.get(key) for key in list_differing(now, expected)
    }


def commit(prefix: Path, *changes: Callable[[Path], object]) -> None:
    """One step each."""
    with Journal.open(prefix) as journal:
        for one in changes:
            with journal.step(title=one.__name__, codes=("TFD205",)) as step:
                one(prefix)
            step.commit()


def changes_in(prefix: Path) -> list[PathChange]:
    """What all steps together have changed, in the order of paths."""
    changes = read_history(f"{prefix}/.tfdoctor").changes
    return [change for _, change in sorted(changes.items())]


def kind(change: PathChange) -> str:
    if change.before is None:
        return "added"
    return "removed" if change.after is None else "changed"


def fresh(folder: Path) -> Path:
    """The same environment anew."""
    shutil.rmtree(folder, ignore_errors=True)
    plant(folder)
    return folder
