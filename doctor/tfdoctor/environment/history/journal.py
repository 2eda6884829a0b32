"""The journal of an environment: what tfdoctor changed in it, and how all of it is taken back.

It lies in `.tfdoctor` in the environment:

    lock                    held by the one process at work; its number is in it
    steps/N/record.json     "begun": changes may have been made, all that is needed to take them back is beside it;
                            "committed": the changes, with both sides of each
    steps/N/…               the snapshot (snapshot.py)
    steps/N.gone            a step that is being deleted
    undo.json               an undo of these steps was begun

A step writes its snapshot and the record "begun" to the disk before the first change. So a process that is killed at
any point leaves one of: nothing begun (the folder goes), a begun step (all changes are taken back), a committed one
(it is kept), an undo that was begun (it is finished). Whoever opens the journal next does that first.

Records are read as untrusted: the environment may be somebody else's. Paths stay below it and pass through no links.
"""

# Paths are plain strings, as in snapshot.py.
# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import contextlib
import errno
import os
import stat
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tfdoctor.environment.history import snapshot
from tfdoctor.environment.history.conflicts import conflicts, is_now, refuse, some
from tfdoctor.environment.history.records import (
    NUMBER,
    STEPS,
    UNDO,
    Change,
    Entry,
    Record,
    Undone,
    is_folder,
    numbers,
    read_record,
    read_undo,
    record_of,
    write_record,
    write_undo,
)
from tfdoctor.environment.history.restore import MANY, STAGE, Bytes, Restorer
from tfdoctor.environment.history.snapshot import (
    KEPT_PACK,
    LINKS,
    MANIFEST,
    OWN,
    PACK,
    JournalError,
    Scope,
    State,
    Target,
    checked_path,
    damaged,
    is_derived,
    look,
)
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["Change", "Entry", "Journal", "JournalError", "State", "Step", "Undone", "pending"]

LOCK = "lock"
_AGAIN = (
    "Everything that is needed is kept: the next `tfdoctor fix` or `tfdoctor fix --undo` finishes it first."
)


# ---------------------------------------------------------------- the journal


