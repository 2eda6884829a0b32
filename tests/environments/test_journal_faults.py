"""The journal on full disks, and journals with invalid or hostile content."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from environments.killer import SITE, change, change_again, plant, write
from environments.trees import DOCTOR, assert_same, commit_steps, list_tree, recreate
from tfdoctor.environments.history import snapshot
from tfdoctor.environments.history.journal import Journal, JournalError, has_unfinished_changes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")


# ---------------------------------------------------------------- full or read-only disks

CALLS = ("link", "mkdir", "replace", "fsync", "symlink", "rename", "open")


class FullDisk:
    """Make the `count`-th call of a function of `os` fail as on a full disk.

    With `again`, all later calls fail, too.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, name: str, count: int, *, again: bool = False
    ) -> None:
        self.left, self.again, self.hit = count, again, False
        real_function = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            writing = name != "open" or arguments[1] & os.O_CREAT
            if writing and self.left > 0:
                self.left -= 1
                if self.left == 0:
                    self.hit = True
                    self.left = 1 if again else 0
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real_function(*arguments, **options)

        monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("when", ["step", "commit"])
def test_full_disk_during_a_step(temp_folder: Path, name: str, when: str) -> None:
    prefix = recreate(temp_folder / "env")
    before = list_tree(prefix)
    hits = 0
    for count in range(1, 60):
        with pytest.MonkeyPatch.context() as patch, Journal.open(recreate(prefix)) as journal:
            if when == "step":
                full = FullDisk(patch, name, count)
                with contextlib.suppress(JournalError):
                    journal.begin_step(title="change")
                patch.undo()
                if not full.hit:
                    break
                assert_same(prefix, before)
                assert not has_unfinished_changes(prefix)
            else:
                with journal.begin_step(title="change") as step:
                    change(prefix)
                full = FullDisk(patch, name, count)
                failure = ""
                with contextlib.suppress(JournalError):
                    failure = "not committed"
                    step.commit()
                    failure = ""
                patch.undo()
                assert len(journal.entries) == (not failure)
                if failure:
                    assert_same(prefix, before)
                if not full.hit:
                    break
        hits += 1
        with Journal.open(prefix) as journal:
            journal.undo()
        assert_same(prefix, before)
    else:
        pytest.fail("it never came to an end")
    used = {"step": {"link", "mkdir", "replace", "fsync", "open"}, "commit": {"replace", "fsync", "open"}}
    assert bool(hits) == (name in used[when])


@pytest.mark.parametrize("name", CALLS)
def test_full_disk_during_an_undo(temp_folder: Path, name: str) -> None:
    prefix = recreate(temp_folder / "env")
    before = list_tree(prefix)
    finished = False
    for count in range(1, 120):
        with Journal.open(recreate(prefix)) as journal, pytest.MonkeyPatch.context() as patch:
            for apply in (change, change_again):
                step = journal.begin_step(title="change")
                apply(prefix)
                step.commit()
            after = list_tree(prefix)
            full = FullDisk(patch, name, count)
            failure = ""
            try:
                journal.undo()
            except JournalError as error:
                failure = error.message
            patch.undo()
            finished = not full.hit
        half_way = has_unfinished_changes(prefix)
        assert not half_way or "was interrupted" in failure
        if not half_way:
            assert_same(prefix, after if Journal.read_entries(prefix) else before)
        with Journal.open(prefix) as journal:
            assert bool(journal.recovery_notes) == half_way
            journal.undo()
        assert_same(prefix, before)
        if finished:
            break
    assert finished


@pytest.mark.parametrize("name", ["link", "mkdir", "open"])
def test_full_disk_is_noticed_before_an_undo(prefix: Path, name: str) -> None:
    commit_steps(prefix, change, change_again)
    after = list_tree(prefix)
    with Journal.open(prefix) as journal:
        with pytest.MonkeyPatch.context() as patch:
            FullDisk(patch, name, 2 if name == "link" else 1, again=True)
            with pytest.raises(JournalError, match="nothing was taken back: No space left"):
                journal.undo()
        assert not has_unfinished_changes(prefix)
        assert len(journal.entries) == 2
        assert_same(prefix, after)
        assert journal.undo().unrestored_paths == ()


