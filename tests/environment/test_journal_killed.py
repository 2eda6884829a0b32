"""The journal: killed at any point, an environment is as it was before or as it was made, and never between."""

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

from environment.killer import change, change_again, change_named, write
from environment.trees import DOCTOR, assert_same, commit, fresh, list_differing, list_tree
from tfdoctor.environment.history.journal import Journal, JournalError, has_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")


# ---------------------------------------------------------------- killed


def check_recovered(prefix: Path, before: dict[str, Any], after: dict[str, Any]) -> int:
    """Open what a killed process left: wholly before or wholly after, and from there back. → number of entries."""
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
    fast: Path, victim: Callable[[str, Path, int], str], action: str
) -> None:
    prefix = fresh(fast / "env")
    before = list_tree(prefix)
    (change_named if action == "named" else change)(prefix)
    after = list_tree(prefix)
    counts = []
    for number in itertools.count(1):
        result = victim(action, fresh(prefix), number)
        with contextlib.suppress(JournalError):
            Journal.read(prefix)
        counts.append(check_recovered(prefix, before, after))
        if result != "killed":
            assert result == "survived"
            break
    assert len(counts) > 40
    assert counts == sorted(counts)  # once committed, always
    assert counts[-1] == (action != "rollback")


def test_killed_at_every_point_of_a_second_step(fast: Path, victim: Callable[[str, Path, int], str]) -> None:
    """What was there before the first step stays known, whether the second one counts or not."""
    prefix = fresh(fast / "env")
    before = list_tree(prefix)
    commit(prefix, change)
    first = list_tree(prefix)
    saved = fast / "saved"
    copy_links(prefix, saved)
    change_again(prefix)
    second = list_tree(prefix)
    counts = []
    for number in itertools.count(1):
        shutil.rmtree(prefix, ignore_errors=True)
        copy_links(saved, prefix)
        result = victim("again", prefix, number)
        with Journal.open(prefix) as journal:
            counts.append(len(journal.entries))
            assert_same(prefix, {1: first, 2: second}[counts[-1]])
            assert journal.undo().kept == ()
        assert_same(prefix, before)
        assert not (prefix / ".tfdoctor").exists()
        if result != "killed":
            assert result == "survived"
            break
    assert len(counts) > 40
    assert counts == sorted(counts)
    assert {1, 2} == set(counts)


def test_killed_at_every_point_of_an_undo(fast: Path, victim: Callable[[str, Path, int], str]) -> None:
    prefix = fresh(fast / "env")
    before = list_tree(prefix)
    commit(prefix, change, change_again)
    after = list_tree(prefix)
    saved = fast / "saved"
    prefix.rename(saved)
    whole = 0
    for number in itertools.count(1):
        shutil.rmtree(prefix, ignore_errors=True)
        copy_links(saved, prefix)
        result = victim("undo", prefix, number)
        with Journal.open(prefix) as journal:
            assert len(journal.entries) in {0, 2}
            assert_same(prefix, after if journal.entries else before)
            whole += bool(journal.entries)
            assert journal.undo().kept == ()
        assert_same(prefix, before)
        assert not (prefix / ".tfdoctor").exists()
        if result != "killed":
            assert result == "survived"
            break
    assert number > 60
    assert 0 < whole < number


def copy_links(source: Path, target: Path) -> None:
    """Copy a tree such that files which were one file are one file again, as the journal's are."""
    subprocess.run([shutil.which("cp") or "cp", "-a", str(source), str(target)], check=True)


def test_killed_while_recovering(fast: Path, victim: Callable[[str, Path, int], str]) -> None:
    prefix = fresh(fast / "env")
    before = list_tree(prefix)
    change(prefix)
    after = list_tree(prefix)
    dice = random.Random(1)
    twice = 0
    for number in range(30, 160, 5):
        if victim("step", fresh(prefix), number) != "killed":
            break
        for again in sorted(dice.sample(range(1, 90), 4)):
            twice += victim("recover", prefix, again) == "killed"
        check_recovered(prefix, before, after)
    assert twice > 15


def test_killed_while_finishing_an_undo(fast: Path, victim: Callable[[str, Path, int], str]) -> None:
    prefix = fresh(fast / "env")
    before = list_tree(prefix)
    commit(prefix, change, change_again)
    after = list_tree(prefix)
    saved = fast / "saved"
    prefix.rename(saved)
    dice = random.Random(2)
    twice = 0
    for number in range(5, 150, 3):
        shutil.rmtree(prefix, ignore_errors=True)
        copy_links(saved, prefix)
        if victim("undo", prefix, number) != "killed":
            break
        for again in sorted(dice.sample(range(1, 60), 4)):
            twice += victim("recover", prefix, again) == "killed"
        check_recovered_undo(prefix, before, after)
    assert twice > 15


