"""The history of an environment: what tfdoctor changed in it, and how all of it is taken back.

It lies in `.tfdoctor` in the environment:

    lock           held by the one process at work; its number is in it
    history.json   what was there before the first step, and what the last one left (record.py)
    steps/N/…      the step under way: its snapshot (snapshot.py); of one that is done, the files that are still needed
                   and an empty file, done
    undo.json      an undo was begun
    steps.gone     it is done: all of this is being deleted
    stage          files on their way

A step writes its snapshot to the disk before the first change, the manifest last; it is done as soon as history.json
has it. So a process that is killed at any point leaves one of: no manifest (the folder goes), a step with a manifest
that history.json does not have (all its changes are taken back), one that it has (it is kept), an undo that was begun
(it is finished). Whoever opens the journal next does that first.
"""

# Paths are plain strings, as in snapshot.py.
# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tfdoctor.environment.folder import (
    OWN,
    fsync,
    give_to_owner_of_folder,
    is_folder,
    lock,
    remove,
    sync,
    unwritten,
    write,
)
from tfdoctor.environment.history import snapshot
from tfdoctor.environment.history.record import (
    HISTORY,
    STEPS,
    UNDO,
    History,
    HistoryEntry,
    changes_of,
    check_conflicts,
    conflicts,
    is_now,
    join_paths,
    numbers,
    read_history,
    read_undo,
    with_step,
    write_history,
    write_undo,
)
from tfdoctor.environment.history.restore import Bytes, Restorer
from tfdoctor.environment.history.snapshot import (
    FILES,
    MANIFEST,
    JournalError,
    PathChange,
    PathRow,
    PathState,
    Scope,
    check_path,
    is_derived,
    look,
    make_damage_error,
)
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = [
    "HistoryEntry",
    "Journal",
    "JournalError",
    "PathChange",
    "PathState",
    "Step",
    "Undone",
    "has_pending",
]

