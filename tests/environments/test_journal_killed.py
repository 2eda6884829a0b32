"""The journal: after a kill, an environment has its old or its new state, and nothing in between."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from environments.killer import change, change_again, change_named, write
from environments.trees import DOCTOR, assert_same, commit_steps, list_differing, list_tree, recreate
from tfdoctor.environments.history.journal import Journal, JournalError, has_unfinished_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")


# ---------------------------------------------------------------- killed


def check_recovered(prefix: Path, before: dict[str, Any], after: dict[str, Any]) -> int:
    """Check that recovery gives the old or the new state and that undo works; return the number of entries."""
    with Journal.open(prefix) as journal:
        count = len(journal.entries)
        assert_same(prefix, after if count else before)
        journal.undo()
    assert_same(prefix, before)
    assert not (prefix / ".tfdoctor").exists()
    return count


@pytest.mark.parametrize("action", ["step", "named", "rollback"])
@pytest.mark.few(1)
def test_killed_at_every_point_of_a_step(
    temp_folder: Path, run_killed: Callable[[str, Path, int], str], action: str
) -> None:
    prefix = recreate(temp_folder / "env")
    before = list_tree(prefix)
    (change_named if action == "named" else change)(prefix)
    after = list_tree(prefix)
    counts = []
    for number in itertools.count(1):
        result = run_killed(action, recreate(prefix), number)
        with contextlib.suppress(JournalError):
            Journal.read_entries(prefix)
        counts.append(check_recovered(prefix, before, after))
        if result != "killed":
            assert result == "survived"
            break
    assert len(counts) > 40
    assert counts == sorted(counts)  # A committed step stays committed.
    assert counts[-1] == (action != "rollback")


def test_killed_at_every_point_of_a_second_step(
    temp_folder: Path, run_killed: Callable[[str, Path, int], str]
) -> None:
    """The state before the first step stays known, whether or not the second step is committed."""
    prefix = recreate(temp_folder / "env")
    before = list_tree(prefix)
    commit_steps(prefix, change)
    first = list_tree(prefix)
    saved = temp_folder / "saved"
    copy_with_hard_links(prefix, saved)
    change_again(prefix)
    second = list_tree(prefix)
    counts = []
    for number in itertools.count(1):
        shutil.rmtree(prefix, ignore_errors=True)
        copy_with_hard_links(saved, prefix)
        result = run_killed("again", prefix, number)
        with Journal.open(prefix) as journal:
            counts.append(len(journal.entries))
            assert_same(prefix, {1: first, 2: second}[counts[-1]])
            assert journal.undo().unrestored_paths == ()
        assert_same(prefix, before)
        assert not (prefix / ".tfdoctor").exists()
        if result != "killed":
            assert result == "survived"
            break
    assert len(counts) > 40
    assert counts == sorted(counts)
    assert {1, 2} == set(counts)


def test_killed_at_every_point_of_an_undo(
    temp_folder: Path, run_killed: Callable[[str, Path, int], str]
) -> None:
    prefix = recreate(temp_folder / "env")
    before = list_tree(prefix)
    commit_steps(prefix, change, change_again)
    after = list_tree(prefix)
    saved = temp_folder / "saved"
    prefix.rename(saved)
    still_committed = 0
    for number in itertools.count(1):
        shutil.rmtree(prefix, ignore_errors=True)
        copy_with_hard_links(saved, prefix)
        result = run_killed("undo", prefix, number)
        with Journal.open(prefix) as journal:
            assert len(journal.entries) in {0, 2}
            assert_same(prefix, after if journal.entries else before)
            still_committed += bool(journal.entries)
            assert journal.undo().unrestored_paths == ()
        assert_same(prefix, before)
        assert not (prefix / ".tfdoctor").exists()
        if result != "killed":
            assert result == "survived"
            break
    assert number > 60
    assert 0 < still_committed < number


def copy_with_hard_links(source: Path, target: Path) -> None:
    """Copy a tree and keep its hard links, because the journal has some."""
    subprocess.run([shutil.which("cp") or "cp", "-a", str(source), str(target)], check=True)


def test_killed_while_recovering(temp_folder: Path, run_killed: Callable[[str, Path, int], str]) -> None:
    prefix = recreate(temp_folder / "env")
    before = list_tree(prefix)
    change(prefix)
    after = list_tree(prefix)
    dice = random.Random(1)
    killed_twice = 0
    for number in range(30, 160, 5):
        if run_killed("step", recreate(prefix), number) != "killed":
            break
        for second_kill in sorted(dice.sample(range(1, 90), 4)):
            killed_twice += run_killed("recover", prefix, second_kill) == "killed"
        check_recovered(prefix, before, after)
    assert killed_twice > 15


def test_killed_while_finishing_an_undo(
    temp_folder: Path, run_killed: Callable[[str, Path, int], str]
) -> None:
    prefix = recreate(temp_folder / "env")
    before = list_tree(prefix)
    commit_steps(prefix, change, change_again)
    after = list_tree(prefix)
    saved = temp_folder / "saved"
    prefix.rename(saved)
    dice = random.Random(2)
    killed_twice = 0
    for number in range(5, 150, 3):
        shutil.rmtree(prefix, ignore_errors=True)
        copy_with_hard_links(saved, prefix)
        if run_killed("undo", prefix, number) != "killed":
            break
        for second_kill in sorted(dice.sample(range(1, 60), 4)):
            killed_twice += run_killed("recover", prefix, second_kill) == "killed"
        check_recovered_undo(prefix, before, after)
    assert killed_twice > 15


def check_recovered_undo(prefix: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    with Journal.open(prefix) as journal:
        assert_same(prefix, after if journal.entries else before)
        journal.undo()
    assert_same(prefix, before)


def test_interrupted_step_is_reported(prefix: Path, run_killed: Callable[[str, Path, int], str]) -> None:
    before = list_tree(prefix)
    assert run_killed("step", prefix, 60) == "killed"
    assert has_unfinished_changes(prefix)
    assert Journal.read_entries(prefix) == ()
    with Journal.open(prefix) as journal:
        (sentence,) = journal.recovery_notes
    assert "“change” had been interrupted" in sentence
    assert not has_unfinished_changes(prefix)
    assert_same(prefix, before)


def test_change_after_a_killed_undo_is_kept(
    prefix: Path, run_killed: Callable[[str, Path, int], str]
) -> None:
    before = list_tree(prefix)
    commit_steps(prefix, change)
    number = next(
        number
        for number in itertools.count(20)
        if run_killed("undo", prefix, number) == "killed" and has_unfinished_changes(prefix)
    )
    assert number < 80
    tool = prefix / "bin" / "tool"
    tool.write_bytes(b"of somebody")
    with Journal.open(prefix) as journal:
        (sentence,) = journal.recovery_notes
    assert "bin/tool" in sentence
    assert tool.read_bytes() == b"of somebody"
    before["bin/tool"] = list_tree(prefix)["bin/tool"]
    assert_same(prefix, before)


# ---------------------------------------------------------------- two at once

HOLD = """
import sys, pathlib
from tfdoctor.environments.history.journal import Journal
prefix = pathlib.Path(sys.argv[1])
with Journal.open(prefix, on_wait=lambda text: print(text, flush=True)) as journal:
    print("held", len(journal.entries), flush=True)
    if sys.argv[2] == "step":
        step = journal.begin_step(title="of the other")
        (prefix / "added").write_text("x")
    sys.stdin.readline()
    if sys.argv[2] == "step":
        step.commit()
