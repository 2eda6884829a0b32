"""Files of an environment are there wholly or not at all; what is removed is what was named."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from tfdoctor.environment.folder import lock, remove, sync, unwritten, write

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments are changed on POSIX alone")


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "activate"
    path.write_bytes(b"old")
    path.chmod(0o751)
    write(path, b"new")
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o751)
    assert names(tmp_path) == ["activate"]


def test_a_new_file_is_as_any_other_or_private(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "any", b"text")
        write(tmp_path / "own", b"text", private=True)
    finally:
        os.umask(before)
    assert (mode_of(tmp_path / "any"), mode_of(tmp_path / "own")) == (0o640, 0o600)


@pytest.mark.parametrize("name", ["fsync", "replace", "fchmod"])
def test_what_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "activate"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="No space"):
        write(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["activate"]


def test_what_a_kill_left_is_written_over_and_no_link_is_followed(tmp_path: Path) -> None:
    path, precious = tmp_path / "activate", tmp_path / "precious"
    precious.write_bytes(b"precious")
    Path(unwritten(path)).symlink_to(precious)
    write(path, b"new")
    assert (path.read_bytes(), precious.read_bytes()) == (b"new", b"precious")
    assert not path.is_symlink()
    assert not os.path.lexists(unwritten(path))


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below" / "file").write_bytes(b"")
    link = tmp_path / "link"
    link.symlink_to("folder")
    for _ in range(2):  # nothing is there the second time
        remove(link)
    assert (tmp_path / "folder" / "below" / "file").exists()
    for _ in range(2):
        remove(tmp_path / "folder")
    assert not names(tmp_path)


def test_the_lock_of_a_folder_that_was_deleted_meanwhile_is_taken_anew(tmp_path: Path) -> None:
    own = tmp_path / "own"
    made = []

    def make() -> None:
        own.mkdir(exist_ok=True)
        made.append(own)
        if len(made) == 1:
            own.rmdir()  # by another process, before the lock is opened

    handle = lock(f"{own}/lock", make, lambda _: pytest.fail("nobody holds it"))
    try:
        assert len(made) == 2
        assert os.path.samestat(os.fstat(handle), os.lstat(own / "lock"))
    finally:
        os.close(handle)


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic link"):
        lock(str(tmp_path / "lock"), lambda: None, lambda _: None)


def test_few_files_and_many_go_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: told.append("all"))
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (told.append("one"), real(handle)))
    sync([str(tmp_path)] * 3)
    sync([str(tmp_path)] * 100)
    assert told == ["one", "one", "one", "all"]
