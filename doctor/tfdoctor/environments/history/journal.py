"""The journal of an environment, which records all changes that fix makes and can undo them.

The folder `.tfdoctor` in the environment holds:

    lock           the lock file with the ID of the process that holds the lock
    history.json   the states before the first and after the last step (record.py)
    steps/N/…      the snapshot of the step in progress (snapshot.py); for a finished step only the files that undo
                   needs, and an empty file named done
    undo.json      exists if an undo has begun
    steps.gone     exists if an undo is finished and the journal is being deleted
    stage          files that are about to be renamed into place

A step writes its snapshot to the disk before it changes anything; the manifest is the last file of the snapshot. The step
is finished as soon as history.json contains it. If a process is killed, the next one finds one of four states:

    no manifest                              nothing was changed: the folder of the step is deleted
    a manifest, no entry in history.json     the changes of the step are undone
    an entry in history.json                 the changes of the step remain
    undo.json                                the undo is completed
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

from tfdoctor.core.text import clean_line
from tfdoctor.environments.folder import (
    STATE_FOLDER,
    acquire_lock,
    get_unfinished_path,
    give_to_owner_of_folder,
    is_folder,
    remove_path,
    sync_path,
    sync_paths,
    write_atomically,
)
from tfdoctor.environments.history import snapshot
from tfdoctor.environments.history.record import (
    HISTORY_FILE,
    STEPS_FOLDER,
    UNDO_FILE,
    History,
    HistoryEntry,
    add_step,
    compute_changes,
    find_conflicts,
    has_state,
    join_paths,
    list_step_numbers,
    read_history,
    read_undo,
    require_no_conflicts,
    write_history,
    write_undo,
)
from tfdoctor.environments.history.restore import Restorer, SavedContents
from tfdoctor.environments.history.snapshot import (
    CONTENTS_FOLDER,
    MANIFEST_FILE,
    JournalError,
    PathChange,
    PathState,
    Scope,
    SnapshotEntry,
    is_python_cache,
    lstat_below,
    make_damage_error,
    validate_path,
)

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
    "has_unfinished_changes",
]

LOCK_FILE, DELETED_STEPS_FOLDER, STAGE_FOLDER, DONE_FILE = "lock", "steps.gone", "stage", "done"
"""The names of files and folders in `.tfdoctor`, and of the file that marks a finished step in its folder."""
_RESUME_HINT = (
    "Everything that is needed is kept: the next `tfdoctor fix` or `tfdoctor fix --undo` finishes it first."
)


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The result of an undo."""

    undone_steps: tuple[HistoryEntry, ...]
    """The steps that were undone, newest first."""
    restored_count: int
    """The number of restored paths."""
    unrestored_paths: tuple[str, ...]
    """The paths that were not restored, because another program changed them or their old contents are lost."""
    recovery_notes: tuple[str, ...] = ()
    """Sentences about changes that an interrupted earlier run left, and that were taken back."""


