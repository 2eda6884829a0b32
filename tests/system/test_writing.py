"""Files that the user names are written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import threading
from pathlib import Path

import pytest

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.system import writing


@pytest.mark.parametrize(
    ("name", "force", "message"),
    [
        ("", True, "no name of a file"),
        ("a\0b", True, "no name of a file"),
        ("link", True, "symbolic link"),
        ("dangling", True, "symbolic link"),
        ("folder", True, "is a folder"),
        ("missing/new", True, "there is no folder"),
        ("file", False, "exists"),
        ("source", True, "what this command reads"),
        ("hardlink", True, "what this command reads"),
        ("read/inside", True, "what this command reads"),
        ("file/below", True, "there is no folder"),
    ],
)
def test_invalid_target_is_refused(tmp_path: Path, name: str, force: bool, message: str) -> None:
    for folder in ("folder", "read"):
        (tmp_path / folder).mkdir()
    for file in ("file", "source", "read/inside"):
        (tmp_path / file).write_text("old")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "hardlink").hardlink_to(tmp_path / "source")
    inputs = (None, str(tmp_path / "source"), tmp_path / "read", tmp_path / "absent")
    with pytest.raises(UsageError, match=message):
        writing.check_output_file(
            tmp_path / name if name else Path(), force=force, input_paths=inputs, option="--save"
        )
    writing.check_output_file(tmp_path / "file", force=True, input_paths=inputs)
    writing.check_output_file(tmp_path / "new", force=False, input_paths=inputs)


def test_read_only_folder_is_refused_for_new_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path).is_file())
    with pytest.raises(Error, match="may not write"):
        writing.check_output_file(tmp_path / "new", force=True)
    writing.check_output_file(tmp_path / "file", force=True)


@pytest.mark.parametrize(
    ("target", "descriptor"),
    [
        ("/dev/stdout", 1),
        ("/dev/stderr", 2),
        ("/dev/fd/7", 7),
        ("/proc/self/fd/12", 12),
        ("/proc/thread-self/fd/3", 3),
        ("/dev/fd/x", None),
        ("/dev/null", None),
    ],
)
def test_descriptor_paths(target: str, descriptor: int | None) -> None:
    assert writing._get_descriptor(Path(target)) == descriptor


def test_descriptor_is_written_at_its_position_and_stays_open(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as stream:
        stream.write(b"before ")
        stream.flush()
        writing.write_file(Path(f"/dev/fd/{stream.fileno()}"), b"after", force=False)
        stream.write(b" end")
    assert (tmp_path / "out").read_bytes() == b"before after end"
    with pytest.raises(Error, match="could not be written"):
        writing.write_file(Path("/dev/fd/999"), b"x", force=False)


def test_file_is_created_and_replaced_with_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "report"
    writing.write_file(target, b"one", force=False)
    with pytest.raises(UsageError, match="exists"):
        writing.write_file(target, b"two", force=False)
    target.chmod(0o640)
    writing.write_file(target, b"two", force=True)
    assert target.read_bytes() == b"two"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_pipe_is_written_when_a_program_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(writing, "PIPE_TIMEOUT_S", 0.1)
    with pytest.raises(Error, match="nobody reads this pipe"):
        writing.write_file(pipe, b"x", force=False)
    monkeypatch.setattr(writing, "PIPE_TIMEOUT_S", 10)
    contents: list[bytes] = []
    reader = threading.Thread(target=lambda: contents.append(pipe.read_bytes()))
    reader.start()
    large = b"x" * 300_000  # more than a pipe holds, so that the descriptor must block
    writing.write_file(pipe, large, force=False)
    reader.join(10)
    assert contents == [large]


@pytest.mark.parametrize(
    ("error_number", "force", "content"),
    [(errno.EXDEV, True, b"new"), (errno.EACCES, True, b"new"), (errno.ENOSPC, True, b"old")],
)
def test_file_that_cannot_be_replaced_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_number: int, force: bool, content: bytes
) -> None:
    target = tmp_path / "mounted"
    target.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(error_number, "refused")

    monkeypatch.setattr(writing, "place_file", fail)
    if content == b"old":
        with pytest.raises(Error, match="refused"):
            writing.write_file(target, b"new", force=force)
    else:
        writing.write_file(target, b"new", force=force)
    assert target.read_bytes() == content
    for name, is_forced in (("absent", True), ("mounted", False)):
        with pytest.raises(OSError, match="refused"):
            writing._replace_file(tmp_path / name, b"new", force=is_forced)


@pytest.mark.parametrize("has_links", [True, False])
def test_existing_file_is_kept_without_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """The file can appear after the check; some file systems have no hard links."""
    if not has_links:

        def fail(*_: object) -> None:
            raise PermissionError(errno.EPERM, "no links")

        monkeypatch.setattr(os, "link", fail)
    target = tmp_path / "file"
    writing.place_file(target, b"first", force=False)
    with pytest.raises(FileExistsError) as caught:
        writing.place_file(target, b"second", force=False)
    assert caught.value.errno == errno.EEXIST
    assert target.read_bytes() == b"first"
    writing.place_file(target, b"third", force=True)
    assert target.read_bytes() == b"third"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_lines_are_appended_to_regular_files_only(tmp_path: Path) -> None:
    writing.append_line(tmp_path / "log", "ä")
    writing.append_line(tmp_path / "log", "b")
    assert (tmp_path / "log").read_bytes() == "ä\nb\n".encode()
    (tmp_path / "link").symlink_to("log")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=r"levels of symbolic links|not a regular file"):
            writing.append_line(tmp_path / name, "x")
    os.close(reader)


def test_scratch_folders_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    leftover = tmp_path / f"{writing.SCRATCH_PREFIX}old"
    (leftover / "inside").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    with writing.make_scratch_folder() as first:
        assert not leftover.exists()
        with writing.make_scratch_folder() as second:
            assert first.is_dir()
            assert second.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    leftover.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: leftover.stat().st_uid + 1)
    with writing.make_scratch_folder():
        assert leftover.is_dir()  # it belongs to another user


def test_full_disk_is_noticed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing.check_output_file(tmp_path / "new", force=False)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(Error, match="no space left"):
        writing.check_output_file(tmp_path / "new", force=False)
    with pytest.raises(Error, match="No space left"):
        writing.check_output_file(Path("/dev/full"), force=False)


def test_dash_is_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with contextlib.chdir(tmp_path) if sys.version_info >= (3, 11) else contextlib.nullcontext():
        writing.write_file(Path("-"), b"text", force=False)
    assert capfd.readouterr().out == "text"
    assert list(tmp_path.iterdir()) == []
