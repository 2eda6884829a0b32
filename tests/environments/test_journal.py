"""The journal: undo restores the environment and leaves changes by others."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Literal

import pytest

from environments import killer
from environments.killer import SITE, change, change_again, change_named, write
from environments.trees import assert_same, classify, commit_steps, list_changes, list_differing, list_tree
from tfdoctor.core.errors import ExitCode
from tfdoctor.environments.history import snapshot
from tfdoctor.environments.history.journal import Journal, JournalError, has_unfinished_changes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")


# ---------------------------------------------------------------- steps and undo


def test_entry_of_a_step_lists_the_changes(prefix: Path) -> None:
    with Journal.open(prefix) as journal:
        assert journal.recovery_notes == ()
        assert journal.entries == ()
        with journal.begin_step(title="Link the libraries", codes=("TFD205",)) as step:
            change(prefix)
        entry = step.commit()
        assert journal.entries == (entry,)
        changes = list_changes(prefix)
    assert Journal.read_entries(prefix) == (entry,)
    assert entry.changes == sum(not snapshot.is_python_cache(item.path) for item in changes) < len(changes)
    journal_folder = prefix / ".tfdoctor"
    assert {path.name for path in journal_folder.iterdir()} == {"history.json", "lock", "steps"}
    private = [journal_folder, *journal_folder.iterdir(), *(journal_folder / "steps").iterdir()]
    assert [path for path in private if path.stat().st_mode & 0o077] == []
    assert (entry.number, entry.title, entry.codes) == (1, "Link the libraries", ("TFD205",))
    kinds = {item.path: classify(item) for item in changes}
    assert kinds["bin/tool"] == "changed"
    assert kinds[f"{SITE}/gone"] == kinds[f"{SITE}/gone/below/b.bin"] == "removed"
    assert kinds[f"{SITE}/new/deep/file.py"] == kinds[f"{SITE}/renamed.py"] == "added"
    assert "lib64" not in kinds
    assert f"{SITE}/pkg/locked.txt" not in kinds
    item = next(item for item in changes if item.path == f"{SITE}/pkg/__init__.py")
    assert item.before is not None
    assert item.after is not None
    assert item.before.sha256 == hashlib.sha256(b"one = 1\n").hexdigest()
    assert item.after.sha256 == hashlib.sha256(b"two = 2\n").hexdigest()
    assert (item.before.mtime_ns, item.after.mtime_ns) == (1_000 * 10**9, 2_002 * 10**9)


def test_undo_restores_everything_and_removes_the_journal(prefix: Path) -> None:
    before = list_tree(prefix)
    commit_steps(prefix, change, change_again)
    assert list_tree(prefix) != before
    with Journal.open(prefix) as journal:
        undone = journal.undo()
        assert journal.entries == ()
    assert_same(prefix, before)
    assert [entry.title for entry in undone.undone_steps] == ["change_again", "change"]
    assert undone.unrestored_paths == ()
    assert undone.restored_count > 10
    assert not (prefix / ".tfdoctor").exists()


def test_committed_step_keeps_only_changed_files(prefix: Path) -> None:
    commit_steps(prefix, change)
    copies = [
        path
        for path in (prefix / ".tfdoctor/steps/1/files").rglob("*")
        if path.is_file() and path.name != "done"
    ]
    removed = [prefix / SITE / "pkg" / "locked.txt"]
    assert removed[0].stat().st_nlink == 1
    assert 0 < len(copies) < 10
    assert not (prefix / ".tfdoctor/steps/1/manifest.json").exists()


def test_several_steps_keep_only_the_first_content(prefix: Path) -> None:
    name = f"{SITE}/pkg/__init__.py"
    for number in range(3):
        with Journal.open(prefix) as journal, journal.begin_step(title="write") as step:
            write(prefix / name, b"n = %d\n" % number, 3_000 + number)
            step.commit()
    (combined,) = list_changes(prefix)
    assert combined.before is not None
    assert combined.after is not None
    assert (combined.path, classify(combined)) == (name, "changed")
    assert combined.before.sha256 == hashlib.sha256(b"one = 1\n").hexdigest()
    assert combined.after.sha256 == hashlib.sha256(b"n = 2\n").hexdigest()
    copies = [
        path for path in (prefix / ".tfdoctor/steps").rglob("*") if path.is_file() and path.name != "done"
    ]
    assert [path.read_bytes() for path in copies] == [b"one = 1\n"]


def test_journal_without_steps_leaves_nothing(prefix: Path) -> None:
    before = list_tree(prefix)
    with Journal.open(prefix) as journal:
        assert journal.undo().undone_steps == ()
    assert not (prefix / ".tfdoctor").exists()
    assert Journal.read_entries(prefix) == ()
    assert not has_unfinished_changes(prefix)
    assert_same(prefix, before)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_exception_undoes_the_step(prefix: Path, error: type[BaseException]) -> None:
    before = list_tree(prefix)

    def fail() -> None:
        with Journal.open(prefix) as journal, journal.begin_step(title="change"):
            change(prefix)
            assert has_unfinished_changes(prefix)
            raise error

    with pytest.raises(error):
        fail()
    assert_same(prefix, before)
    assert not (prefix / ".tfdoctor").exists()


def test_uncommitted_step_is_undone(prefix: Path) -> None:
    before = list_tree(prefix)
    with Journal.open(prefix) as journal:
        with journal.begin_step(title="change"):
            change(prefix)
        with pytest.raises(JournalError, match="under way"):
            journal.begin_step(title="another")
        with pytest.raises(JournalError, match="under way"):
            journal.undo()
    assert_same(prefix, before)


def test_committed_step_cannot_be_rolled_back(prefix: Path) -> None:
    with Journal.open(prefix) as journal:
        with journal.begin_step(title="change") as step:
            change(prefix)
        step.commit()
        with pytest.raises(JournalError, match="over"):
            step.rollback()
        assert len(journal.entries) == 1


def test_step_with_named_paths_keeps_only_them(prefix: Path) -> None:
    before = list_tree(prefix)
    with Journal.open(prefix) as journal:
        names = [prefix / name for name in killer.NAMED]
        with journal.begin_step(title="change", paths=names) as step:
            change_named(prefix)
            write(prefix / "not-named", b"of somebody else", 5)
        step.commit()
        assert {change.path for change in list_changes(prefix)} == {
            *killer.NAMED,
            "etc",
            "etc/made",
            "etc/made/for",
        }
        journal.undo()
    before["not-named"] = list_tree(prefix)["not-named"]
    assert_same(prefix, before)


@pytest.mark.parametrize("kind", ["dir", "link"])
def test_copied_file_may_become_a_folder_or_link(tmp_path: Path, kind: Literal["dir", "link"]) -> None:
    """A folder in memory can be as small as a file; it must not be read as one."""
    path = tmp_path / "some.pth"
    if kind == "dir":
        path.mkdir()
    else:
        path.symlink_to("/")
    before = snapshot.SnapshotEntry(
        snapshot.PathState("file", 0o644, 60, 1, sha256="0" * 64), snapshot.SavedFile(1, 0)
    )
    after = snapshot.PathState(kind, 0o644, 60, 1, target="/" if kind == "link" else None)
    (changed,) = snapshot.compare_with_snapshot(str(tmp_path), {path.name: before}, {path.name: after})
    assert (changed.before, changed.after) == (before.state, after)


def test_exception_undoes_named_paths(prefix: Path) -> None:
    before = list_tree(prefix)
    with (
        contextlib.suppress(RuntimeError),
        Journal.open(prefix) as journal,
        journal.begin_step(title="change", paths=[Path(name) for name in killer.NAMED]),
    ):
        change_named(prefix)
        raise RuntimeError
    assert_same(prefix, before)


def test_named_path_through_a_link_is_resolved(prefix: Path) -> None:
    before = list_tree(prefix)
    name = SITE.replace("lib", "lib64", 1) + "/some.pth"
    with Journal.open(prefix) as journal:
        step = journal.begin_step(title="change", paths=[prefix / name])
        (prefix / name).write_bytes(b"written in place")
        step.commit()
        assert [change.path for change in list_changes(prefix)] == [f"{SITE}/some.pth"]
        journal.undo()
    assert_same(prefix, before)


@pytest.mark.parametrize("name", ["..", "../beside", "/etc/passwd", ".", ".tfdoctor/lock"])
def test_named_paths_outside_are_refused(prefix: Path, name: str) -> None:
    with Journal.open(prefix) as journal, pytest.raises(JournalError, match="not a path in"):
        journal.begin_step(title="change", paths=[prefix / name])
    assert not (prefix / ".tfdoctor").exists()


def test_names_with_any_bytes_are_restored(prefix: Path) -> None:
    names = [b"not utf-8 \xff", b"new\nline", b"back\\slash", b'"quoted"', "ü".encode()]
    for name in names:
        Path(os.fsdecode(os.fsencode(prefix) + b"/" + name)).write_bytes(name)
    before = list_tree(prefix)
    commit_steps(
        prefix, lambda top: [Path(os.fsdecode(os.fsencode(top) + b"/" + name)).unlink() for name in names]
    )
    with Journal.open(prefix) as journal:
        journal.undo()
    assert_same(prefix, before)


# ---------------------------------------------------------------- random trees


class RandomChanges:
    """Random operations on a tree, as programs do them."""

    def __init__(self, seed: int, prefix: Path) -> None:
        self.dice = random.Random(seed)
        self.prefix = prefix
        self.clock = itertools.count(10_000 + seed)

    def name(self) -> str:
        return self.dice.choice("abcdefgh") + self.dice.choice(["", ".py", ".so", ".pth"])

    def folders(self) -> list[Path]:
        paths = [self.prefix]
        for folder, folders, _ in os.walk(self.prefix):
            if ".tfdoctor" in folders:
                folders.remove(".tfdoctor")
            paths += [Path(folder) / name for name in folders if not (Path(folder) / name).is_symlink()]
        return paths

    def paths(self) -> list[Path]:
        return [path for folder in self.folders() for path in folder.iterdir() if path.name != ".tfdoctor"]

    def add(self) -> None:
        path = self.dice.choice(self.folders()) / self.name()
        if path.is_dir() and not path.is_symlink():
            return
        path.unlink(missing_ok=True)
        choice = self.dice.randrange(4)
        if choice == 0:
            path.mkdir(self.dice.choice([0o755, 0o700, 0o775]))
        elif choice == 1:
            path.symlink_to(self.dice.choice(["a", "../b", "/usr", ".", "nowhere"]))
        else:
            size = self.dice.choice([0, 1, 50, 70_000])
            write(path, self.dice.randbytes(size), next(self.clock), self.dice.choice([0o644, 0o755, 0o400]))

    def remove(self) -> None:
        path = self.dice.choice(self.paths() or [self.prefix / "none"])
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def rename(self) -> None:
        path = self.dice.choice(self.paths() or [self.prefix / "none"])
        with contextlib.suppress(OSError):
            path.rename(self.dice.choice(self.folders()) / self.name())

    def mode(self) -> None:
        path = self.dice.choice(self.paths() or [self.prefix / "none"])
        if path.exists() and not path.is_symlink():
            path.chmod(self.dice.choice([0o755, 0o700, 0o750]))

    def write_in_place(self) -> None:
        """Overwrite a file that the journal copies, or a new one; other files would lose their content."""
        files = [path for path in self.paths() if path.is_file() and not path.is_symlink()]
        files = [path for path in files if path.stat().st_nlink == 1 and os.access(path, os.W_OK)]
        files = [
            path for path in files if path.suffix == ".pth" or path.parts[len(self.prefix.parts)] == "bin"
        ]
        if files:
            with self.dice.choice(files).open("r+b") as stream:
                stream.write(b"in place")

    def apply(self, count: int) -> None:
        for _ in range(count):
            kinds = [self.add, self.add, self.add, self.remove, self.rename, self.mode, self.write_in_place]
            self.dice.choice(kinds)()


@pytest.mark.parametrize("seed", range(25))
def test_random_steps_are_undone(temp_folder: Path, seed: int) -> None:
    prefix = temp_folder / "env"
    (prefix / "bin").mkdir(parents=True)
    dice = RandomChanges(seed, prefix)
    dice.apply(60)
    states = [list_tree(prefix)]
    with Journal.open(prefix) as journal:
        for number in range(3):
            with journal.begin_step(title=f"step {number}") as step:
                dice.apply(12)
            step.commit()
            states.append(list_tree(prefix))
            step = journal.begin_step(title="rolled back")
            dice.apply(12)
            step.rollback()
            assert_same(prefix, states[-1])
    with Journal.open(prefix) as journal:
        assert len(journal.entries) == 3
        for entry, (old, new) in zip(journal.entries, itertools.pairwise(states), strict=True):
            assert entry.changes == len(list_differing(old, new))
        assert [old.path for old in list_changes(prefix) if old.before != old.after] == list_differing(
            states[0], states[-1]
        )
        undone = journal.undo()
    assert undone.unrestored_paths == ()
    assert_same(prefix, states[0])
    assert not (prefix / ".tfdoctor").exists()


# ---------------------------------------------------------------- changes by others


def test_conflict_changes_nothing(prefix: Path) -> None:
    commit_steps(prefix, change)
    (prefix / "bin" / "tool").write_bytes(b"mine")
    (prefix / SITE / "single.py").write_bytes(b"mine")
    (prefix / SITE / "renamed.py").chmod(0o600)
    current = list_tree(prefix)
    with Journal.open(prefix) as journal:
        with pytest.raises(JournalError) as caught:
            journal.undo()
        assert len(journal.entries) == 1
    for name in ("bin/tool", f"{SITE}/single.py", f"{SITE}/renamed.py"):
        assert name in caught.value.message
    assert "--even-if-changed" in caught.value.hint
    assert caught.value.exit_code is ExitCode.IMPOSSIBLE
    assert not has_unfinished_changes(prefix)
    assert_same(prefix, current)


def test_force_keeps_changes_by_others(prefix: Path) -> None:
    before = list_tree(prefix)
    commit_steps(prefix, change, change_again)
    (prefix / "bin" / "tool").write_bytes(b"mine")
    (prefix / SITE / "renamed.py").write_bytes(b"mine too")
    with Journal.open(prefix) as journal:
        undone = journal.undo(force=True)
    assert undone.unrestored_paths == ("bin/tool", f"{SITE}/renamed.py")
    current = list_tree(prefix)
    for name in undone.unrestored_paths:
        before[name] = current[name]
    assert (prefix / "bin" / "tool").read_bytes() == b"mine"
    assert_same(prefix, before)


def test_change_between_two_steps_is_a_conflict(prefix: Path) -> None:
    commit_steps(prefix, change)
    (prefix / "bin" / "tool").write_bytes(b"mine")
    commit_steps(prefix, change_again)
    with Journal.open(prefix) as journal:
        with pytest.raises(JournalError, match="bin/tool"):
            journal.undo()
        assert journal.undo(force=True).unrestored_paths == ("bin/tool",)
    assert (prefix / "bin" / "tool").read_bytes() == b"mine"


def test_folder_to_replace_with_files_of_others_is_a_conflict(prefix: Path) -> None:
    commit_steps(prefix, change)
    write(prefix / "dangling" / "mine", b"mine", 5)
    with Journal.open(prefix) as journal:
        with pytest.raises(JournalError, match="dangling"):
            journal.undo()
        assert journal.undo(force=True).unrestored_paths == ("dangling",)
    assert (prefix / "dangling" / "mine").read_bytes() == b"mine"


def test_manually_restored_files_are_no_conflict(prefix: Path) -> None:
    before = list_tree(prefix)
    commit_steps(prefix, change)
    write(prefix / SITE / "pkg" / "__init__.py", b"one = 1\n", 9_999)
    (prefix / SITE / "renamed.py").unlink()
    with Journal.open(prefix) as journal:
        assert journal.undo().unrestored_paths == ()
    assert_same(prefix, before)


def test_bytecode_is_never_a_conflict(prefix: Path) -> None:
    before = list_tree(prefix)
    commit_steps(prefix, change)
    site = prefix / SITE
    write(site / "pkg" / "__pycache__" / "__init__.cpython-311.pyc", b"compiled later", 5)
    write(site / "pkg" / "__pycache__" / "__init__.cpython-312.pyc", b"by another Python", 5)
    write(site / "new" / "deep" / "__pycache__" / "file.cpython-311.pyc", b"compiled later", 5)
    write(site / "__pycache__" / "renamed.cpython-311.pyc", b"compiled later", 5)
    write(site / "__pycache__" / "renamed.cpython-311.opt-1.pyc", b"compiled later", 5)
    with Journal.open(prefix) as journal:
        assert journal.undo().unrestored_paths == ()
    assert_same(prefix, before)


def test_bytecode_compiled_between_steps_is_not_restored(prefix: Path) -> None:
    """It was compiled from a source that the first step had changed."""
    before = list_tree(prefix)
    source = prefix / SITE / "single.py"
    compiled = prefix / SITE / "__pycache__" / "single.cpython-311.pyc"
    commit_steps(prefix, lambda _: write(source, b"two = 2\n", 2_000))
    write(compiled, b"compiled of ours", 5)

    def write_again(_: Path) -> None:
        write(source, b"three = 3\n", 3_000)
        compiled.unlink()

    commit_steps(prefix, write_again)
    with Journal.open(prefix) as journal:
        assert journal.undo().unrestored_paths == ()
    compiled.parent.rmdir()
    assert_same(prefix, before)


def test_undo_of_a_source_removes_its_bytecode(prefix: Path) -> None:
    before = list_tree(prefix)
    source = prefix / SITE / "pkg" / "__init__.py"
    with Journal.open(prefix) as journal:
        step = journal.begin_step(title="patch", paths=[source])
        write(source, b"patched\n", 2_000)
        step.commit()
    cache = source.parent / "__pycache__"
    write(cache / "__init__.cpython-311.pyc", b"compiled of the patched one", 5)
    write(cache / "__init__.cpython-312.pyc", b"compiled of the patched one", 5)
    with Journal.open(prefix) as journal:
        journal.undo()
    del before[f"{SITE}/pkg/__pycache__/__init__.cpython-311.pyc"]  # another Python replaced it
    before.pop(f"{SITE}/pkg/__pycache__", None)
    assert_same(prefix, before)


# ---------------------------------------------------------------- files written in place


def write_into_linked_file(prefix: Path) -> None:
    with (prefix / SITE / "pkg" / "big.so").open("r+b") as stream:
        stream.write(b"patched in place")


def test_file_written_in_place_is_a_conflict(prefix: Path) -> None:
    before = list_tree(prefix)
    name = f"{SITE}/pkg/big.so"

    def write_both(top: Path) -> None:
        write_into_linked_file(top)
        write(top / "bin" / "tool", b"new", 5)

    commit_steps(prefix, write_both)
    with Journal.open(prefix) as journal:
        overwritten = next(change for change in list_changes(prefix) if change.path == name)
        assert overwritten.before is not None
        assert overwritten.before.sha256 is None
        with pytest.raises(JournalError, match=r"no longer kept.*big\.so"):
            journal.undo()
        undone = journal.undo(force=True)
    assert undone.unrestored_paths == (name,)
    assert (prefix / name).read_bytes().startswith(b"patched in place")
    before[name] = list_tree(prefix)[name]
    assert_same(prefix, before)


def test_later_step_may_write_into_a_new_file(prefix: Path) -> None:
    before = list_tree(prefix)
    library = prefix / SITE / "pkg" / "big.so"
    commit_steps(
        prefix,
        lambda _: write(library, bytes(100_000), 2_000, 0o755),
        write_into_linked_file,
    )
    with Journal.open(prefix) as journal:
        assert journal.undo().unrestored_paths == ()
    assert_same(prefix, before)


def test_rollback_reports_a_file_written_in_place(prefix: Path) -> None:
    before = list_tree(prefix)
    with Journal.open(prefix) as journal:
        with journal.begin_step(title="change") as step:
            change(prefix)
            write_into_linked_file(prefix)
        with pytest.raises(JournalError, match=r"not completely.*big\.so"):
            step.rollback()
    current = list_tree(prefix)
    assert list_differing(before, current) == [f"{SITE}/pkg/big.so"]
    assert not (prefix / ".tfdoctor").exists()


def rename_linked_file(prefix: Path) -> None:
    """Rename a file, so that the journal's copy is the same file as the renamed one."""
    (prefix / SITE / "pkg" / "big.so").rename(prefix / SITE / "renamed.so")


def test_modified_copy_is_not_restored(prefix: Path) -> None:
    commit_steps(prefix, rename_linked_file)
    with (prefix / SITE / "renamed.so").open("ab") as stream:
        stream.write(b"more")
    with Journal.open(prefix) as journal:
        with pytest.raises(JournalError):
            journal.undo()
        undone = journal.undo(force=True)
    assert undone.unrestored_paths == (f"{SITE}/pkg/big.so", f"{SITE}/renamed.so")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP])
def test_without_hard_links_files_are_copied(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    before = list_tree(prefix)
    commit_steps(prefix, change, change_again)
    with Journal.open(prefix) as journal:
        assert journal.undo().unrestored_paths == ()
    assert_same(prefix, before)
