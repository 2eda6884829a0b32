"""`check` names what is broken, `fix` mends it, real TensorFlow confirms it, `--undo` takes it back: byte for byte.

Opt-in like the rest of the lab (TFDOCTOR_LAB=1; always on in CI): then the short list, with TFDOCTOR_LAB_FULL=1
everything in broken.py. TFDOCTOR_LAB_BASES=FOLDER keeps the environments that they start from.
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
from lab.mending import Bases, Trial, attempt, stop_in_the_middle, without_network
from lab.restoring import Snapshot, list_tree
from tfdoctor.findings import Cause
from tfdoctor.rules import ALL_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHOSEN = sorted(
    (one for one in BROKEN if one.cheap or environments.list_everything()),
    key=lambda one: list(BASES).index(one.base),
)
"""One base after the other: each is gigabytes."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, standin_cache: Path) -> Iterator[Bases]:
    """The environments to break; each is removed when the tests go on to the next."""
    kept = os.environ.get("TFDOCTOR_LAB_BASES")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("my envs")
    made = Bases(folder.resolve(), standin_cache)
    yield made
    for name in list(made.made):
        if kept:
            made.made[name].drop()
        else:
            made.drop(name)


def real(test: Callable[..., None]) -> Callable[..., None]:
    """With real environments."""
    why = "set TFDOCTOR_LAB=1 to break and mend real environments (gigabytes)"
    for mark in (
        pytest.mark.tensorflow,
        pytest.mark.timeout(1500),
        pytest.mark.skipif(not environments.parse_wanted(), reason=why),
    ):
        test = mark(test)
    return test


@real
@pytest.mark.parametrize("one", CHOSEN, ids=lambda one: one.name)
def test_fix_mends_what_can_be_mended_and_undo_restores_it(one: Broken, bases: Bases) -> None:
    if not os.environ.get("TFDOCTOR_LAB_BASES"):
        for name in set(bases.made) - {one.base}:
            bases.drop(name)
    try:
        trial = attempt(one, bases, quick=not environments.list_everything())
    except Unavailable as why:
        pytest.skip(str(why))
    _sound(trial)


def _list_named(name: str) -> Broken:
    return next(one for one in BROKEN if one.name == name)


def _sound(trial: Trial) -> None:
    assert not trial.problems, "\n".join([*trial.problems, "", *trial.notes])


@real
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *([signal.SIGINT] if environments.list_everything() else [])]
)
def test_a_fix_that_is_stopped_leaves_nothing_half_done(number: signal.Signals, bases: Bases) -> None:
    try:
        _sound(stop_in_the_middle(_list_named("no-cuda"), bases, number))
    except Unavailable as why:
        pytest.skip(str(why))


@real
def test_without_a_network_nothing_is_changed(bases: Bases) -> None:
    try:
        _sound(without_network(_list_named("cufft-wheel-gone"), bases))
    except Unavailable as why:
        pytest.skip(str(why))


def test_the_table_of_broken_environments_is_sound() -> None:
    names = [one.name for one in BROKEN]
    codes, causes = {rule.code for rule in ALL_RULES}, {cause.value for cause in Cause}
    assert len(set(names)) == len(names)
    assert sum(one.mendable for one in BROKEN) >= 28
    assert {one.base for one in BROKEN} == set(BASES)
    for one in BROKEN:
        assert set(one.codes) <= codes, one.name
        assert one.cause is None or one.cause in causes, one.name
        assert one.mendable == (not one.why_not), one.name
        assert set(one.informs) <= set(one.codes), one.name


# -- The snapshot, which must see what a journal may forget --------------------------------------------


def _tree(root: Path) -> None:
    (root / "bin").mkdir(parents=True)
    (root / "lib" / "a").mkdir(parents=True)
    (root / "bin" / "activate").write_text("PATH=x\n", encoding="utf-8")
    (root / "lib" / "a" / "big.so").write_bytes(b"\x7fELF" * 1000)
    (root / "lib" / "b.py").write_text("b = 1\n", encoding="utf-8")
    (root / "lib64").symlink_to("lib")
    (root / "lib" / "dangling").symlink_to("nowhere")
    (root / "lib" / "empty").mkdir()


def _rewrite(path: Path, content: bytes) -> None:
    """As installers write: another file under the same name, with the time of the first."""
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
def test_a_snapshot_sees_a_change_and_takes_it_back(change: str, tmp_path: Path) -> None:
    root = tmp_path / "env"
    _tree(root)
    before = {path: (entry.kind, entry.mode, entry.size) for path, entry in list_tree(root).items()}
    snapshot = Snapshot(root, tmp_path / "kept")
    assert snapshot.differences() == []
    CHANGES[change](root)
    assert snapshot.differences()
    snapshot.restore()
    assert snapshot.differences() == []
    assert {path: (entry.kind, entry.mode, entry.size) for path, entry in list_tree(root).items()} == before


def test_a_snapshot_leaves_derived_files_out_and_refuses_what_was_spoilt(tmp_path: Path) -> None:
    root = tmp_path / "env"
    _tree(root)
    snapshot = Snapshot(root, tmp_path / "kept")
    (root / "lib" / "__pycache__").mkdir()
    (root / "lib" / "__pycache__" / "b.pyc").write_bytes(b"")
    assert snapshot.differences() == []
    (root / "lib" / "b.py").write_text("b = 3\n", encoding="utf-8")  # in place: what is kept is the same file
    assert snapshot.differences()
    with pytest.raises(RuntimeError, match="in place"):
        snapshot.restore()
