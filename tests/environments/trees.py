"""Helpers that list, compare and recreate environments for the tests of the journal."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments.killer import plant
from tfdoctor.environments.history.journal import Journal
from tfdoctor.environments.history.record import read_history

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.environments.history.journal import PathChange

DOCTOR = Path(__file__).resolve().parents[2] / "doctor"


def list_tree(prefix: Path) -> dict[str, tuple[Any, ...]]:
    """Return everything that an undo restores, by path: type, mode, SHA-256, target, and mtime of files."""
    states: dict[str, tuple[Any, ...]] = {}
    for folder, folders, files in os.walk(prefix):
        if Path(folder) == prefix and ".tfdoctor" in folders:
            folders.remove(".tfdoctor")
        for name in folders + files:
            path = Path(folder) / name
            info = path.lstat()
            key = path.relative_to(prefix).as_posix()
            if path.is_symlink():
                states[key] = ("link", str(path.readlink()))
            elif path.is_dir():
                states[key] = ("dir", stat.S_IMODE(info.st_mode))
            else:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                states[key] = ("file", stat.S_IMODE(info.st_mode), content, info.st_mtime_ns)
    return states


def list_differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the paths whose states differ."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def assert_same(prefix: Path, expected: dict[str, Any]) -> None:
    actual = list_tree(prefix)
    assert {key: actual.get(key) for key in list_differing(actual, expected)} == {
        key: expected.get(key) for key in list_differing(actual, expected)
    }


def commit_steps(prefix: Path, *changes: Callable[[Path], object]) -> None:
    """Apply each change in a step of its own."""
    with Journal.open(prefix) as journal:
        for change in changes:
            with journal.begin_step(title=change.__name__, codes=("TFD205",)) as step:
                change(prefix)
            step.commit()


def list_changes(prefix: Path) -> list[PathChange]:
    """Return the changes of all steps together, sorted by path."""
    changes = read_history(f"{prefix}/.tfdoctor").changes
    return [change for _, change in sorted(changes.items())]


def classify(change: PathChange) -> str:
    """Return "added", "removed" or "changed"."""
    if change.before is None:
        return "added"
    return "removed" if change.after is None else "changed"


def recreate(folder: Path) -> Path:
    """Create the planted environment anew."""
    shutil.rmtree(folder, ignore_errors=True)
    plant(folder)
    return folder
