"""The journal of an environment: it records what tfdoctor changes there, and can undo all of it.

The folder `.tfdoctor` in the environment holds:

    lock           the lock file, held by the one running process; contains its process ID
    history.json   the state before the first step, and the state after the last one (record.py)
    steps/N/…      the snapshot of the step in progress (snapshot.py); for a finished step the files that are still
                   needed, and an empty file named done
    undo.json      exists if an undo has begun
    steps.gone     exists if the undo is done and the journal is being deleted
    stage          files that are about to be renamed into place

A step writes its snapshot to the disk before the first change, and the manifest last. It is done as soon as
history.json contains it. So a process that is killed at any point leaves one of four states: no manifest (the folder is
deleted), a manifest of a step that history.json lacks (its changes are undone), a step that history.json contains (it
is kept), or an undo that has begun (it is finished). The next process that opens the journal does this first.
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
    STATE_FOLDER,
    fsync,
    get_unfinished_path,
    give_to_owner_of_folder,
    is_folder,
    lock,
    remove,
    sync,
    write,
)
from tfdoctor.environment.history import snapshot
from tfdoctor.environment.history.record import (
    HISTORY,
    STEPS,
    UNDO,
    History,
    HistoryEntry,
    check_conflicts,
    compute_changes,
    find_conflicts,
    has_state,
    join_paths,
    list_step_numbers,
    read_history,
    read_undo,
    with_step,
    write_history,
    write_undo,
)
from tfdoctor.environment.history.restore import KeptContents, Restorer
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
    lstat_below,
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
    "UndoResult",
    "has_pending",
]

LOCK, DELETED_STEPS, STAGE, DONE = "lock", "steps.gone", "stage", "done"
_RESUME_HINT = (
    "Everything that is needed is kept: the next `tfdoctor fix` or `tfdoctor fix --undo` finishes it first."
)


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The result of an undo.

    `restored` is the number of restored paths. `kept` are the paths with somebody else's changes, and those whose old
    contents are lost.
    """

    entries: tuple[HistoryEntry, ...]
    """The steps that were undone, newest first."""
    restored: int
    kept: tuple[str, ...]