class Journal:
    """The journal of one environment, locked by this process.

    Create it with `Journal.open`, and use it as a context manager.
    """

    def __init__(self, prefix: str) -> None:
        """Use `Journal.open` instead."""
        self._prefix = prefix
        self._folder = f"{prefix}/{STATE_FOLDER}"
        self._steps = f"{self._folder}/{STEPS_FOLDER}"
        self._lock = -1
        """The file descriptor of the lock; -1 if the lock is not held."""
        self._history = History()
        self._step: Step | None = None
        self.recovery_notes: tuple[str, ...] = ()
        """Sentences for the user about unfinished changes of a killed process, and how they were resolved."""

    @classmethod
    def open(cls, prefix: Path, *, on_wait: Callable[[str], None] | None = None) -> Journal:
        """Create or open the journal of an environment, and lock it.

        If another process holds the lock, `on_wait` is called once with a sentence, and this process waits. Changes that
        an earlier run did not finish are undone, and an unfinished undo is completed. Raise JournalError if that fails or
        if the journal cannot be created or read.
        """
        journal = cls(os.path.realpath(prefix))
        with _convert_os_errors(f"{prefix}: the journal of changes cannot be made"):
            journal._acquire(on_wait)
        try:
            with _convert_os_errors(f"{prefix}: what an earlier run left could not be finished"):
                journal._recover()
        except BaseException:
            journal._close()
            raise
        return journal

    @staticmethod
    def read_entries(prefix: Path) -> tuple[HistoryEntry, ...]:
        """Return the finished steps, oldest first, without locking or writing anything.

        Return an empty tuple if an undo has begun. Raise JournalError if the journal is damaged or cannot be read.
        """
        folder = f"{os.path.realpath(prefix)}/{STATE_FOLDER}"
        with _convert_os_errors(f"{prefix}: the journal of changes cannot be read"):
            if (
                not is_folder(folder)
                or read_undo(folder) is not None
                or os.path.lexists(f"{folder}/{DELETED_STEPS_FOLDER}")
            ):
                return ()
            history = read_history(folder)
            _check_complete(folder, history)
            return history.entries

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        """The finished steps, oldest first."""
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
        """Return the file descriptor of the lock.

        Pass it to child processes that change the environment (`pass_fds`). Then the journal stays locked until they
        end, even if this process is killed, and no other process undoes changes that they are still making.
        """
        return self._lock

    # -------- steps

    def begin_step(
        self, *, title: str, codes: Sequence[str] = (), paths: Sequence[Path] | None = None
    ) -> Step:
        """Take a snapshot and begin a step. The caller may change the environment after that.

        `paths` are the paths that the step may change; their parent folders may be created, too. With None, any path may
        change. Raise JournalError, with nothing changed, if the snapshot cannot be taken.
        """
        self._check_idle()
        scope = Scope(("",)) if paths is None else self._make_scope(paths)
        number = (
            max((*list_step_numbers(self._folder), *(entry.number for entry in self.entries)), default=0) + 1
        )
        folder = f"{self._steps}/{number}"
        entry = HistoryEntry(
            number=number,
            title=title,
            codes=tuple(codes),
            when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        try:
            with _convert_os_errors(
                f"{self._prefix}: what is there now could not be kept, so nothing was changed"
            ):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._steps, 0o700)
                os.mkdir(folder, 0o700)
                snapshot.take_snapshot(self._prefix, folder, title, scope)
                for folder_above in (self._steps, self._folder, self._prefix):
                    sync_path(folder_above)
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
        """Return the scope of a step: the paths, their parent folders, and the compiled files of source files.

        Raise JournalError if a path is not in the environment.
        """
        roots: set[str] = set()
        for given_path in paths:
            absolute_path = os.path.join(self._prefix, given_path)
            # Resolve the folder but not the path itself, which may be a link that the step changes.
            real_folder = os.path.realpath(os.path.dirname(absolute_path))
            real_path = os.path.join(real_folder, os.path.basename(absolute_path))
            relative = os.path.relpath(real_path, self._prefix)
            try:
                roots.add(validate_path(relative))
            except ValueError as error:
                message = f"{clean_line(str(given_path))}: not a path in the environment {self._prefix}"
                raise JournalError(message) from error
        for path in sorted(roots):
            folder, _, name = path.rpartition("/")
            if name.endswith(".py"):
                for compiled_path in snapshot.scan_states(
                    self._prefix, Scope((f"{folder}/__pycache__".lstrip("/"),))
                ):
                    if os.path.basename(compiled_path).startswith(f"{name.removesuffix('.py')}."):
                        roots.add(compiled_path)
        folders = {
            "/".join(path.split("/")[:depth]) for path in roots for depth in range(1, path.count("/") + 1)
        }
        return Scope(tuple(sorted(roots)), tuple(sorted(folders - roots)))

    def _commit(self, entry: HistoryEntry) -> HistoryEntry:
        """Record a step as finished. If that fails, undo its changes and raise JournalError."""
        self._step = None
        try:
            with _convert_os_errors(
                f"{self._prefix}: the changes could not be recorded, so they were taken back"
            ):
                return self._record(entry)
        except BaseException as error:
            self._history = read_history(self._folder)
            if entry.number not in self._history:
                self._revert(entry)
                raise
            # history.json contains the step, so the commit succeeded and only later work failed.
            if not isinstance(error, JournalError):
                raise
            return self.entries[-1]

    def _record(self, entry: HistoryEntry) -> HistoryEntry:
        """Compare the environment with the snapshot, and add the step to history.json. This finishes the step."""
        _title, scope, old_entries = snapshot.read_snapshot(f"{self._steps}/{entry.number}")
        changes = compute_changes(
            self._prefix, self._steps, old_entries, snapshot.scan_states(self._prefix, scope)
        )
        self._give_to_owner(scope, old_entries)
        entry = replace(entry, changes=sum(not is_python_cache(change.path) for change in changes))
        history = add_step(self._history, entry, changes, old_entries)
        self._sync_changes(changes)
        write_history(self._folder, history)
        self._history = history
        with contextlib.suppress(OSError):
            self._delete_unneeded(entry.number)
        return entry

    def _give_to_owner(self, scope: Scope, old_entries: Mapping[str, SnapshotEntry]) -> None:
        """If this process is root, give the paths that the step created to the owners of their folders."""
        if os.geteuid() != 0:
            return
        for path in sorted(snapshot.scan_states(self._prefix, scope)):
            if path not in old_entries or old_entries[path].state.type == "file":
                absolute_path = f"{self._prefix}/{path}"
                old_entry = old_entries.get(path)
                # A new inode means that the step replaced the file.
                if old_entry is None or os.lstat(absolute_path).st_ino != old_entry.state.inode:
                    give_to_owner_of_folder(absolute_path)

    def _sync_changes(self, changes: list[PathChange]) -> None:
        """Sync the changed paths to the disk."""
        files = [
            f"{self._prefix}/{change.path}"
            for change in changes
            if change.after and change.after.type == "file"
        ]
        folders = {os.path.dirname(f"{self._prefix}/{change.path}") for change in changes}
        readable = [path for path in files if os.access(path, os.R_OK)]  # a file may have no read permission
        sync_paths([*readable, *filter(is_folder, folders)])

    def _delete_unneeded(self, number: int) -> None:
        """Delete the files of a finished step that undo does not need.

        The manifest is deleted last, because its absence means that all other files were deleted.
        """
        folder = f"{self._steps}/{number}"
        if not os.path.lexists(f"{folder}/{MANIFEST_FILE}"):
            return
        write_atomically(f"{folder}/{DONE_FILE}", b"", is_private=True)
        needed = {change.kept.path for change in self._history.changes.values() if change.kept is not None}
        files = f"{number}/{CONTENTS_FOLDER}"
        for folder_name in (
            os.listdir(f"{self._steps}/{files}") if is_folder(f"{self._steps}/{files}") else []
        ):
            content_folder = f"{self._steps}/{files}/{folder_name}"
            if not is_folder(content_folder):
                continue
            for name in os.listdir(content_folder):
                if f"{files}/{folder_name}/{name}" not in needed:
                    os.unlink(f"{content_folder}/{name}")
            with contextlib.suppress(OSError):
                os.rmdir(content_folder)
        os.unlink(f"{folder}/{MANIFEST_FILE}")

    def _revert(self, entry: HistoryEntry) -> None:
        """Undo a step that was not committed. Raise JournalError if some paths cannot be restored."""
        self._step = None
        with _convert_os_errors(f"{self._prefix}: the changes could not be taken back", hint=_RESUME_HINT):
            _title, _restored_count, lost_paths = self._roll_back(entry.number)
        if lost_paths:
            message = (
                f"“{clean_line(entry.title)}” was undone, but not completely.{_describe_lost(lost_paths)}"
            )
            raise JournalError(message)

    def _roll_back(self, number: int) -> tuple[str, int, list[str]]:
        """Restore the state before a step, and delete the step.

        Return (title of the step, number of restored paths, paths that could not be restored).
        """
        title, scope, entries = snapshot.read_snapshot(f"{self._steps}/{number}")
        changes = snapshot.compare_with_snapshot(
            self._prefix, entries, snapshot.scan_states(self._prefix, scope)
        )
        changed_paths = {change.path for change in changes}
        valid_pyc = {
            path: (entry.state.size, entry.state.mtime_ns)
            for path, entry in entries.items()
            if path.endswith(".pyc") and path not in changed_paths
        }
        contents = SavedContents(self._steps)
        restorer = Restorer(
            self._prefix, self._stage, contents, changes, valid_pyc=valid_pyc, includes_pyc=scope.is_whole
        )
        restorer.apply()
        self._delete_step(number)
        # A folder that was created for one of the paths is not lost if another program uses it now.
        lost_paths = [path for path in restorer.unrestored if scope.is_whole or path in entries]
        restored_paths = changed_paths - set(restorer.unrestored)
        return title, sum(not is_python_cache(path) for path in restored_paths), lost_paths

    def _delete_step(self, number: int) -> None:
        """Delete an unfinished step.

        The manifest is deleted first: a step without one counts as not begun.
        """
        folder = f"{self._steps}/{number}"
        if is_folder(folder):
            remove_path(f"{folder}/{MANIFEST_FILE}")
            sync_path(folder)
            remove_path(folder)

    # -------- undo

    def undo(self, force: bool = False) -> UndoResult:
        """Undo all steps.

        Raise JournalError, with nothing changed, if another program changed the same paths or old contents are lost.
        With `force` these paths are not restored, and `UndoResult.unrestored` lists them.
        """
        self._check_idle()
        history = self._history
        if not history.entries:
            return UndoResult(undone_steps=(), restored_count=0, unrestored_paths=())
        try:
            with _convert_os_errors(f"{self._prefix}: nothing was taken back"):
                externally_changed, lost_paths, skipped = find_conflicts(
                    self._prefix, history, SavedContents(self._steps)
                )
                if not force:
                    require_no_conflicts(externally_changed, lost_paths)
                restorer = self._make_restorer(skipped)
                restorer.stage_files()
                write_undo(self._folder, skipped)
        except BaseException:
            for name in (UNDO_FILE, STAGE_FOLDER):
                with contextlib.suppress(OSError):
                    remove_path(f"{self._folder}/{name}")
            raise
        with _convert_os_errors(f"{self._prefix}: undoing the changes was interrupted", hint=_RESUME_HINT):
            restorer.apply()
            self._delete_history()
        unrestored = {*externally_changed, *lost_paths, *restorer.unrestored}
        changed_paths = {path for path in history.changes if not is_python_cache(path)}
        return UndoResult(
            undone_steps=history.entries[::-1],
            restored_count=len(changed_paths - unrestored),
            unrestored_paths=tuple(sorted(unrestored)),
        )

    @property
    def _stage(self) -> str:
        """The temporary folder for files that are being restored."""
        return f"{self._folder}/{STAGE_FOLDER}"

    def _make_restorer(self, skipped: set[str]) -> Restorer:
        """Return a restorer for all paths of the history except `skipped`."""
        history = self._history
        changes = [change for path, change in history.changes.items() if path not in skipped]
        contents = SavedContents(self._steps)
        return Restorer(self._prefix, self._stage, contents, changes, valid_pyc=history.valid_pyc)

    def _delete_history(self) -> None:
        """Mark the undo as finished with one rename, then delete the journal's files."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._steps, f"{self._folder}/{DELETED_STEPS_FOLDER}")
        sync_path(self._folder)
        self._history = History()
        for name in (HISTORY_FILE, UNDO_FILE, DELETED_STEPS_FOLDER):
            remove_path(f"{self._folder}/{name}")

    # -------- recovery

    def _recover(self) -> None:
        """Read the history, and resolve the unfinished changes of a killed process."""
        if os.path.lexists(f"{self._folder}/{DELETED_STEPS_FOLDER}"):
            self._delete_history()
        self._history = read_history(self._folder)
        skipped_paths = read_undo(self._folder)
        for path in (
            self._stage,
            *(get_unfinished_path(f"{self._folder}/{name}") for name in (HISTORY_FILE, UNDO_FILE)),
        ):
            remove_path(path)
        messages = [] if skipped_paths is None else [self._finish_undo(skipped_paths)]
        _check_complete(self._folder, self._history)
        for number in reversed(list_step_numbers(self._folder)):
            if number in self._history:
                with contextlib.suppress(OSError):
                    self._delete_unneeded(number)
            elif os.path.lexists(f"{self._steps}/{number}/{MANIFEST_FILE}"):
                title, count, lost_paths = self._roll_back(number)
                messages.append(
                    f"“{clean_line(title)}” had been interrupted: what it had done was taken back "
                    f"({_format_count(count)})." + _describe_lost(lost_paths)
                )
            else:
                remove_path(f"{self._steps}/{number}")  # a step without a manifest changed nothing
        self.recovery_notes = tuple(messages)

    def _finish_undo(self, skipped: set[str]) -> str:
        """Finish an interrupted undo, and return a sentence about it for the user.

        Paths that another program changed after the interruption are not restored.
        """
        changes = [change for path, change in self._history.changes.items() if not is_python_cache(path)]
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
        """Return whether an interrupted undo may have left the path in its current state."""
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
        """Create the journal's folder and take the lock. Raise JournalError if a path is not a folder."""
        if not is_folder(self._prefix):
            message = f"{self._prefix}: not a folder, so not an environment"
            raise JournalError(message)

        def make_folder() -> None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            with contextlib.suppress(FileNotFoundError):  # another process may delete it in between
                if not stat.S_ISDIR(os.lstat(self._folder).st_mode):
                    raise make_damage_error(self._folder, "not a folder")

        def report_wait(handle: int) -> None:
            if on_wait is not None:
                on_wait(_describe_wait(handle))

        self._lock = acquire_lock(f"{self._folder}/{LOCK_FILE}", make_folder, report_wait)
        with contextlib.suppress(OSError):  # on a full disk the process ID is omitted
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _close(self) -> None:
        """Delete the journal if it is empty, and release the lock."""
        if self._lock < 0:
            return
        try:
            with contextlib.suppress(OSError):
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(self._steps)  # fails if there is a step
                if not any(
                    os.path.lexists(f"{self._folder}/{name}")
                    for name in (HISTORY_FILE, UNDO_FILE, DELETED_STEPS_FOLDER)
                ):
                    os.unlink(f"{self._folder}/{LOCK_FILE}")
                    os.rmdir(self._folder)
        finally:
            os.close(self._lock)
            self._lock = -1