def check_recovered_undo(prefix: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    with Journal.open(prefix) as journal:
        assert_same(prefix, after if journal.entries else before)
        journal.undo()
    assert_same(prefix, before)


def test_what_a_killed_step_left_is_told(prefix: Path, victim: Callable[[str, Path, int], str]) -> None:
    before = list_tree(prefix)
    assert victim("step", prefix, 60) == "killed"
    assert has_pending(prefix)
    assert Journal.read(prefix) == ()
    with Journal.open(prefix) as journal:
        (sentence,) = journal.recovered
    assert "“change” had been interrupted" in sentence
    assert not has_pending(prefix)
    assert_same(prefix, before)


def test_what_somebody_changed_after_a_killed_undo_is_left(
    prefix: Path, victim: Callable[[str, Path, int], str]
) -> None:
    before = list_tree(prefix)
    commit(prefix, change)
    number = next(
        number
        for number in itertools.count(20)
        if victim("undo", prefix, number) == "killed" and has_pending(prefix)
    )
    assert number < 80
    tool = prefix / "bin" / "tool"
    tool.write_bytes(b"of somebody")
    with Journal.open(prefix) as journal:
        (sentence,) = journal.recovered
    assert "bin/tool" in sentence
    assert tool.read_bytes() == b"of somebody"
    before["bin/tool"] = list_tree(prefix)["bin/tool"]
    assert_same(prefix, before)


# ---------------------------------------------------------------- two at once

HOLD = """
import sys, pathlib
from tfdoctor.environment.history.journal import Journal
prefix = pathlib.Path(sys.argv[1])
with Journal.open(prefix, on_wait=lambda text: print(text, flush=True)) as journal:
    print("held", len(journal.entries), flush=True)
    if sys.argv[2] == "step":
        step = journal.step(title="of the other")
        (prefix / "added").write_text("x")
    sys.stdin.readline()
    if sys.argv[2] == "step":
        step.commit()
"""


@contextlib.contextmanager
def holder(prefix: Path, what: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(prefix), what],
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


def make_output(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_the_second_waits_and_sees_what_the_first_did(prefix: Path) -> None:
    with holder(prefix, "step") as first:
        assert make_output(first) == "held 0"
        with holder(prefix, "look") as second:
            assert make_output(second) == (
                f"Another tfdoctor (process {first.pid}) is changing this environment; waiting for it."
            )
            let_go(first)
            assert make_output(second) == "held 1"
            let_go(second)


def test_a_lock_that_was_deleted_meanwhile_is_no_lock(prefix: Path) -> None:
    """The first leaves an empty journal, which goes; the second waited for a lock that nobody finds any more."""
    with holder(prefix, "look") as first:
        assert make_output(first) == "held 0"
        with holder(prefix, "look") as second:
            assert "waiting" in make_output(second)
            let_go(first)
            assert make_output(second) == "held 0"
            assert (prefix / ".tfdoctor" / "lock").exists()
            with holder(prefix, "look") as third:
                assert f"process {second.pid}" in make_output(third)
                let_go(second)
                assert make_output(third) == "held 0"
                let_go(third)
                third.wait(10)
    assert not (prefix / ".tfdoctor").exists()


def test_a_child_that_goes_on_holds_the_journal(prefix: Path) -> None:
    """pip, when its tfdoctor is killed: nobody may take back what it is still writing."""
    script = (
        "import os, pathlib, signal, subprocess, sys; from tfdoctor.environment.history.journal import Journal\n"
        "journal = Journal.open(pathlib.Path(sys.argv[1]))\n"
        "journal.step(title='install')\n"
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
        with holder(prefix, "look") as second:
            assert "waiting" in make_output(second)
            let_go(first)
            assert make_output(second) == "held 0"
            let_go(second)


def test_a_folder_made_for_a_named_path_stays_where_others_use_it(prefix: Path) -> None:
    before = list_tree(prefix)
    with Journal.open(prefix) as journal:
        step = journal.step(title="hook", paths=[prefix / "etc" / "hook.sh"])
        write(prefix / "etc" / "hook.sh", b"ours", 5)
        write(prefix / "etc" / "other.sh", b"of somebody", 5)
        step.rollback()
    now = list_tree(prefix)
    assert list_differing(before, now) == ["etc", "etc/other.sh"]


def test_ctrl_c_ends_the_waiting(prefix: Path) -> None:
    with holder(prefix, "look") as first:
        assert make_output(first) == "held 0"
        with holder(prefix, "look") as second:
            assert "waiting" in make_output(second)
            time.sleep(0.1)  # it says so before it waits
            second.send_signal(signal.SIGINT)
            assert second.wait(10) != 0
            assert second.stderr is not None
            assert "KeyboardInterrupt" in second.stderr.read()
        assert first.poll() is None


def test_many_at_once_are_one_at_a_time(prefix: Path) -> None:
    """Threads of one process open the lock's file each for itself, so they exclude each other as processes do."""
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
        except BaseException as error:  # told below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert most == 1
    assert not (prefix / ".tfdoctor").exists()
