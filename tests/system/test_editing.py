"""Edits of a user's file change nothing else of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tfdoctor.core.edits import Edit, EditError
from tfdoctor.system import editing

OLD = b"import a\nb = 1\n"
EDITS = (Edit(13, b"1", b"22"),)
NEW = b"import a\nb = 22\n"


def make_file(tmp_path: Path, mode: int = 0o640) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(OLD)
    path.chmod(mode)
    return path


def test_file_is_replaced_with_an_edited_copy(tmp_path: Path) -> None:
    path = make_file(tmp_path)
    inode = path.stat().st_ino
    (tmp_path / "link.py").symlink_to("train.py")
    editing.edit_file(tmp_path / "link.py", OLD, EDITS)
    assert path.read_bytes() == NEW
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino != inode
    assert (tmp_path / "link.py").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.py", "train.py"]


def test_hard_link_is_overwritten_in_place(tmp_path: Path) -> None:
    path = make_file(tmp_path)
    (tmp_path / "other.py").hardlink_to(path)
    editing.edit_file(path, OLD, EDITS)
    assert (tmp_path / "other.py").read_bytes() == NEW
    editing.edit_file(path, NEW, (Edit(0, b"import a\n", b""),))
    assert (tmp_path / "other.py").read_bytes() == b"b = 22\n"  # nothing of the longer content is left


def test_file_whose_owner_cannot_be_kept_is_overwritten_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_file(tmp_path)
    inode = path.stat().st_ino
    monkeypatch.setattr(editing, "_write_copy", lambda *_: False)
    editing.edit_file(path, OLD, EDITS)
    assert (path.stat().st_ino, path.read_bytes()) == (inode, NEW)


@pytest.mark.parametrize("call", ["chmod", "setxattr", "chown"])
def test_copy_without_the_same_metadata_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = make_file(tmp_path)
    status = path.stat()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(1, "not permitted")

    monkeypatch.setattr(os, call, fail)
    monkeypatch.setattr(
        Path, "chmod", fail if call == "chmod" else Path.chmod
    )  # Python 3.10 has its own os.chmod
    monkeypatch.setattr(os, "listxattr", lambda target: ["user.a"] if target == path else [])
    monkeypatch.setattr(os, "getxattr", lambda *_: b"1")
    if call == "chown":
        fields = list(status)
        fields[stat.ST_UID] += 1
        status = os.stat_result(fields)
    assert not editing._write_copy(path, status, tmp_path / "copy", NEW)


def test_equal_attributes_are_not_set_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_file(tmp_path)
    written: list[tuple[str, bytes]] = []
    values = {(path, "user.a"): b"1", (path, "user.b"): b"2", (path, "user.c"): b"3"}
    copy = tmp_path / "copy"
    values |= {(copy, "user.a"): b"1", (copy, "user.b"): b"old"}
    monkeypatch.setattr(os, "listxattr", lambda target: [name for at, name in values if at == target])
    monkeypatch.setattr(os, "getxattr", lambda target, name: values[target, name])
    monkeypatch.setattr(os, "setxattr", lambda _, name, value: written.append((name, value)))
    monkeypatch.setattr(os, "chown", lambda *_: pytest.fail("the owner is the same"))
    assert editing._write_copy(path, path.stat(), copy, NEW)
    assert written == [("user.b", b"2"), ("user.c", b"3")]


def test_invalid_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_file(tmp_path)
    for content in (OLD[:-1], OLD + b"#", b"x" * len(OLD)):
        with pytest.raises(EditError, match="has changed"):
            editing.edit_file(path, content, ())
    path.chmod(0o440)
    with pytest.raises(EditError, match="read-only"):
        editing.edit_file(path, OLD, EDITS)
    path.chmod(0o640)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(EditError, match="read-only"):
        editing.edit_file(path, OLD, EDITS)
    with pytest.raises(EditError, match="not a regular file"):
        editing.edit_file(type(path)("/dev/null"), b"", ())
    with pytest.raises(EditError, match="No such file"):
        editing.edit_file(tmp_path / "absent", b"", ())
    assert path.read_bytes() == OLD


def test_old_content_is_restored_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_file(tmp_path)
    (tmp_path / "other.py").hardlink_to(path)
    write = os.write

    def fill(descriptor: int, data: Any) -> int:
        if bytes(data) == NEW[4:]:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:4])  # a short write is continued

    monkeypatch.setattr(os, "write", fill)
    with pytest.raises(EditError, match="No space left"):
        editing.edit_file(path, OLD, EDITS)
    assert path.read_bytes() == OLD