class Journal:
    """The journal of one environment, held by this process alone. Made by `Journal.open`, left by `with`."""

    def __init__(self, prefix: str) -> None:
        """For `open`."""
        self._prefix = prefix
        self._own = f"{prefix}/{OWN}"
        self._lock = -1
        self._records: list[Record] = []
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
        with _told(f"{prefix}: the journal of changes cannot be made"):
            journal._acquire(on_wait)
        try:
            with _told(f"{prefix}: what an earlier run left could not be finished"):
                journal._recover()
        except BaseException:
            journal._close()
            raise
        return journal

    @staticmethod
    def read(prefix: Path) -> tuple[Entry, ...]:
        """The committed steps, oldest first; takes no lock and writes nothing. Raises JournalError where damaged."""
        own = f"{os.path.realpath(prefix)}/{OWN}"
        with _told(f"{prefix}: the journal of changes cannot be read"):
            if not is_folder(own):
                return ()
            undone = set(read_undo(own) or ())
            found = []
            for number in numbers(own):
                record = read_record(own, number)
                if record is not None and record.state == "committed" and number not in undone:
                    found.append(record.entry)
            return tuple(found)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The committed steps, oldest first."""
        return tuple(record.entry for record in self._records)

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
        """The lock. Give it to children that change the environment (`pass_fds`): where we are killed and they go on,
        the journal stays held until they end, and nobody takes back what they are still writing.
        """
        return self._lock

    # -------- steps

    def step(self, *, title: str, codes: Sequence[str] = (), paths: Sequence[Path] | None = None) -> Step:
        """Begin a step: from now on the environment may be changed.

        `paths` None: anywhere in it. Else only at these (and in folders that have to be made for them). Raises
        JournalError, with nothing changed, where the way back cannot be secured.
        """
        if self._step is not None:
            raise JournalError("A step is still under way; it has to be committed or rolled back first.")
        scope = Scope(("",)) if paths is None else self._scope(paths)
        number = max(numbers(self._own), default=0) + 1
        folder = f"{self._own}/{STEPS}/{number}"
        entry = Entry(number, title, tuple(codes), _now(), ())
        try:
            with _told(f"{self._prefix}: what is there now could not be kept, so nothing was changed"):
                os.mkdir(folder, 0o700)
                snapshot.take(self._prefix, folder, scope)
                write_record(folder, Record("begun", entry, {}, {}))
                for above in (f"{self._own}/{STEPS}", self._own, self._prefix):
                    snapshot.fsync(above)
        except BaseException:
            with contextlib.suppress(OSError):
                self._drop(number)
            raise
        self._step = Step(lambda: self._commit(entry), lambda: self._take_back(entry))
        return self._step

    def _scope(self, paths: Sequence[Path]) -> Scope:
        """What a step on these paths looks at: them, the folders above, and what Python compiled of them."""
        roots: set[str] = set()
        for given in paths:
            place = os.path.join(self._prefix, given)
            real = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
            below = os.path.relpath(real, self._prefix)
            try:
                roots.add(checked_path(below))
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

    def _commit(self, entry: Entry) -> Entry:
        self._step = None
        try:
            with _told(f"{self._prefix}: the changes could not be recorded, so they were taken back"):
                return self._record(entry)
        except BaseException as error:
            record = read_record(self._own, entry.number)
            if record is None or record.state == "begun":
                self._take_back(entry)
                raise
            if record not in self._records:
                self._records.append(record)
            if not isinstance(error, JournalError):
                raise  # interrupted after it was committed
            return record.entry

    def _take_back(self, entry: Entry) -> None:
        self._step = None
        with _told(f"{self._prefix}: the changes could not be taken back", hint=_AGAIN):
            _, lost = self._roll_back(entry)
        if lost:
            message = f"“{clean_line(entry.title)}” was taken back, but not wholly.{_lost(lost)}"
            raise JournalError(message)

    def _record(self, entry: Entry) -> Entry:
        """Compare, and write the record "committed": the one moment from which the step counts."""
        folder = f"{self._own}/{STEPS}/{entry.number}"
        record = record_of(self._prefix, folder, entry)
        self._settle(record.entry)
        write_record(folder, record)
        self._records.append(record)
        with contextlib.suppress(OSError):
            self._prune(record)
        return record.entry

    def _settle(self, entry: Entry) -> None:
        """What was changed goes to the disk before the record that says so."""
        if len(entry.changes) > MANY:
            os.sync()
            return
        for change in entry.changes:
            place = f"{self._prefix}/{change.path}"
            if change.after is not None and change.after.type == "file":
                with contextlib.suppress(PermissionError):  # ours, but not to be read
                    snapshot.fsync(place, folder=False)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                snapshot.fsync(os.path.dirname(place))

    def _prune(self, record: Record) -> None:
        """Delete what the record does not need. The manifest goes last: while it is there, it is not all done."""
        folder = f"{self._own}/{STEPS}/{record.entry.number}"
        if not os.path.lexists(f"{folder}/{MANIFEST}"):
            return
        needed = {str(kept.link) for kept in record.kept.values() if kept.link is not None}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{folder}/{PACK}")
        for shelf in os.listdir(f"{folder}/{LINKS}") if is_folder(f"{folder}/{LINKS}") else []:
            place = f"{folder}/{LINKS}/{shelf}"
            if not is_folder(place):
                continue
            for name in os.listdir(place):
                if name not in needed:
                    os.unlink(f"{place}/{name}")
            with contextlib.suppress(OSError):
                os.rmdir(place)
        os.unlink(f"{folder}/{MANIFEST}")

    def _roll_back(self, entry: Entry) -> tuple[int, list[str]]:
        """Make everything what it was before a step; drop it. Number of paths, and those whose bytes are lost."""
        folder = f"{self._own}/{STEPS}/{entry.number}"
        scope, rows = snapshot.read_manifest(folder)
        found = snapshot.scan(self._prefix, scope)
        targets = []
        for path, row, _ in snapshot.differences(self._prefix, rows, found):
            before = None if row is None else snapshot.state_of(row.seen, row.sha256)
            targets.append(Target(path, before, None if row is None else row.kept))
        paths = {target.path for target in targets}
        compiled = {
            path: (row.seen.size, row.seen.mtime_ns)
            for path, row in rows.items()
            if path.endswith(".pyc") and path not in paths
        }
        restorer = Restorer(self._prefix, Bytes(folder, PACK), targets, valid_pyc=compiled, exact=scope.whole)
        restorer.apply()
        self._drop(entry.number)
        # A folder that was made for a named path stays where somebody else uses it by now.
        lost = [path for path in restorer.left if scope.whole or path in rows]
        return sum(not is_derived(path) for path in paths - set(restorer.left)), lost

    def _drop(self, number: int) -> None:
        """Delete a step: at once for whoever looks, then piece by piece."""
        place = f"{self._own}/{STEPS}/{number}"
        gone = f"{place}.gone"
        snapshot.remove_tree(gone)
        try:
            os.rename(place, gone)
        except FileNotFoundError:
            return
        snapshot.fsync(f"{self._own}/{STEPS}")
        snapshot.remove_tree(gone)

    # -------- undo

    def undo(self, force: bool = False) -> Undone:
        """Take back all committed steps, newest first.

        Raises JournalError, with nothing changed, where somebody changed paths since, or bytes that are needed are
        lost; with `force` these paths are left as they are and told in `Undone.kept`.
        """
        if self._step is not None:
            raise JournalError("A step is still under way; it has to be committed or rolled back first.")
        if not self._records:
            return Undone((), 0, ())
        newest_first = self._records[::-1]
        stages = [f"{self._own}/{STEPS}/{record.entry.number}/{STAGE}" for record in newest_first]
        undone = tuple(record.entry for record in newest_first)
        try:
            with _told(f"{self._prefix}: nothing was taken back"):
                left, foreign, lost = conflicts(self._prefix, self._own, newest_first)
                if not force:
                    refuse(foreign, lost)
                restorers = [self._restorer(record, left[record.entry.number]) for record in newest_first]
                for restorer in restorers:
                    restorer.stage()
                write_undo(self._own, left)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(f"{self._own}/{UNDO}")
            for stage in stages:
                with contextlib.suppress(OSError):
                    snapshot.remove_tree(stage)
            raise
        with _told(
            f"{self._prefix}: taking the changes back stopped half way",
            hint=_AGAIN,
        ):
            kept = {path for paths in left.values() for path in paths}
            for record, restorer in zip(newest_first, restorers, strict=True):
                restorer.apply()
                kept.update(restorer.left)
                self._drop(record.entry.number)
                self._records.remove(record)
            self._end_undo()
        changed = {change.path for entry in undone for change in entry.changes if not is_derived(change.path)}
        return Undone(undone, len(changed - kept), tuple(sorted(kept)))

    def _restorer(self, record: Record, left: set[str]) -> Restorer:
        targets = [
            Target(change.path, change.before, record.kept.get(change.path))
            for change in record.entry.changes
            if change.path not in left
        ]
        kept = Bytes(f"{self._own}/{STEPS}/{record.entry.number}", KEPT_PACK)
        return Restorer(self._prefix, kept, targets, valid_pyc=record.compiled)

    def _end_undo(self) -> None:
        os.unlink(f"{self._own}/{UNDO}")
        snapshot.fsync(self._own)

    # -------- what others left

    def _recover(self) -> None:
        """Finish what a killed process began; then read the entries."""
        steps = f"{self._own}/{STEPS}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(steps, 0o700)
        if not is_folder(steps):
            raise damaged(steps, "not a folder")
        for name in os.listdir(steps):
            if name.endswith(".gone") and NUMBER.fullmatch(name.removesuffix(".gone")):
                snapshot.remove_tree(f"{steps}/{name}")
        told: list[str] = []
        plan = read_undo(self._own)
        if plan is not None:
            told.append(self._finish_undo(plan))
        for number in reversed(numbers(self._own)):
            record = read_record(self._own, number)
            if record is None:
                snapshot.remove_tree(f"{steps}/{number}")  # never begun: nothing was changed
            elif record.state == "begun":
                count, lost = self._roll_back(record.entry)
                told.append(
                    f"“{clean_line(record.entry.title)}” had been stopped half way: what it had done was taken back "
                    f"({_count(count)})." + _lost(lost)
                )
            else:
                self._records.insert(0, record)
                with contextlib.suppress(OSError):
                    self._prune(record)
                    snapshot.remove_tree(f"{steps}/{number}/{STAGE}")
        self.recovered = tuple(told)

    def _finish_undo(self, plan: dict[int, set[str]]) -> str:
        """Go on with an undo. What somebody changed after it was stopped is left."""
        kept = {path for paths in plan.values() for path in paths}
        count = 0
        for number, left in plan.items():
            record = read_record(self._own, number)
            if record is None:
                self._drop(number)  # taken back before
                continue
            for change in record.entry.changes:
                if not is_derived(change.path) and not self._half_way(change):
                    left.add(change.path)
            restorer = self._restorer(record, left)
            restorer.apply()
            kept |= left | set(restorer.left)
            count += sum(not is_derived(c.path) and c.path not in kept for c in record.entry.changes)
            self._drop(number)
        self._end_undo()
        sentence = f"Taking the changes back had been stopped half way and was finished ({_count(count)})."
        return sentence + (f" Left as they are, changed by somebody else: {some(kept)}." if kept else "")

    def _half_way(self, change: Change) -> bool:
        """Whether a path is as an undo that was stopped may have left it."""
        info = look(self._prefix, change.path)
        if info is None:
            return True
        if stat.S_ISDIR(info.st_mode):
            return any(state is not None and state.type == "dir" for state in (change.before, change.after))
        hashes: dict[str, str] = {}
        return any(
            is_now(self._prefix, change.path, state, hashes) for state in (change.before, change.after)
        )

    # -------- the lock

    def _acquire(self, on_wait: Callable[[str], None] | None) -> None:
        """Take the lock. Whoever leaves an empty journal deletes it: then we hold a lock nobody finds, and go again."""
        if os.name != "posix":  # pragma: no cover - Windows
            raise JournalError("Environments can be changed on Linux and macOS only.")
        import fcntl

        if not is_folder(self._prefix):
            message = f"{self._prefix}: not a folder, so not an environment"
            raise JournalError(message)
        while True:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._own, 0o700)
            if not is_folder(self._own) and os.path.lexists(self._own):
                raise damaged(self._own, "not a folder")
            try:
                handle = os.open(
                    f"{self._own}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
                )
            except FileNotFoundError:
                continue  # the folder was deleted meanwhile
            try:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if on_wait is not None:
                        on_wait(_waiting(handle))
                        on_wait = None
                    fcntl.flock(handle, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(handle), os.lstat(f"{self._own}/{LOCK}")):
                        self._lock, handle = handle, -1
                        break
            finally:
                if handle >= 0:
                    os.close(handle)
        with contextlib.suppress(OSError):  # a full disk: the number is a courtesy
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _close(self) -> None:
        """Leave the lock; an empty journal goes, the lock's file while it is still held."""
        if self._lock < 0:
            return
        try:
            with contextlib.suppress(OSError):
                os.rmdir(f"{self._own}/{STEPS}")  # only where no step is left
                os.unlink(f"{self._own}/{LOCK}")
                os.rmdir(self._own)
        finally:
            os.close(self._lock)
            self._lock = -1


