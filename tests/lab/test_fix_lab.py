"""`check` reports a breakage, `fix` repairs it, real TensorFlow confirms that, and `--undo` restores every byte.

Opt-in like the rest of the lab (TFDOCTOR_LAB=1; always on in CI). By default only the short list runs; with
TFDOCTOR_LAB_FULL=1 everything in broken.py. TFDOCTOR_LAB_BASES=FOLDER keeps the environments that they start
from.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.broken import BROKEN, Broken
from lab.broken_env import BASES, Unavailable
from lab.mending import Bases, Trial, attempt, fix_without_network, interrupt_fix
from lab.restoring import Snapshot, list_tree
from tfdoctor.core.findings import Cause
from tfdoctor.rules import ALL_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHOSEN = sorted(
    (one for one in BROKEN if one.cheap or environments.is_full_run()),
    key=lambda one: list(BASES).index(one.base),
)
"""The breakages to test, sorted by base, because each base is gigabytes."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, standin_cache: Path) -> Iterator[Bases]:
    """The environments to break; each is removed when the tests continue with the next one."""
    kept_folder = os.environ.get("TFDOCTOR_LAB_BASES")
    folder = Path(kept_folder) if kept_folder else tmp_path_factory.mktemp("my envs")
    prepared = Bases(folder.resolve(), standin_cache)
    yield prepared
    for name in list(prepared.snapshots):
        if kept_folder:
            prepared.snapshots[name].drop()
        else:
            prepared.drop(name)


def needs_real_environments(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that needs real environments."""
    reason = "set TFDOCTOR_LAB=1 to break and mend real environments (gigabytes)"
    for mark in (
        pytest.mark.tensorflow,
        pytest.mark.timeout(1500),
        pytest.mark.skipif(not environments.is_lab_enabled(), reason=reason),
    ):
        test = mark(test)
    return test


@needs_real_environments
@pytest.mark.parametrize("one", CHOSEN, ids=lambda one: one.name)
def test_fix_repairs_and_undo_restores(one: Broken, bases: Bases) -> None:
    if not os.environ.get("TFDOCTOR_LAB_BASES"):
        for name in set(bases.snapshots) - {one.base}:
            bases.drop(name)
    try:
        trial = attempt(one, bases, quick=not environments.is_full_run())
    except Unavailable as reason:
        pytest.skip(str(reason))
    _assert_no_problems(trial)


def _find_breakage(name: str) -> Broken:
    return next(breakage for breakage in BROKEN if breakage.name == name)


def _assert_no_problems(trial: Trial) -> None:
    assert not trial.problems, "\n".join([*trial.problems, "", *trial.notes])


@needs_real_environments
@pytest.mark.parametrize("number", [signal.SIGKILL, *([signal.SIGINT] if environments.is_full_run() else [])])
def test_stopped_fix_is_reverted(number: signal.Signals, bases: Bases) -> None:
    try:
        _assert_no_problems(interrupt_fix(_find_breakage("no-cuda"), bases, number))
    except Unavailable as reason:
        pytest.skip(str(reason))


@needs_real_environments
def test_fix_without_network_changes_nothing(bases: Bases) -> None:
    try:
        _assert_no_problems(fix_without_network(_find_breakage("cufft-wheel-gone"), bases))
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_table_of_breakages_is_consistent() -> None:
    names = [breakage.name for breakage in BROKEN]
    codes, causes = {rule.code for rule in ALL_RULES}, {cause.value for cause in Cause}
    assert len(set(names)) == len(names)
    assert sum(breakage.mendable for breakage in BROKEN) >= 28
    assert {breakage.base for breakage in BROKEN} == set(BASES)
    for breakage in BROKEN:
        assert set(breakage.codes) <= codes, breakage.name
        assert breakage.cause is None or breakage.cause in causes, breakage.name
        assert breakage.mendable == (not breakage.why_not), breakage.name
        assert set(breakage.informs) <= set(breakage.codes), breakage.name


# -- Snapshots, which must detect what a journal may miss ----------------------------------------------


def _make_tree(root: Path) -> None:
    (root / "bin").mkdir(parents=True)
    (root / "lib" / "a").mkdir(parents=True)
    (root / "bin" / "activate").write_text("PATH=x\n", encoding="utf-8")
    (root / "lib" / "a" / "big.so").write_bytes(b"\x7fELF" * 1000)
    (root / "lib" / "b.py").write_text("b = 1\n", encoding="utf-8")
    (root / "lib64").symlink_to("lib")
    (root / "lib" / "dangling").symlink_to("nowhere")
    (root / "lib" / "empty").mkdir()


def _rewrite(path: Path, content: bytes) -> None:
    """Replace a file as installers do: another file with the same name and time."""
    status = path.stat()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file removed": lambda root: (root / "lib/b.py").unlink(),
    "a folder removed": lambda root: shutil.rmtree(root / "lib/a"),
    "an empty folder removed": lambda root: (root / "lib/empty").rmdir(),
    "a file added": lambda root: (root / "lib/c.py").write_text("c", encoding="utf-8"),
    "an empty folder added": lambda root: (root / "lib/new").mkdir(),
    "another content of the same size and time": lambda root: _rewrite(root / "lib/b.py", b"b = 2\n"),
    "a script written in place": lambda root: (root / "bin/activate").write_text("X=1\n", encoding="utf-8"),
    "a mode": lambda root: (root / "bin/activate").chmod(0o700),
    "the mode of a folder": lambda root: (root / "lib/a").chmod(0o700),
    "a time": lambda root: (
        _rewrite(root / "lib/b.py", b"b = 1\n"),
        os.utime(root / "lib/b.py", ns=(1, 1)),
    ),
    "a link led elsewhere": lambda root: (
        (root / "lib64").unlink(),
        (root / "lib64").symlink_to("lib/a"),
    ),
    "a link became a folder": lambda root: ((root / "lib64").unlink(), (root / "lib64").mkdir()),
    "a file became a link": lambda root: (
        (root / "lib/b.py").unlink(),
        (root / "lib/b.py").symlink_to("a/big.so"),
    ),
    "a folder became a file": lambda root: (
        (root / "lib/empty").rmdir(),
        (root / "lib/empty").write_text("", encoding="utf-8"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_snapshot_reports_and_restores_changes(change: str, tmp_path: Path) -> None:
    root = tmp_path / "env"
    _make_tree(root)
    before = {path: (entry.kind, entry.mode, entry.size) for path, entry in list_tree(root).items()}
    snapshot = Snapshot(root, tmp_path / "kept")
    assert snapshot.differences() == []
    CHANGES[change](root)
    assert snapshot.differences()
    snapshot.restore()
    assert snapshot.differences() == []
    assert {path: (entry.kind, entry.mode, entry.size) for path, entry in list_tree(root).items()} == before


def test_snapshot_ignores_bytecode_and_detects_damage(tmp_path: Path) -> None:
    root = tmp_path / "env"
    _make_tree(root)
    snapshot = Snapshot(root, tmp_path / "kept")
    (root / "lib" / "__pycache__").mkdir()
    (root / "lib" / "__pycache__" / "b.pyc").write_bytes(b"")
    assert snapshot.differences() == []
    (root / "lib" / "b.py").write_text(
        "b = 3\n", encoding="utf-8"
    )  # in place, so that the hard-linked copy changes, too
    assert snapshot.differences()
    with pytest.raises(RuntimeError, match="in place"):
        snapshot.restore()
