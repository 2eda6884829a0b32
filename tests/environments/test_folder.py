"""Files of an environment are written completely or not at all, and only named files are removed."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from tfdoctor.environments.folder import (
    acquire_lock,
    get_unfinished_path,
    remove_path,
    sync_paths,
    write_atomically,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")


def list_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def get_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "activate"
    path.write_bytes(b"old")
    path.chmod(0o751)
    write_atomically(path, b"new")
    assert (path.read_bytes(), get_mode(path)) == (b"new", 0o751)
    assert list_names(tmp_path) == ["activate"]


def test_mode_of_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "any", b"text")
        write_atomically(tmp_path / "own", b"text", is_private=True)
    finally:
        os.umask(before)
    assert (get_mode(tmp_path / "any"), get_mode(tmp_path / "own")) == (0o640, 0o600)


@pytest.mark.parametrize("name", ["fsync", "replace", "fchmod"])
def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "activate"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list_names(tmp_path) == ["activate"]


def test_unfinished_file_is_replaced_without_following_links(tmp_path: Path) -> None:
    path, precious = tmp_path / "activate", tmp_path / "precious"
    precious.write_bytes(b"precious")
    Path(get_unfinished_path(path)).symlink_to(precious)
    write_atomically(path, b"new")
    assert (path.read_bytes(), precious.read_bytes()) == (b"new", b"precious")
    assert not path.is_symlink()
    assert not os.path.lexists(get_unfinished_path(path))


def test_link_is_removed_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below" / "file").write_bytes(b"")
    link = tmp_path / "link"
    link.symlink_to("folder")
    for _ in range(2):  # nothing exists the second time
        remove_path(link)
    assert (tmp_path / "folder" / "below" / "file").exists()
    for _ in range(2):
        remove_path(tmp_path / "folder")
    assert not list_names(tmp_path)


def test_lock_of_a_deleted_folder_is_taken_again(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    calls = []

    def make_folder() -> None:
        folder.mkdir(exist_ok=True)
        calls.append(folder)
        if len(calls) == 1:
            folder.rmdir()  # as another process may do before the lock is opened

    handle = acquire_lock(f"{folder}/lock", make_folder, lambda _: pytest.fail("nobody holds it"))
    try:
        assert len(calls) == 2
        assert os.path.samestat(os.fstat(handle), os.lstat(folder / "lock"))
    finally:
        os.close(handle)


def test_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic link"):
        acquire_lock(str(tmp_path / "lock"), lambda: None, lambda _: None)


def test_many_files_are_synced_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: calls.append("all"))
    real_fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("one"), real_fsync(handle)))
    sync_paths([str(tmp_path)] * 3)
    sync_paths([str(tmp_path)] * 100)
    assert calls == ["one", "one", "one", "all"]