class Step:
    """A step under way. `with step:` takes it back where the block raises; then `commit` or `rollback`."""

    def __init__(self, commit: Callable[[], Entry], rollback: Callable[[], None]) -> None:
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

    def commit(self) -> Entry:
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


def pending(prefix: Path) -> bool:
    """Whether a step or an undo is not finished: somebody is at work, or was killed. Writes nothing."""
    own = f"{os.path.realpath(prefix)}/{OWN}"
    with _told(f"{prefix}: the journal of changes cannot be read"):
        if not is_folder(own):
            return False
        if os.path.lexists(f"{own}/{UNDO}"):
            return True
        records = [read_record(own, number) for number in numbers(own)]
        return any(record is None or record.state == "begun" for record in records)


# ---------------------------------------------------------------- sentences


def _count(count: int) -> str:
    return "1 path" if count == 1 else f"{count} paths"


def _lost(paths: list[str]) -> str:
    if not paths:
        return ""
    return (
        f" Not as before, for a program wrote into the files themselves or made others there: {some(paths)}."
    )


# ---------------------------------------------------------------- the system


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _waiting(lock: int) -> str:
    with contextlib.suppress(OSError):
        number = os.pread(lock, 20, 0).strip()
        if number.isdigit():
            return f"Another tfdoctor (process {int(number)}) is changing this environment; waiting for it."
    return "Another tfdoctor is changing this environment; waiting for it."


@contextlib.contextmanager
def _told(what: str, *, hint: str = "") -> Iterator[None]:
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