LOCK, GONE, STAGE, DONE = "lock", "steps.gone", "stage", "done"
_AGAIN = (
    "Everything that is needed is kept: the next `tfdoctor fix` or `tfdoctor fix --undo` finishes it first."
)


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did. `restored` counts paths; `kept` are those left because somebody changed them since."""

    entries: tuple[HistoryEntry, ...]
    """The steps that were taken back, newest first."""
    restored: int
    kept: tuple[str, ...]


class Journal:
    """The history of one environment, held by this process alone. Made by `Journal.open`, left by `with`."""

    def __init__(self, prefix: str) -> None:
        """For `open`."""
        self._prefix = prefix
        self._own = f"{prefix}/{OWN}"
        self._steps = f"{self._own}/{STEPS}"
        self._lock = -1
        self._history = History()
        self._step: Step | None = None
        self.recovered: tuple[str, ...] = ()
        """What a killed process had left, and what became of it: sentences for the user."""

    @classmethod
    def open(cls, prefix: Path, *, on_wait: Callable[[str], None] | None = None) -> Journal:
        """Make or open the journal of an environment; waits while another process holds it.

        `on_wait` is called once, with a sentence, before waiting. Raises JournalError where the journal cannot be
        made, read, or what was left cannot be finished.
        """
        journal = cls(os.path.realpath(prefix))
        with _errors(f"{prefix}: the journal of changes cannot be made"):
            journal._acquire(on_wait)
        try:
            with _errors(f"{prefix}: what an earlier run left could not be finished"):
                journal._recover()
        except BaseException:
            journal._close()
            raise
        return journal

    @staticmethod
    def read(prefix: Path) -> tuple[HistoryEntry, ...]:
        """Return the steps that were done, oldest first; takes no lock and writes nothing.

        Raises JournalError.
        """
        own = f"{os.path.realpath(prefix)}/{OWN}"
        with _errors(f"{prefix}: the journal of changes cannot be read"):
            if not is_folder(own) or read_undo(own) is not None or os.path.lexists(f"{own}/{GONE}"):
                return ()
            history = read_history(own)
            _check_complete(own, history)
            return history.entries

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        """The steps that were done, oldest first."""
        return self._history.entries

    def __enter__(self) -> Journal:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._step is not None:
                self._step.rollback()
        finally:
            self._close()

    def fileno(self) -> int:
        """Return the lock.

        Give it to children that change the environment (`pass_fds`): where we are killed and they go on, the journal
        stays held until they end, and nobody takes back what they are still writing.
        """
        return self._lock

    # -------- steps

    def step(self, *, title: str, codes: Sequence[str] = (), paths: Sequence[Path] | None = None) -> Step:
        """Begin a step: from now on the environment may be changed.

        `paths` None: anywhere in it. Else only at these (and in folders that have to be made for them). Raises
        JournalError, with nothing changed, where the way back cannot be secured.
        """
        self._check_idle()
        scope = Scope(("",)) if paths is None else self._scope(paths)
        number = max((*numbers(self._own), *(entry.number for entry in self.entries)), default=0) + 1
        folder = f"{self._steps}/{number}"
        entry = HistoryEntry(
            number, title, tuple(codes), datetime.now(timezone.utc).isoformat(timespec="seconds")
        )
        try:
            with _errors(f"{self._prefix}: what is there now could not be kept, so nothing was changed"):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._steps, 0o700)
                os.mkdir(folder, 0o700)
                snapshot.take(self._prefix, folder, title, scope)
                for above in (self._steps, self._own, self._prefix):
                    fsync(above)
        except BaseException:
            with contextlib.suppress(OSError):
                self._drop(number)
            raise
        self._step = Step(lambda: self._commit(entry), lambda: self._take_back(entry))
        return self._step

    def _check_idle(self) -> None:
        if self._step is not None:
            raise JournalError("A step is still under way; it has to be committed or rolled back first.")

    def _scope(self, paths: Sequence[Path]) -> Scope:
        """Return what a step on these paths looks at: them, the folders above, and what Python compiled of them."""
        roots: set[str] = set()
        for given in paths:
            place = os.path.join(self._prefix, given)
            real = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
            below = os.path.relpath(real, self._prefix)
            try:
                roots.add(check_path(below))
            except ValueError as error:
                message = f"{clean_line(str(given))}: not a path in the environment {self._prefix}"
                raise JournalError(message) from error
        for path in sorted(roots):
            folder, _, name = path.rpartition("/")
            if name.endswith(".py"):
                for one in snapshot.scan(self._prefix, Scope((f"{folder}/__pycache__".lstrip("/"),))):
                    if os.path.basename(one).startswith(f"{name.removesuffix('.py')}."):
                        roots.add(one)
        folders = {
            "/".join(path.split("/")[:depth]) for path in roots for depth in range(1, path.count("/") + 1)
        }
        return Scope(tuple(sorted(roots)), tuple(sorted(folders - roots)))

    def _commit(self, entry: HistoryEntry) -> HistoryEntry:
        self._step = None
        try:
            with _errors(f"{self._prefix}: the changes could not be recorded, so they were taken back"):
                return self._record(entry)
        except BaseException as error:
            self._history = read_history(self._own)
            if entry.number not in self._history:
                self._take_back(entry)
                raise
            if not isinstance(error, JournalError):
                raise  # interrupted after it was committed
            return self.entries[-1]

    def _record(self, entry: HistoryEntry) -> HistoryEntry:
        """Compare, and write the history with this step in it: the one moment from which it counts."""
        _, scope, rows = snapshot.read_snapshot(f"{self._steps}/{entry.number}")
        found = changes_of(self._prefix, self._steps, rows, snapshot.scan(self._prefix, scope))
        self._give_to_owner(scope, rows)
        entry = replace(entry, changes=len(found))
        history = with_step(self._history, entry, found, rows)
        self._settle(found)
        write_history(self._own, history)
        self._history = history
        with contextlib.suppress(OSError):
            self._prune(entry.number)
        return entry

    def _give_to_owner(self, scope: Scope, rows: Mapping[str, PathRow]) -> None:
        """Give what root made in somebody else's environment to the owner of its folder."""
        if os.geteuid() != 0:
            return
        for path in sorted(snapshot.scan(self._prefix, scope)):
            if path not in rows or rows[path].state.type == "file":
                place = f"{self._prefix}/{path}"
                before = rows.get(path)
                if before is None or os.lstat(place).st_ino != before.state.inode:
                    give_to_owner_of_folder(place)

    def _settle(self, changes: list[PathChange]) -> None:
        """What was changed goes to the disk before the history that says so."""
        files = [f"{self._prefix}/{one.path}" for one in changes if one.after and one.after.type == "file"]
        folders = {os.path.dirname(f"{self._prefix}/{one.path}") for one in changes}
        readable = [path for path in files if os.access(path, os.R_OK)]  # ours, but perhaps not to be read
        sync([*readable, *filter(is_folder, folders)])

    def _prune(self, number: int) -> None:
        """Delete what a step that is done kept for nothing. The manifest goes last: without it, all this is done."""
        folder = f"{self._steps}/{number}"
        if not os.path.lexists(f"{folder}/{MANIFEST}"):
            return
        write(f"{folder}/{DONE}", b"", private=True)
        needed = {change.kept.place for change in self._history.changes.values() if change.kept is not None}
        files = f"{number}/{FILES}"
        for shelf in os.listdir(f"{self._steps}/{files}") if is_folder(f"{self._steps}/{files}") else []:
            place = f"{self._steps}/{files}/{shelf}"
            if not is_folder(place):
                continue
            for name in os.listdir(place):
                if f"{files}/{shelf}/{name}" not in needed:
                    os.unlink(f"{place}/{name}")
            with contextlib.suppress(OSError):
                os.rmdir(place)
        os.unlink(f"{folder}/{MANIFEST}")

    def _take_back(self, entry: HistoryEntry) -> None:
        self._step = None
        with _errors(f"{self._prefix}: the changes could not be taken back", hint=_AGAIN):
            _, _, lost = self._roll_back(entry.number)
        if lost:
            message = f"“{clean_line(entry.title)}” was undone, but not completely.{_describe_lost(lost)}"
            raise JournalError(message)

    def _roll_back(self, number: int) -> tuple[str, int, list[str]]:
        """Make everything what it was before a step; drop it. → title, how many paths, those whose bytes are lost."""
        title, scope, rows = snapshot.read_snapshot(f"{self._steps}/{number}")
        changes = snapshot.differences(self._prefix, rows, snapshot.scan(self._prefix, scope))
        paths = {change.path for change in changes}
        compiled = {
            path: (row.state.size, row.state.mtime_ns)
            for path, row in rows.items()
            if path.endswith(".pyc") and path not in paths
        }
        kept = Bytes(self._steps)
        restorer = Restorer(self._prefix, self._stage, kept, changes, valid_pyc=compiled, exact=scope.whole)
        restorer.apply()
        self._drop(number)
        # A folder that was made for a named path stays where somebody else uses it by now.
        lost = [path for path in restorer.left if scope.whole or path in rows]
        return title, sum(not is_derived(path) for path in paths - set(restorer.left)), lost

    def _drop(self, number: int) -> None:
        """Delete a step that is not done: without a manifest it was never begun, for whoever looks."""
        folder = f"{self._steps}/{number}"
        if is_folder(folder):
            remove(f"{folder}/{MANIFEST}")
            fsync(folder)
            remove(folder)

    # -------- undo

    def undo(self, force: bool = False) -> Undone:
        """Take back everything that was done.

        Raises JournalError, with nothing changed, where somebody changed paths since, or bytes that are needed are
        lost; with `force` these paths are left as they are and told in `Undone.kept`.
        """
        self._check_idle()
        history = self._history
        if not history.entries:
            return Undone((), 0, ())
        try:
            with _errors(f"{self._prefix}: nothing was taken back"):
                foreign, lost, left = conflicts(self._prefix, history, Bytes(self._steps))
                if not force:
                    check_conflicts(foreign, lost)
                restorer = self._restorer(left)
                restorer.stage()
                write_undo(self._own, left)
        except BaseException:
            for name in (UNDO, STAGE):
                with contextlib.suppress(OSError):
                    remove(f"{self._own}/{name}")
            raise
        with _errors(f"{self._prefix}: undoing the changes was interrupted", hint=_AGAIN):
            restorer.apply()
            self._forget()
        kept = {*foreign, *lost, *restorer.left}
        changed = {path for path in history.changes if not is_derived(path)}
        return Undone(history.entries[::-1], len(changed - kept), tuple(sorted(kept)))

    @property
    def _stage(self) -> str:
        return f"{self._own}/{STAGE}"

    def _restorer(self, left: set[str]) -> Restorer:
        """Return what puts everything back but the paths to leave."""
        history = self._history
        changes = [change for path, change in history.changes.items() if path not in left]
        kept = Bytes(self._steps)
        return Restorer(self._prefix, self._stage, kept, changes, valid_pyc=history.compiled)

    def _forget(self) -> None:
        """The undo is done, from the rename on; then the history is deleted, piece by piece."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._steps, f"{self._own}/{GONE}")
        fsync(self._own)
        self._history = History()
        for name in (HISTORY, UNDO, GONE):
            remove(f"{self._own}/{name}")

    # -------- what others left

    def _recover(self) -> None:
        """Finish what a killed process began; then read the history."""
        if os.path.lexists(f"{self._own}/{GONE}"):
            self._forget()
        self._history = read_history(self._own)
        left = read_undo(self._own)
        for path in (self._stage, *(unwritten(f"{self._own}/{name}") for name in (HISTORY, UNDO))):
            remove(path)
        told = [] if left is None else [self._finish_undo(left)]
        _check_complete(self._own, self._history)
        for number in reversed(numbers(self._own)):
            if number in self._history:
                with contextlib.suppress(OSError):
                    self._prune(number)
            elif os.path.lexists(f"{self._steps}/{number}/{MANIFEST}"):
                title, count, lost = self._roll_back(number)
                told.append(
                    f"“{clean_line(title)}” had been interrupted: what it had done was taken back "
                    f"({_count(count)})." + _describe_lost(lost)
                )
            else:
                remove(f"{self._steps}/{number}")  # never begun: nothing was changed
        self.recovered = tuple(told)

    def _finish_undo(self, left: set[str]) -> str:
        """Go on with an undo. What somebody changed after it was stopped is left."""
        changes = [change for path, change in self._history.changes.items() if not is_derived(path)]
        left |= {change.path for change in changes if not self._half_way(change)}
        restorer = self._restorer(left)
        restorer.apply()
        self._forget()
        left |= {*restorer.left, *(change.path for change in changes if change.foreign)}
        count = sum(change.path not in left for change in changes)
        sentence = f"Undoing the changes had been interrupted and was finished ({_count(count)})."
        return sentence + (
            f" Left as they are, changed by somebody else: {join_paths(left)}." if left else ""
        )

    def _half_way(self, change: PathChange) -> bool:
        """Return whether a path is as an undo that was stopped may have left it."""
        info = look(self._prefix, change.path)
        if info is None:
            return True
        sides = (change.before, change.after)
        if stat.S_ISDIR(info.st_mode):
            return any(state is not None and state.type == "dir" for state in sides)
        hashes: dict[str, str] = {}
        return any(is_now(self._prefix, change.path, state, hashes) for state in sides)

    # -------- the lock

    def _acquire(self, on_wait: Callable[[str], None] | None) -> None:
        """Take the lock. Whoever leaves an empty journal deletes it."""
        if not is_folder(self._prefix):
            message = f"{self._prefix}: not a folder, so not an environment"
            raise JournalError(message)

        def make() -> None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._own, 0o700)
            if not is_folder(self._own) and os.path.lexists(self._own):
                raise make_damage_error(self._own, "not a folder")

        def report_wait(handle: int) -> None:
            if on_wait is not None:
                on_wait(_describe_wait(handle))

        self._lock = lock(f"{self._own}/{LOCK}", make, report_wait)
        with contextlib.suppress(OSError):  # a full disk: the number is a courtesy
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _close(self) -> None:
        """Leave the lock; an empty journal goes, the lock's file while it is still held."""
        if self._lock < 0:
            return
        try:
            with contextlib.suppress(OSError):
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(self._steps)  # only where no step is left
                if not any(os.path.lexists(f"{self._own}/{name}") for name in (HISTORY, UNDO, GONE)):
                    os.unlink(f"{self._own}/{LOCK}")
                    os.rmdir(self._own)
        finally:
            os.close(self._lock)
            self._lock = -1