"""


@contextlib.contextmanager
def hold_journal(prefix: Path, action: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the journal, with a step if `action` is "step"."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(prefix), action],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(DOCTOR)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def release(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_second_process_waits_for_the_first(prefix: Path) -> None:
    with hold_journal(prefix, "step") as first:
        assert read_line(first) == "held 0"
        with hold_journal(prefix, "look") as second:
            assert read_line(second) == (
                f"Another tfdoctor (process {first.pid}) is changing this environment; waiting for it."
            )
            release(first)
            assert read_line(second) == "held 1"
            release(second)


def test_deleted_lock_is_not_a_lock(prefix: Path) -> None:
    """The first process removes its empty journal while the second one waits for the lock in it."""
    with hold_journal(prefix, "look") as first:
        assert read_line(first) == "held 0"
        with hold_journal(prefix, "look") as second:
            assert "waiting" in read_line(second)
            release(first)
            assert read_line(second) == "held 0"
            assert (prefix / ".tfdoctor" / "lock").exists()
            with hold_journal(prefix, "look") as third:
                assert f"process {second.pid}" in read_line(third)
                release(second)
                assert read_line(third) == "held 0"
                release(third)
                third.wait(10)
    assert not (prefix / ".tfdoctor").exists()


def test_running_child_holds_the_journal(prefix: Path) -> None:
    """If tfdoctor is killed, nobody may undo what pip is still writing."""
    script = (
        "import os, pathlib, signal, subprocess, sys; from tfdoctor.environments.history.journal import Journal\n"
        "journal = Journal.open(pathlib.Path(sys.argv[1]))\n"
        "journal.begin_step(title='install')\n"
        "subprocess.Popen([sys.executable, '-c', 'input()'], pass_fds=[journal.fileno()])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(prefix)],
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(DOCTOR)},
    ) as first:
        assert first.wait(10) == -signal.SIGKILL
        with hold_journal(prefix, "look") as second:
            assert "waiting" in read_line(second)
            release(first)
            assert read_line(second) == "held 0"
            release(second)


def test_new_folder_with_files_of_others_stays(prefix: Path) -> None:
    before = list_tree(prefix)
    with Journal.open(prefix) as journal:
        step = journal.begin_step(title="hook", paths=[prefix / "etc" / "hook.sh"])
        write(prefix / "etc" / "hook.sh", b"ours", 5)
        write(prefix / "etc" / "other.sh", b"of somebody", 5)
        step.rollback()
    current = list_tree(prefix)
    assert list_differing(before, current) == ["etc", "etc/other.sh"]


def test_ctrl_c_ends_the_waiting(prefix: Path) -> None:
    with hold_journal(prefix, "look") as first:
        assert read_line(first) == "held 0"
        with hold_journal(prefix, "look") as second:
            assert "waiting" in read_line(second)
            time.sleep(0.1)  # the message is printed before the wait
            second.send_signal(signal.SIGINT)
            assert second.wait(10) != 0
            assert second.stderr is not None
            assert "KeyboardInterrupt" in second.stderr.read()
        assert first.poll() is None


def test_many_threads_open_the_journal_in_turn(prefix: Path) -> None:
    """Each thread opens the lock file itself, so threads exclude each other as processes do."""
    inside, most, errors = 0, 0, []

    def work() -> None:
        nonlocal inside, most
        try:
            for _ in range(15):
                with Journal.open(prefix):
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.0005)
                    inside -= 1
        except BaseException as error:  # asserted below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert most == 1
    assert not (prefix / ".tfdoctor").exists()