class Step:
    """A step in progress, which ends with `commit` or `rollback`.

    As a context manager it rolls back if the block raises an exception.
    """

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
        """Undo the changes. Raise JournalError if that fails or some paths cannot be restored."""
        self._mark_finished()
        self._rollback()

    def _mark_finished(self) -> None:
        """Record that the step has ended. Raise JournalError if it has already ended."""
        if self._finished:
            raise JournalError("The step is over already.")
        self._finished = True


def has_unfinished_changes(prefix: Path) -> bool:
    """Return whether a step or an undo is unfinished, because its process was killed or is still running.

    This only reads. Raise JournalError if the journal cannot be read.
    """
    folder = f"{os.path.realpath(prefix)}/{STATE_FOLDER}"
    with _convert_os_errors(f"{prefix}: the journal of changes cannot be read"):
        if not is_folder(folder):
            return False
        if os.path.lexists(f"{folder}/{DELETED_STEPS_FOLDER}"):
            return False
        if os.path.lexists(f"{folder}/{UNDO_FILE}"):
            return True
        history = read_history(folder)
        return any(number not in history for number in list_step_numbers(folder))


# ---------------------------------------------------------------- messages


def _format_count(count: int) -> str:
    return "1 path" if count == 1 else f"{count} paths"


def _describe_lost(paths: list[str]) -> str:
    """Return a sentence about the paths that could not be restored; empty if all were restored."""
    if not paths:
        return ""
    return f" Not as before, for a program wrote into the files themselves or made others there: {join_paths(paths)}."


def _describe_wait(handle: int) -> str:
    """Return the message about waiting, with the ID of the process that holds the lock, if known."""
    with contextlib.suppress(OSError):
        number = os.pread(handle, 20, 0).strip()
        if number.isdigit():
            return f"Another tfdoctor (process {int(number)}) is changing this environment; waiting for it."
    return "Another tfdoctor is changing this environment; waiting for it."


@contextlib.contextmanager
def _convert_os_errors(problem: str, *, hint: str = "") -> Iterator[None]:
    """Convert an OSError to a JournalError that begins with `problem`."""
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
    """Raise JournalError if history.json lacks a finished step, because that step cannot be undone."""
    for number in list_step_numbers(folder):
        step = f"{folder}/{STEPS_FOLDER}/{number}"
        is_done = os.path.lexists(f"{step}/{DONE_FILE}") and not os.path.lexists(f"{step}/{MANIFEST_FILE}")
        if is_done and number not in history:
            path, reason = f"{folder}/{HISTORY_FILE}", f"step {number} is missing"
            raise make_damage_error(path, reason)