class Step:
    """A step under way. `with step:` takes it back where the block raises; then `commit` or `rollback`."""

    def __init__(self, commit: Callable[[], HistoryEntry], rollback: Callable[[], None]) -> None:
        """For `Journal.step`."""
        self._commit, self._rollback = commit, rollback
        self._over = False

    def __enter__(self) -> Step:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._over:
            self.rollback()

    def commit(self) -> HistoryEntry:
        """Keep the changes. Where that cannot be recorded they are taken back, and JournalError is raised."""
        self._end()
        return self._commit()

    def rollback(self) -> None:
        """Take the changes back. Raises JournalError where that could not be done, or not wholly."""
        self._end()
        self._rollback()

    def _end(self) -> None:
        if self._over:
            raise JournalError("The step is over already.")
        self._over = True


def has_pending(prefix: Path) -> bool:
    """Return whether a step or an undo is not finished: somebody is at work, or was killed.

    Writes nothing.
    """
    own = f"{os.path.realpath(prefix)}/{OWN}"
    with _errors(f"{prefix}: the journal of changes cannot be read"):
        if not is_folder(own):
            return False
        if os.path.lexists(f"{own}/{GONE}"):
            return False
        if os.path.lexists(f"{own}/{UNDO}"):
            return True
        history = read_history(own)
        return any(number not in history for number in numbers(own))