class Journal:
    """The locked history of one environment. Get it with `Journal.open` and use it as a context manager."""

    def __init__(self, prefix: str) -> None:
        """Use `Journal.open` instead."""
        self._prefix = prefix
        self._folder = f"{prefix}/{STATE_FOLDER}"
        self._steps = f"{self._folder}/{STEPS}"
        self._lock = -1
        self._history = History()
        self._step: Step | None = None
        self.recovered: tuple[str, ...] = ()
        """Sentences for the user about what a killed process left and how it was resolved."""

    @classmethod
    def open(cls, prefix: Path, *, on_wait: Callable[[str], None] | None = None) -> Journal:
        """Create or open the journal of an environment; wait while another process holds it.

        `on_wait` is called once, with a sentence, before waiting. Raise JournalError if the journal cannot be created
        or read, or if what an earlier run left cannot be finished.
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
        """Return the steps that are done, oldest first; take no lock and write nothing.

        Raise JournalError.
        """
        folder = f"{os.path.realpath(prefix)}/{STATE_FOLDER}"
        with _errors(f"{prefix}: the journal of changes cannot be read"):
            if (
                not is_folder(folder)
                or read_undo(folder) is not None
                or os.path.lexists(f"{folder}/{DELETED_STEPS}")
            ):
                return ()
            history = read_history(folder)
            _check_complete(folder, history)
            return history.entries

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        """The steps that are done, oldest first."""
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
        """Return the descriptor of the lock.

        Pass it to child processes that change the environment (`pass_fds`). If this process is killed and they go on,
        the journal stays locked until they end, so nobody undoes what they are still writing.
        """
        return self._lock

    # -------- steps

    def step(self, *, title: str, codes: Sequence[str] = (), paths: Sequence[Path] | None = None) -> Step:
        """Begin a step: from now on the environment may be changed.

        `paths` are the only paths that may change, with the folders that have to be created for them; None means any
        path. Raise JournalError, with nothing changed, if the snapshot cannot be taken.
        """
        self._check_idle()
        scope = Scope(("",)) if paths is None else self._make_scope(paths)
        number = (
            max((*list_step_numbers(self._folder), *(entry.number for entry in self.entries)), default=0) + 1
        )
        folder = f"{self._steps}/{number}"
        entry = HistoryEntry(
            number, title, tuple(codes), datetime.now(timezone.utc).isoformat(timespec="seconds")
        )
        try:
            with _errors(f"{self._prefix}: what is there now could not be kept, so nothing was changed"):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._steps, 0o700)
                os.mkdir(folder, 0o700)
                snapshot.take_snapshot(self._prefix, folder, title, scope)
                for folder_above in (self._steps, self._folder, self._prefix):
                    fsync(folder_above)
        except BaseException:
            with contextlib.suppress(OSError):
                self._delete_step(number)
            raise
        self._step = Step(lambda: self._commit(entry), lambda: self._revert(entry))
        return self._step

    def _check_idle(self) -> None:
        """Raise JournalError if a step is in progress."""
        if self._step is not None:
            raise JournalError("A step is still under way; it has to be committed or rolled back first.")

    def _make_scope(self, paths: Sequence[Path]) -> Scope:
        """Return the scope of a step: the paths, their parent folders, and the sources' compiled files."""
        roots: set[str] = set()
        for path_text in paths:
            absolute = os.path.join(self._prefix, path_text)
            real = os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))
            relative = os.path.relpath(real, self._prefix)
            try:
                roots.add(check_path(relative))
            except ValueError as error:
                message = f"{clean_line(str(path_text))}: not a path in the environment {self._prefix}"
                raise JournalError(message) from error
        for path in sorted(roots):
            folder, _, name = path.rpartition("/")
            if name.endswith(".py"):
                for compiled in snapshot.scan(self._prefix, Scope((f"{folder}/__pycache__".lstrip("/"),))):
                    if os.path.basename(compiled).startswith(f"{name.removesuffix('.py')}."):
                        roots.add(compiled)
        folders = {
            "/".join(path.split("/")[:depth]) for path in roots for depth in range(1, path.count("/") + 1)
        }
        return Scope(tuple(sorted(roots)), tuple(sorted(folders - roots)))

    def _commit(self, entry: HistoryEntry) -> HistoryEntry:
        """Record the step; undo its changes if that fails."""
        self._step = None
        try:
            with _errors(f"{self._prefix}: the changes could not be recorded, so they were taken back"):
                return self._record(entry)
        except BaseException as error:
            self._history = read_history(self._folder)
            if entry.number not in self._history:
                self._revert(entry)
                raise
            if not isinstance(error, JournalError):
                raise  # interrupted after the commit
            return self.entries[-1]

    def _record(self, entry: HistoryEntry) -> HistoryEntry:
        """Compare with the snapshot and write the history with this step. The step counts from then on."""
        _, scope, rows = snapshot.read_snapshot(f"{self._steps}/{entry.number}")
        changes = compute_changes(self._prefix, self._steps, rows, snapshot.scan(self._prefix, scope))
        self._give_to_owner(scope, rows)
        entry = replace(entry, changes=len(changes))
        history = with_step(self._history, entry, changes, rows)
        self._sync_changes(changes)
        write_history(self._folder, history)
        self._history = history
        with contextlib.suppress(OSError):
            self._delete_unneeded(entry.number)
        return entry

    def _give_to_owner(self, scope: Scope, rows: Mapping[str, PathRow]) -> None:
        """Give the paths that root created to the owner of the folder they are in."""
        if os.geteuid() != 0:
            return
        for path in sorted(snapshot.scan(self._prefix, scope)):
            if path not in rows or rows[path].state.type == "file":
                absolute = f"{self._prefix}/{path}"
                before = rows.get(path)
                if before is None or os.lstat(absolute).st_ino != before.state.inode:
                    give_to_owner_of_folder(absolute)

    def _sync_changes(self, changes: list[PathChange]) -> None:
        """Sync the changed paths to the disk before the history that lists them."""
        files = [
            f"{self._prefix}/{change.path}"
            for change in changes
            if change.after and change.after.type == "file"
        ]
        folders = {os.path.dirname(f"{self._prefix}/{change.path}") for change in changes}
        readable = [path for path in files if os.access(path, os.R_OK)]  # a file of ours may be unreadable
        sync([*readable, *filter(is_folder, folders)])

    def _delete_unneeded(self, number: int) -> None:
        """Delete what a finished step no longer needs.

        The manifest goes last: its absence means that this is done.
        """
        folder = f"{self._steps}/{number}"
        if not os.path.lexists(f"{folder}/{MANIFEST}"):
            return
        write(f"{folder}/{DONE}", b"", private=True)
        needed = {change.kept.path for change in self._history.changes.values() if change.kept is not None}
        files = f"{number}/{FILES}"
        for shelf in os.listdir(f"{self._steps}/{files}") if is_folder(f"{self._steps}/{files}") else []:
            shelf_folder = f"{self._steps}/{files}/{shelf}"
            if not is_folder(shelf_folder):
                continue
            for name in os.listdir(shelf_folder):
                if f"{files}/{shelf}/{name}" not in needed:
                    os.unlink(f"{shelf_folder}/{name}")
            with contextlib.suppress(OSError):
                os.rmdir(shelf_folder)
        os.unlink(f"{folder}/{MANIFEST}")

    def _revert(self, entry: HistoryEntry) -> None:
        """Undo a step that is not committed. Raise JournalError if that is not complete."""
        self._step = None
        with _errors(f"{self._prefix}: the changes could not be taken back", hint=_RESUME_HINT):
            _, _, lost_paths = self._roll_back(entry.number)
        if lost_paths:
            message = (
                f"“{clean_line(entry.title)}” was undone, but not completely.{_describe_lost(lost_paths)}"
            )
            raise JournalError(message)

    def _roll_back(self, number: int) -> tuple[str, int, list[str]]:
        """Restore the state before a step and delete it.

        Return its title, the number of paths, and the lost paths.
        """
        title, scope, rows = snapshot.read_snapshot(f"{self._steps}/{number}")
        changes = snapshot.differences(self._prefix, rows, snapshot.scan(self._prefix, scope))
        paths = {change.path for change in changes}
        compiled = {
            path: (entry.state.size, entry.state.mtime_ns)
            for path, entry in rows.items()
            if path.endswith(".pyc") and path not in paths
        }
        contents = KeptContents(self._steps)
        restorer = Restorer(
            self._prefix, self._stage, contents, changes, valid_pyc=compiled, exact=scope.whole
        )
        restorer.apply()
        self._delete_step(number)
        # A folder that was created for a named path stays if somebody else uses it by now.
        lost_paths = [path for path in restorer.unrestored if scope.whole or path in rows]
        return title, sum(not is_derived(path) for path in paths - set(restorer.unrestored)), lost_paths

    def _delete_step(self, number: int) -> None:
        """Delete a step that is not done. The manifest goes first: a step without one counts as never begun."""
        folder = f"{self._steps}/{number}"
        if is_folder(folder):
            remove(f"{folder}/{MANIFEST}")
            fsync(folder)
            remove(folder)

    # -------- undo

    def undo(self, force: bool = False) -> UndoResult:
        """Undo all steps.

        Raise JournalError, with nothing changed, if somebody else changed paths or if contents that are needed are
        lost. With `force` somebody else's changes are kept, and these paths are listed in `Undone.kept`.
        """
        self._check_idle()
        history = self._history
        if not history.entries:
            return UndoResult((), 0, ())
        try:
            with _errors(f"{self._prefix}: nothing was taken back"):
                foreign_paths, lost_paths, skipped = find_conflicts(
                    self._prefix, history, KeptContents(self._steps)
                )
                if not force:
                    check_conflicts(foreign_paths, lost_paths)
                restorer = self._make_restorer(skipped)
                restorer.stage()
                write_undo(self._folder, skipped)
        except BaseException:
            for name in (UNDO, STAGE):
                with contextlib.suppress(OSError):
                    remove(f"{self._folder}/{name}")
            raise
        with _errors(f"{self._prefix}: undoing the changes was interrupted", hint=_RESUME_HINT):
            restorer.apply()
            self._delete_history()
        kept_paths = {*foreign_paths, *lost_paths, *restorer.unrestored}
        changed = {path for path in history.changes if not is_derived(path)}
        return UndoResult(history.entries[::-1], len(changed - kept_paths), tuple(sorted(kept_paths)))

    @property
    def _stage(self) -> str:
        return f"{self._folder}/{STAGE}"

    def _make_restorer(self, skipped: set[str]) -> Restorer:
        """Return a restorer of all paths except those to leave."""
        history = self._history
        changes = [change for path, change in history.changes.items() if path not in skipped]
        contents = KeptContents(self._steps)
        return Restorer(self._prefix, self._stage, contents, changes, valid_pyc=history.compiled)

    def _delete_history(self) -> None:
        """Mark the undo as done with one rename, then delete the history."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._steps, f"{self._folder}/{DELETED_STEPS}")
        fsync(self._folder)
        self._history = History()
        for name in (HISTORY, UNDO, DELETED_STEPS):
            remove(f"{self._folder}/{name}")

    # -------- recovery

    def _recover(self) -> None:
        """Finish what a killed process began, and read the history."""
        if os.path.lexists(f"{self._folder}/{DELETED_STEPS}"):
            self._delete_history()
        self._history = read_history(self._folder)
        undo_paths = read_undo(self._folder)
        for path in (
            self._stage,
            *(get_unfinished_path(f"{self._folder}/{name}") for name in (HISTORY, UNDO)),
        ):
            remove(path)
        messages = [] if undo_paths is None else [self._finish_undo(undo_paths)]
        _check_complete(self._folder, self._history)
        for number in reversed(list_step_numbers(self._folder)):
            if number in self._history:
                with contextlib.suppress(OSError):
                    self._delete_unneeded(number)
            elif os.path.lexists(f"{self._steps}/{number}/{MANIFEST}"):
                title, count, lost_paths = self._roll_back(number)
                messages.append(
                    f"“{clean_line(title)}” had been interrupted: what it had done was taken back "
                    f"({_format_count(count)})." + _describe_lost(lost_paths)
                )
            else:
                remove(f"{self._steps}/{number}")  # never begun, so nothing was changed
        self.recovered = tuple(messages)

    def _finish_undo(self, skipped: set[str]) -> str:
        """Finish an undo, except for paths that were changed after it was interrupted. Return a sentence."""
        changes = [change for path, change in self._history.changes.items() if not is_derived(path)]
        skipped |= {change.path for change in changes if not self._may_be_half_undone(change)}
        restorer = self._make_restorer(skipped)
        restorer.apply()
        self._delete_history()
        skipped |= {*restorer.unrestored, *(change.path for change in changes if change.foreign)}
        count = sum(change.path not in skipped for change in changes)
        sentence = f"Undoing the changes had been interrupted and was finished ({_format_count(count)})."
        return sentence + (
            f" Left as they are, changed by somebody else: {join_paths(skipped)}." if skipped else ""
        )

    def _may_be_half_undone(self, change: PathChange) -> bool:
        """Return whether an interrupted undo may have left the path in its present state."""
        info = lstat_below(self._prefix, change.path)
        if info is None:
            return True
        states = (change.before, change.after)
        if stat.S_ISDIR(info.st_mode):
            return any(state is not None and state.type == "dir" for state in states)
        hashes: dict[str, str] = {}
        return any(has_state(self._prefix, change.path, state, hashes) for state in states)

    # -------- the lock

    def _acquire(self, on_wait: Callable[[str], None] | None) -> None:
        """Create the folder and take the lock."""
        if not is_folder(self._prefix):
            message = f"{self._prefix}: not a folder, so not an environment"
            raise JournalError(message)

        def make() -> None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            if not is_folder(self._folder) and os.path.lexists(self._folder):
                raise make_damage_error(self._folder, "not a folder")

        def report_wait(handle: int) -> None:
            if on_wait is not None:
                on_wait(_describe_wait(handle))

        self._lock = lock(f"{self._folder}/{LOCK}", make, report_wait)
        with contextlib.suppress(OSError):  # on a full disk the process ID is omitted
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _close(self) -> None:
        """Release the lock, and delete an empty journal before that."""
        if self._lock < 0:
            return
        try:
            with contextlib.suppress(OSError):
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(self._steps)  # fails if a step is left
                if not any(
                    os.path.lexists(f"{self._folder}/{name}") for name in (HISTORY, UNDO, DELETED_STEPS)
                ):
                    os.unlink(f"{self._folder}/{LOCK}")
                    os.rmdir(self._folder)
        finally:
            os.close(self._lock)
            self._lock = -1


class Step:
    """A step in progress: call `commit` or `rollback`. `with step:` rolls back if the block raises."""

    def __init__(self, commit: Callable[[], HistoryEntry], rollback: Callable[[], None]) -> None:
        """Use `Journal.step` instead."""
        self._commit, self._rollback = commit, rollback
        self._finished = False

    def __enter__(self) -> Step:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._finished:
            self.rollback()

    def commit(self) -> HistoryEntry:
        """Keep the changes. If they cannot be recorded, undo them and raise JournalError."""
        self._mark_finished()
        return self._commit()

    def rollback(self) -> None:
        """Undo the changes. Raise JournalError if that fails or is not complete."""
        self._mark_finished()
        self._rollback()

    def _mark_finished(self) -> None:
        if self._finished:
            raise JournalError("The step is over already.")
        self._finished = True


def has_pending(prefix: Path) -> bool:
    """Return whether a step or an undo is unfinished: a process is running, or was killed.

    Write nothing.
    """
    folder = f"{os.path.realpath(prefix)}/{STATE_FOLDER}"
    with _errors(f"{prefix}: the journal of changes cannot be read"):
        if not is_folder(folder):
            return False
        if os.path.lexists(f"{folder}/{DELETED_STEPS}"):
            return False
        if os.path.lexists(f"{folder}/{UNDO}"):
            return True
        history = read_history(folder)
        return any(number not in history for number in list_step_numbers(folder))


# ---------------------------------------------------------------- messages


def _format_count(count: int) -> str:
    return "1 path" if count == 1 else f"{count} paths"


def _describe_lost(paths: list[str]) -> str:
    """Return a sentence about the paths that could not be restored; empty if there are none."""
    if not paths:
        return ""
    return f" Not as before, for a program wrote into the files themselves or made others there: {join_paths(paths)}."


def _describe_wait(handle: int) -> str:
    """Return the message for waiting, with the ID of the process that holds the lock."""
    with contextlib.suppress(OSError):
        number = os.pread(handle, 20, 0).strip()
        if number.isdigit():
            return f"Another tfdoctor (process {int(number)}) is changing this environment; waiting for it."
    return "Another tfdoctor is changing this environment; waiting for it."


@contextlib.contextmanager
def _errors(problem: str, *, hint: str = "") -> Iterator[None]:
    """Turn OSError into JournalError with one sentence and a hint."""
    try:
        yield
    except OSError as error:
        problem, reason = clean_line(problem), error.strerror or str(error)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            hint = f"Free space on that disk. {hint}".strip()
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            hint = f"Run it as the one who owns the environment. {hint}".strip()
        location = (
            f" ({clean_line(os.fsdecode(error.filename))})"
            if isinstance(error.filename, (str, bytes))
            else ""
        )
        message = f"{problem}: {reason}{location}"
        raise JournalError(message, hint=hint) from error


def _check_complete(folder: str, history: History) -> None:
    """Raise JournalError if the history lacks a finished step: what that step kept is needed for an undo."""
    for number in list_step_numbers(folder):
        step = f"{folder}/{STEPS}/{number}"
        is_done = os.path.lexists(f"{step}/{DONE}") and not os.path.lexists(f"{step}/{MANIFEST}")
        if is_done and number not in history:
            path, reason = f"{folder}/{HISTORY}", f"step {number} is missing"
            raise make_damage_error(path, reason)
