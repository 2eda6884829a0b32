"""Recordings from other users: an invalid recording is refused with a message, and nothing is extracted."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.system import RecordedSystem, archive

HOST = b'{"schema_version": 1, "files": {"/etc/hostname": "h"}}'
FILES = {"host.json": HOST, "root/etc/os-release": b"ID=debian\n", "manifest.json": b"{}"}


def make_tar(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """Return a compressed tar archive with these members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive_file:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive_file.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive_file.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


def list_names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted."""
    return sorted(entry.name for entry in folder.iterdir())


def make_special_member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """Return an empty tar member of the type `kind`."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_written_recording_is_read_back(tmp_path: Path) -> None:
    for name in ("a.tar.gz", "a"):
        archive.write_recording(tmp_path / name, FILES, force=False)
        system = RecordedSystem(tmp_path / name)
        assert system.read_text("/etc/os-release") == "ID=debian\n"
        assert archive.read_recording(tmp_path / name) == FILES
    assert archive.make_archive(FILES) == archive.make_archive(dict(reversed(FILES.items())))
    assert list_names(tmp_path) == ["a", "a.tar.gz"]


def test_manually_packed_folder_is_read() -> None:
    packed = make_tar(
        make_special_member("mine", tarfile.DIRTYPE),
        *((f"./mine/{name}", data) for name, data in FILES.items()),
    )
    assert archive.read_archive(packed, "x") == FILES


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        gzip.compress(b""),
        gzip.compress(b"no tar" * 200),
        make_tar(("host.json", HOST))[:-30],
        make_tar(("other", b"")),
        make_tar(("host.json", HOST), ("../out", b"")),
        make_tar(("host.json", HOST), ("/etc/out", b"")),
        make_tar(("host.json", HOST), ("a/../../out", b"")),
        make_tar(("host.json", HOST), ("a\\..\\out", b"")),
        make_tar(("host.json", HOST), ("./host.json", HOST)),
        make_tar(("host.json", HOST), make_special_member("root/a", tarfile.SYMTYPE, "/etc/passwd")),
        make_tar(("host.json", HOST), make_special_member("root/a", tarfile.LNKTYPE, "host.json")),
        make_tar(("host.json", HOST), make_special_member("root/a", tarfile.CHRTYPE)),
        make_tar(("host.json", HOST), make_special_member("root/a", tarfile.FIFOTYPE)),
        gzip.compress(b"\0" * (archive.MAX_TOTAL_BYTES + 2), compresslevel=1),
        make_tar(("host.json", b"[" * 100_000)),
        make_tar(("host.json", b"\xff\xfe")),
    ],
    ids=lambda content: f"{len(content)} bytes",  # gzip writes the time, so the bytes are no stable ID
)
def test_invalid_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        RecordedSystem(path)
    assert list_names(tmp_path) == ["x.tar.gz"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2000), st.binary(min_size=1, max_size=8))
def test_damaged_recording_raises_only_usage_errors(at: int, noise: bytes) -> None:
    content = gzip.decompress(make_tar(*FILES.items()))
    damaged = content[: at % len(content)] + noise + content[at % len(content) + len(noise) :]
    try:
        files = archive.read_archive(gzip.compress(damaged, compresslevel=1), "x")
        RecordedSystem(files)
    except UsageError:
        pass


def test_links_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    archive.write_recording(tmp_path / "b", FILES, force=False)
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    (tmp_path / "b/root/etc/inside").symlink_to("os-release")
    RecordedSystem(tmp_path / "b")
    (tmp_path / "b/root/etc/leak").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="leads out"):
        RecordedSystem(tmp_path / "b")
    (tmp_path / "b/root/etc/leak").unlink()
    (tmp_path / "b/root/up").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="leads out"):
        RecordedSystem(tmp_path / "b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_fifo_does_not_block_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar.gz")
    with pytest.raises(UsageError):
        RecordedSystem(tmp_path / "x.tar.gz")
    archive.write_recording(tmp_path / "b", FILES, force=False)
    os.mkfifo(tmp_path / "b/root/pipe")
    with pytest.raises(UsageError):
        RecordedSystem(tmp_path / "b")


def test_force_replaces_only_a_recording(tmp_path: Path) -> None:
    for name in ("b", "b.tar.gz"):
        target = tmp_path / name
        archive.write_recording(target, FILES, force=False)
        with pytest.raises(UsageError, match="exists"):
            archive.write_recording(target, FILES, force=False)
        archive.write_recording(target, {**FILES, "root/new": b"1"}, force=True)
        assert "root/new" in archive.read_recording(target)
    (tmp_path / "b/own.txt").touch()
    with pytest.raises(UsageError, match="no recording"):
        archive.write_recording(tmp_path / "b", FILES, force=True)
    (tmp_path / "other.tar.gz").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    for name in ("other.tar.gz", "link"):
        with pytest.raises(UsageError, match="no recording"):
            archive.write_recording(tmp_path / name, FILES, force=True)
    assert (tmp_path / "other.tar.gz").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["b", "b.tar.gz"])
def test_failed_write_leaves_no_files_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    archive.write_recording(tmp_path / name, FILES, force=False)
    for error, raised in (
        (OSError(28, "No space left on device"), Error),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        for method in ("rename", "replace"):
            monkeypatch.setattr(Path, method, fail)
        with pytest.raises(raised):
            archive.write_recording(tmp_path / name, {**FILES, "root/new": b"1"}, force=True)
        monkeypatch.undo()
        assert list_names(tmp_path) == [name]
        assert archive.read_recording(tmp_path / name) == FILES