# ---------------------------------------------------------------- sentences


def _count(count: int) -> str:
    return "1 path" if count == 1 else f"{count} paths"


def _describe_lost(paths: list[str]) -> str:
    if not paths:
        return ""
    return f" Not as before, for a program wrote into the files themselves or made others there: {join_paths(paths)}."


def _describe_wait(handle: int) -> str:
    with contextlib.suppress(OSError):
        number = os.pread(handle, 20, 0).strip()
        if number.isdigit():
            return f"Another tfdoctor (process {int(number)}) is changing this environment; waiting for it."
    return "Another tfdoctor is changing this environment; waiting for it."


@contextlib.contextmanager
def _errors(what: str, *, hint: str = "") -> Iterator[None]:
    """OSError → JournalError: one sentence, and what to do about it."""
    try:
        yield
    except OSError as error:
        what, why = clean_line(what), error.strerror or str(error)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            hint = f"Free space on that disk. {hint}".strip()
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            hint = f"Run it as the one who owns the environment. {hint}".strip()
        place = (
            f" ({clean_line(os.fsdecode(error.filename))})"
            if isinstance(error.filename, (str, bytes))
            else ""
        )
        message = f"{what}: {why}{place}"
        raise JournalError(message, hint=hint) from error


def _check_complete(own: str, history: History) -> None:
    """Raise JournalError if the history lacks a step that was done: what that step kept is needed to take it back."""
    for number in numbers(own):
        step = f"{own}/{STEPS}/{number}"
        done = os.path.lexists(f"{step}/{DONE}") and not os.path.lexists(f"{step}/{MANIFEST}")
        if done and number not in history:
            place, reason = f"{own}/{HISTORY}", f"step {number} is missing"
            raise make_damage_error(place, reason)
