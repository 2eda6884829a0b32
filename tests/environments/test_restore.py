"""Restoring paths: what is replaced, what stays because it belongs to others, and what cannot be restored."""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from environments.killer import write
from tfdoctor.environments.history.restore import Restorer, SavedContents
from tfdoctor.environments.history.snapshot import PathChange, PathState, SavedFile, hash_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")

FOLDER = PathState("dir", 0o755, 0, 0)


class Place:
    """An environment, and saved contents of its files."""

    def __init__(self, folder: Path) -> None:
        self.top, self.steps, self.stage = folder / "env", folder / "steps", folder / "stage"
        self.top.mkdir()
        self.count = 0

    def save(self, path: str, content: bytes = b"old", mode: int = 0o640) -> PathChange:
        """Save the old contents of a path, and return the change of a step that removed it."""
        file = SavedFile(1, self.count)
        self.count += 1
        write(self.steps / file.path, content, 5, mode)
        state = PathState(
            "file", mode, len(content), 5 * 10**9, sha256=hash_file(f"{self.steps}/{file.path}")
        )
        return PathChange(path, state, None, file)

    def restore(
        self,
        *changes: PathChange,
        pyc: Mapping[str, tuple[int, int]] | None = None,
        includes_pyc: bool = False,
        stages: bool = False,
    ) -> list[str]:
        """Restore the paths and return those that could not be restored."""
        restorer = Restorer(
            str(self.top),
            str(self.stage),
            SavedContents(str(self.steps)),
            changes,
            valid_pyc=pyc,
            includes_pyc=includes_pyc,
        )
        if stages:
            restorer.stage_files()
        restorer.apply()
        assert not self.stage.exists()
        return restorer.unrestored

    def list_names(self) -> list[str]:
        return sorted(str(path.relative_to(self.top)) for path in self.top.rglob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    before = os.umask(0o022)
    yield Place(tmp_path)
    os.umask(before)


@pytest.mark.parametrize("stages", [False, True])
def test_file_is_restored_with_its_attributes(place: Place, stages: bool) -> None:
    write(place.top / "a", b"new", 9, 0o600)
    write(place.top / "b", b"b", 9)
    added = PathChange("b", None, FOLDER, None)
    assert place.restore(place.save("a"), place.save("c"), added, stages=stages) == []
    for name in ("a", "c"):
        info = (place.top / name).stat()
        assert ((place.top / name).read_bytes(), stat.S_IMODE(info.st_mode), info.st_mtime) == (
            b"old",
            0o640,
            5,
        )
    assert place.list_names() == ["a", "c"]


def test_set_id_bits_are_never_added(place: Place) -> None:
    change = place.save("a", mode=0o755)
    assert change.before is not None
    assert place.restore(change._replace(before=change.before._replace(mode=0o6755))) == []
    assert stat.S_IMODE((place.top / "a").stat().st_mode) == 0o755
    (place.top / "a").chmod(0o4755)  # the file had one of the bits all the time
    assert change.kept is not None
    (place.steps / change.kept.path).unlink(missing_ok=True)
    (place.steps / change.kept.path).hardlink_to(place.top / "a")
    assert place.restore(change._replace(before=change.before._replace(mode=0o6700))) == []
    assert stat.S_IMODE((place.top / "a").stat().st_mode) == 0o4700


def test_lost_contents_are_reported(place: Place) -> None:
    missing, changed, touched = place.save("missing"), place.save("changed"), place.save("touched")
    unknown = place.save("unknown")
    assert missing.kept is not None
    assert changed.kept is not None
    assert touched.kept is not None
    assert unknown.kept is not None
    assert unknown.before is not None
    (place.steps / missing.kept.path).unlink()
    write(place.steps / changed.kept.path, b"OLD", 6)
    longer = place.save("longer")
    assert longer.kept is not None
    write(place.steps / longer.kept.path, b"older", 5)
    for change in (touched, unknown):
        assert change.kept is not None
        os.utime(place.steps / change.kept.path, (6, 6))
    unknown = unknown._replace(before=unknown.before._replace(sha256=None))
    pyc = place.save("x.pyc")._replace(kept=None)
    write(place.top / "x.pyc", b"compiled", 9)
    lost = place.restore(
        missing, changed, longer, touched, unknown, place.save("never")._replace(kept=None), pyc
    )
    assert sorted(lost) == ["changed", "longer", "missing", "never", "unknown"]
    assert place.list_names() == ["touched"]
    assert (place.top / "touched").stat().st_mtime == 5


def test_links_are_restored(place: Place) -> None:
    link = PathState("link", 0o777, 0, 0, target="target")
    (place.top / "same").symlink_to("target")
    inode = (place.top / "same").lstat().st_ino
    (place.top / "other").symlink_to("elsewhere")
    write(place.top / "file", b"x", 9)
    changes = [PathChange(name, link, None, None) for name in ("same", "other", "file", "gone")]
    assert place.restore(*changes) == []
    assert [(place.top / name).readlink().name for name in ("same", "other", "file", "gone")] == [
        "target"
    ] * 4
    assert (place.top / "same").lstat().st_ino == inode


def test_folders_are_made_and_get_their_modes(place: Place) -> None:
    (place.top / "present").mkdir(mode=0o500)
    write(place.top / "instead", b"x", 9)
    (place.top / "link").symlink_to("present")
    changes = [
        PathChange(name, FOLDER._replace(mode=0o710), None, None)
        for name in ("present", "instead", "link", "gone", "gone/below")
    ]
    assert place.restore(*changes, place.save("present/file"), place.save("gone/below/file")) == []
    for change in changes:
        assert stat.S_IMODE((place.top / change.path).lstat().st_mode) == 0o710, change.path
    assert (place.top / "gone" / "below" / "file").exists()


def test_read_only_folder_of_others_keeps_its_mode(place: Place) -> None:
    """A changed path that is a folder now is made writable, and gets back the mode that it had."""
    (place.top / "now").mkdir()
    write(place.top / "now" / "mine", b"x", 9)
    (place.top / "now").chmod(0o555)
    assert place.restore(place.save("now")) == ["now"]
    assert stat.S_IMODE((place.top / "now").stat().st_mode) == 0o555
    assert place.list_names() == ["now", "now/mine"]


def test_new_folders_go_if_nothing_of_others_is_in_them(place: Place) -> None:
    write(place.top / "new" / "deep" / "added", b"x", 9)
    write(place.top / "new" / "__pycache__" / "x.pyc", b"x", 9)
    write(place.top / "used" / "added", b"x", 9)
    write(place.top / "used" / "mine", b"x", 9)
    added = [
        PathChange(path, None, FOLDER, None)
        for path in ("new", "new/deep", "new/deep/added", "used", "used/added", "absent")
    ]
    assert place.restore(*added) == ["used"]
    assert place.list_names() == ["used", "used/mine"]


def test_special_files_are_left_alone(place: Place) -> None:
    os.mkfifo(place.top / "pipe")
    assert place.restore(PathChange("pipe", None, FOLDER, None)) == ["pipe"]
    assert place.list_names() == ["pipe"]


def test_nothing_is_written_below_a_link_or_a_missing_folder(place: Place) -> None:
    outside = place.top.parent / "outside"
    outside.mkdir()
    (place.top / "link").symlink_to(outside)
    link = PathState("link", 0o777, 0, 0, target="target")
    changes = [
        place.save("link/a"),
        PathChange("link/b", link, None, None),
        PathChange("link/c", FOLDER, None, None),
        place.save("missing/a"),
        place.save("missing/__pycache__/x.pyc"),
        PathChange("link/added", None, FOLDER, None),
    ]
    write(outside / "added", b"of somebody", 9)
    assert sorted(place.restore(*changes)) == ["link/a", "link/b", "link/c", "missing/a"]
    assert [path.name for path in outside.iterdir()] == ["added"]


def test_outdated_bytecode_is_removed(place: Place) -> None:
    kept = {"pkg/__pycache__/a.valid.pyc": (2, 9 * 10**9), "pkg/a.pyc": (2, 8 * 10**9)}
    for name in (
        *(
            "pkg/__pycache__/a.valid.pyc",
            "pkg/__pycache__/a.old.pyc",
            "pkg/__pycache__/ab.x.pyc",
            "pkg/a.pyc",
        ),
        *("pkg/b.pyc", "pkg/__pycache__/a.txt", "only/__pycache__/c.x.pyc", "__pycache__/d.x.pyc", "d.pyc"),
        *("pkg/__pycache__/e.x.pyc", "pkg/a.pyc.bak"),
    ):
        write(place.top / name, b"xx", 9)
    changes = [
        place.save(name) for name in ("pkg/a.py", "only/c.py", "d.py", "pkg/__pycache__/e.x.pyc", "pkg/e.py")
    ]
    assert place.restore(*changes, pyc=kept) == []
    assert place.list_names() == [
        *("__pycache__",)[:0],
        *("d.py", "only", "only/c.py", "pkg", "pkg/__pycache__", "pkg/__pycache__/a.txt"),
        *("pkg/__pycache__/a.valid.pyc", "pkg/__pycache__/ab.x.pyc", "pkg/__pycache__/e.x.pyc"),
        *("pkg/a.py", "pkg/a.pyc.bak", "pkg/b.pyc", "pkg/e.py"),
    ]
    write(place.top / "pkg/__pycache__/a.old.pyc", b"xx", 9)
    assert place.restore(place.save("pkg/a.py"), includes_pyc=True) == []
    assert (place.top / "pkg/__pycache__/a.old.pyc").exists()


def test_emptied_cache_folder_of_the_history_stays(place: Place) -> None:
    write(place.top / "pkg/__pycache__/a.x.pyc", b"xx", 9)
    folder = PathChange("pkg/__pycache__", FOLDER, None, None)
    assert place.restore(place.save("pkg/a.py"), folder) == []
    assert place.list_names() == ["pkg", "pkg/__pycache__", "pkg/a.py"]


def test_file_that_was_renamed_is_restored(place: Place) -> None:
    """The saved contents are a hard link to the file itself, so nothing has to be renamed."""
    change = place.save("a", mode=0o644)
    assert change.kept is not None
    saved = place.steps / change.kept.path
    (place.top / "a").hardlink_to(saved)
    (place.top / "a").chmod(0o600)
    os.utime(place.top / "a", (9, 9))
    assert place.restore(change) == []
    info = (place.top / "a").stat()
    assert (info.st_ino, stat.S_IMODE(info.st_mode), info.st_mtime) == (saved.stat().st_ino, 0o644, 5)


def test_path_on_another_file_system_is_copied(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real_replace = os.replace

    def replace(source: str, target: str) -> None:
        if source.startswith(str(place.stage)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real_replace(source, target)

    monkeypatch.setattr(os, "replace", replace)
    assert (
        place.restore(place.save("a"), PathChange("b", PathState("link", 0, 0, 0, target="x"), None, None))
        == []
    )
    info = (place.top / "a").stat()
    assert ((place.top / "a").read_bytes(), stat.S_IMODE(info.st_mode), info.st_mtime) == (b"old", 0o640, 5)
    assert (place.top / "b").readlink().name == "x"
    assert place.list_names() == ["a", "b"]


def test_staged_files_are_made_anew_after_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    change, other = place.save("a"), place.save("b")
    restorer = Restorer(str(place.top), str(place.stage), SavedContents(str(place.steps)), [change, other])
    restorer.stage_files()
    restorer.stage_files()
    assert sorted(path.name for path in place.stage.iterdir()) == ["0", "1"]
    assert place.list_names() == []
    restorer.apply()
    assert place.list_names() == ["a", "b"]