def test_file_size_limit_is_reported(prefix: Path) -> None:
    """The limit interrupts the writing of the manifest: a real short write."""
    before = list_tree(prefix)
    script = (
        "import resource, sys, pathlib; from tfdoctor.environments.history.journal import *\n"
        "with Journal.open(pathlib.Path(sys.argv[1])) as journal:\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))\n"
        "    try: journal.begin_step(title='x')\n"
        "    except JournalError as error: print(error.message)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(prefix)],
        env={**os.environ, "PYTHONPATH": str(DOCTOR)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nothing was changed: File too large" in done.stdout
    assert_same(prefix, before)
    assert not (prefix / ".tfdoctor").exists()


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as stream:
        while stream.write(bytes(1 << 12)):
            pass


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting needs root")
def test_really_full_disk(temp_folder: Path) -> None:
    disk = temp_folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        prefix = disk / "env"
        plant(prefix)
        before = list_tree(prefix)
        with Journal.open(prefix) as journal:
            with contextlib.suppress(OSError), journal.begin_step(title="fill"):
                change(prefix)
                fill(prefix / "huge")
            assert_same(prefix, before)
            step = journal.begin_step(title="fill and commit")
            change(prefix)
            with contextlib.suppress(OSError):
                fill(prefix / "huge")
            with pytest.raises(JournalError, match="No space left") as caught:
                step.commit()
            assert "Free space" in caught.value.hint
            assert_same(prefix, before)
    finally:
        subprocess.run([shutil.which("umount") or "umount", "-l", str(disk)], check=True)


def test_environment_of_another_user_is_reported(temp_folder: Path) -> None:
    """The first `Journal.open` loads all modules, because the user nobody may not be able to read this Python."""
    prefix = temp_folder / "env"
    for folder in (prefix, temp_folder / "own"):
        plant(folder)
    script = (
        "import os, sys, pathlib\n"
        "from tfdoctor.environments.history.journal import *\n"
        "with Journal.open(pathlib.Path(sys.argv[2])): pass\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: Journal.open(pathlib.Path(sys.argv[1]))\n"
        "except JournalError as error: print(error.message, error.hint, int(error.exit_code))\n"
    )
    temp_folder.chmod(0o755)
    prefix.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", script, str(prefix), str(temp_folder / "own")],
        env={**os.environ, "PYTHONPATH": str(DOCTOR), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    prefix.chmod(0o755)  # otherwise the owner could not remove it
    assert "Permission denied" in done.stdout, done.stderr
    assert "the one who owns" in done.stdout
    assert done.stdout.strip().endswith("3")


def test_unreadable_module_raises_import_error(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, Python may be in a home folder that is no longer readable."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(ImportError):
        Journal.open(prefix)


@pytest.mark.parametrize("name", ["nothing", "bin/tool"])
def test_missing_environment_is_refused(prefix: Path, name: str) -> None:
    with pytest.raises(JournalError, match="not a folder"):
        Journal.open(prefix / name)
    assert Journal.read_entries(prefix / name) == ()


# ---------------------------------------------------------------- invalid journals


def tamper(prefix: Path, edit: Callable[[Any], None]) -> None:
    path = prefix / ".tfdoctor/history.json"
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


def find_change(value: Any, path: str) -> Any:
    return next(change for change in value["changes"] if change["path"] == path)


@pytest.mark.parametrize(
    "path", ["../outside", "/tmp/outside", "a/../../outside", "", ".", "a//b", ".tfdoctor/lock", "a\0b", 5]
)
def test_paths_that_lead_outside_are_refused(prefix: Path, path: object) -> None:
    outside = prefix.parent / "outside"
    outside.write_text("precious")
    commit_steps(prefix, change)
    tamper(prefix, lambda value: find_change(value, "bin/tool").update(path=path))
    current = list_tree(prefix)
    with pytest.raises(JournalError, match="damaged") as caught:
        Journal.open(prefix)
    assert caught.value.hint
    with pytest.raises(JournalError, match="damaged"):
        Journal.read_entries(prefix)
    assert outside.read_text() == "precious"
    assert_same(prefix, current)


def test_parent_that_became_a_link_is_not_followed(prefix: Path) -> None:
    """The files behind the link match the journal, so undo would restore the old ones there."""
    commit_steps(prefix, change)
    outside = prefix.parent / "outside"
    outside.mkdir()
    (prefix / "lib").rename(outside / "lib")
    (prefix / "lib").symlink_to(outside / "lib")
    untouched = list_tree(outside)
    for force in (False, True):
        with Journal.open(prefix) as journal, contextlib.suppress(JournalError):
            journal.undo(force=force)
        assert_same(outside, untouched)


def test_rollback_does_not_follow_links(prefix: Path) -> None:
    before = list_tree(prefix)
    outside = prefix.parent / "outside"
    plant(outside)
    untouched = list_tree(outside)
    with Journal.open(prefix) as journal:
        step = journal.begin_step(title="change")
        shutil.rmtree(prefix / "lib")
        (prefix / "lib").symlink_to(outside / "lib")
        step.rollback()
    assert_same(outside, untouched)
    assert_same(prefix, before)


def test_copies_that_are_links_are_not_used(prefix: Path) -> None:
    secret = prefix.parent / "secret"
    secret.write_bytes((prefix / SITE / "single.py").read_bytes())
    commit_steps(prefix, change)
    for path in (prefix / ".tfdoctor/steps/1/files").rglob("*"):
        if path.is_file():
            path.unlink()
            path.symlink_to(secret)
    with Journal.open(prefix) as journal, pytest.raises(JournalError, match=r"b\.bin"):
        journal.undo()
    assert not any(path.is_symlink() and "secret" in str(path.readlink()) for path in prefix.glob("lib/**/*"))


def test_restored_file_never_gets_more_permissions(prefix: Path) -> None:
    commit_steps(prefix, change)
    tamper(prefix, lambda value: find_change(value, "bin/tool")["before"].update(mode=0o6755))
    with Journal.open(prefix) as journal:
        journal.undo()
    assert stat.S_IMODE((prefix / "bin" / "tool").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "edit",
    [
        lambda value: value.update(extra=1),
        lambda value: value.update(entries=None),
        lambda value: value["entries"][0].pop("codes"),
        lambda value: value.update(compiled=[["../outside.pyc", 1, 1]]),
        lambda value: value.update(schema_version=0),
        lambda value: value["changes"].append(value["changes"][0]),
        lambda value: find_change(value, "bin/tool").pop("kept"),
        lambda value: find_change(value, "bin/tool")["before"].update(mode=0o77777),
        lambda value: value.update(changes={"a": 1}),
        lambda value: value.update(changes=[5]),
    ],
)
def test_journal_is_validated_strictly(prefix: Path, edit: Callable[[Any], None]) -> None:
    commit_steps(prefix, change)
    tamper(prefix, edit)
    current = list_tree(prefix)
    with pytest.raises(JournalError, match="damaged"):
        Journal.open(prefix)
    assert_same(prefix, current)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "[" * 100_000, '{"schema_version": "1"}', "\xff\xfe"]
)
def test_invalid_json_is_refused(prefix: Path, text: str) -> None:
    commit_steps(prefix, change)
    for name in ("history.json", "undo.json"):
        path = prefix / ".tfdoctor" / name
        saved = path.read_bytes() if path.exists() else b""
        path.write_bytes(text.encode("latin-1"))
        for read in (Journal.open, Journal.read_entries):
            with pytest.raises(JournalError, match="damaged"):
                read(prefix)
        if saved:
            path.write_bytes(saved)


def test_newer_journal_is_refused(prefix: Path) -> None:
    commit_steps(prefix, change)
    tamper(prefix, lambda value: value.update(schema_version=3))
    with pytest.raises(JournalError, match="newer tfdoctor") as caught:
        Journal.open(prefix)
    assert "pgrade" in caught.value.hint


@pytest.mark.parametrize("name", ["steps/1/record.json", "steps/1/manifest.json", "undo.json"])
def test_journal_of_format_1_is_refused_and_kept(prefix: Path, name: str) -> None:
    """Format 1 had a record for each step."""
    commit_steps(prefix, change)
    journal_folder = prefix / ".tfdoctor"
    if name != "undo.json":
        (journal_folder / "history.json").unlink()
    (journal_folder / name).write_text('{"schema_version": 1, "state": "committed", "steps": []}')
    current, journal_files = list_tree(prefix), list_tree(journal_folder)
    with pytest.raises(JournalError, match="an earlier tfdoctor fixed this environment") as caught:
        Journal.open(prefix)
    assert "with that version" in caught.value.hint
    assert_same(prefix, current)
    journal_files["lock"] = list_tree(journal_folder)["lock"]
    assert_same(journal_folder, journal_files)


@pytest.mark.parametrize("name", [".tfdoctor", ".tfdoctor/steps", ".tfdoctor/lock", ".tfdoctor/undo.json"])
def test_journal_with_links_is_refused(prefix: Path, name: str) -> None:
    elsewhere = prefix.parent / "elsewhere"
    if name.endswith(("lock", "json")):
        elsewhere.write_text("precious")
    else:
        elsewhere.mkdir()
        (elsewhere / "1.gone").mkdir()
    (prefix / name).parent.mkdir(exist_ok=True)
    (prefix / name).symlink_to(elsewhere)
    with pytest.raises(JournalError):
        Journal.open(prefix)
    if elsewhere.is_dir():
        assert sorted(path.name for path in elsewhere.iterdir()) == ["1.gone"]
    else:
        assert elsewhere.read_text() == "precious"


def test_damaged_manifest_is_refused(prefix: Path, run_killed: Callable[[str, Path, int], str]) -> None:
    assert run_killed("step", prefix, 60) == "killed"
    current = list_tree(prefix)
    path = prefix / ".tfdoctor/steps/1" / snapshot.MANIFEST_FILE
    value = json.loads(path.read_text())
    value["rows"][0][0] = "../outside"
    path.write_text(json.dumps(value))
    with pytest.raises(JournalError, match="damaged"):
        Journal.open(prefix)
    assert_same(prefix, current)


def test_control_characters_do_not_reach_the_terminal(prefix: Path) -> None:
    commit_steps(prefix, lambda top: write(top / "red\x1b[31m", b"x", 5))
    (prefix / "red\x1b[31m").write_bytes(b"other")
    with Journal.open(prefix) as journal, pytest.raises(JournalError) as caught:
        journal.undo()
    assert "\x1b" not in caught.value.message
