"""Recordings that somebody sent: what is no recording is refused in a sentence, and nothing is unpacked."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdoctor.errors import Error, UsageError
from tfdoctor.system import RecordedSystem, archive

HOST = b'{"schema_version": 1, "files": {"/etc/hostname": "h"}}'
GOOD = {"host.json": HOST, "root/etc/os-release": b"ID=debian\n", "manifest.json": b"{}"}


def tar(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                made.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                made.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    for name in ("a.tar.gz", "a"):
        archive.write(tmp_path / name, GOOD, force=False)
        system = RecordedSystem(tmp_path / name)
        assert system.read_text("/etc/os-release") == "ID=debian\n"
        assert archive.read(tmp_path / name) == GOOD
    assert archive.archive(GOOD) == archive.archive(dict(reversed(GOOD.items())))
    assert names(tmp_path) == ["a", "a.tar.gz"]


def test_a_folder_packed_by_hand_is_read() -> None:
    packed = tar(special("mine", tarfile.DIRTYPE), *((f"./mine/{name}", data) for name, data in GOOD.items()))
    assert archive.read_archive(packed, "x") == GOOD


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        gzip.compress(b""),
        gzip.compress(b"no tar" * 200),
        tar(("host.json", HOST))[:-30],
        tar(("other", b"")),
        tar(("host.json", HOST), ("../out", b"")),
        tar(("host.json", HOST), ("/etc/out", b"")),
        tar(("host.json", HOST), ("a/../../out", b"")),
        tar(("host.json", HOST), ("a\\..\\out", b"")),
        tar(("host.json", HOST), ("./host.json", HOST)),
        tar(("host.json", HOST), special("root/a", tarfile.SYMTYPE, "/etc/passwd")),
        tar(("host.json", HOST), special("root/a", tarfile.LNKTYPE, "host.json")),
        tar(("host.json", HOST), special("root/a", tarfile.CHRTYPE)),
        tar(("host.json", HOST), special("root/a", tarfile.FIFOTYPE)),
        gzip.compress(b"\0" * (archive.MAX_BYTES + 2), compresslevel=1),
        tar(("host.json", b"[" * 100_000)),
        tar(("host.json", b"\xff\xfe")),
        tar(("host.json", b'{"schema_version": 1, "env": {"A": 1}}')),
        tar(("host.json", b'{"schema_version": 1, "commands": []}')),
        tar(("host.json", b'{"schema_version": 1, "commands": {"x": {"failure": "eaten"}}}')),
        tar(("host.json", b'{"schema_version": 1, "elf": {"/x": {"needed": "libc"}}}')),
        tar(("host.json", b'{"schema_version": 1, "errors": {"/x": [1]}}')),
        tar(("host.json", b'{"schema_version": 1, "cwd": 5}')),
    ],
    ids=lambda content: f"{len(content)} bytes",  # gzip writes the time: the bytes are no name
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        RecordedSystem(path)
    assert names(tmp_path) == ["x.tar.gz"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2000), st.binary(min_size=1, max_size=8))
def test_damage_is_refused_or_harmless(at: int, noise: bytes) -> None:
    plain = gzip.decompress(tar(*GOOD.items()))
    damaged = plain[: at % len(plain)] + noise + plain[at % len(plain) + len(noise) :]
    try:
        files = archive.read_archive(gzip.compress(damaged, compresslevel=1), "x")
        RecordedSystem(files)
    except UsageError:
        pass


def test_links_out_of_a_folder_are_refused(tmp_path: Path) -> None:
    archive.write(tmp_path / "b", GOOD, force=False)
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
def test_a_fifo_does_not_hang_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar.gz")
    with pytest.raises(UsageError):
        RecordedSystem(tmp_path / "x.tar.gz")
    archive.write(tmp_path / "b", GOOD, force=False)
    os.mkfifo(tmp_path / "b/root/pipe")
    with pytest.raises(UsageError):
        RecordedSystem(tmp_path / "b")


def test_only_a_recording_is_replaced(tmp_path: Path) -> None:
    for name in ("b", "b.tar.gz"):
        target = tmp_path / name
        archive.write(target, GOOD, force=False)
        with pytest.raises(UsageError, match="exists"):
            archive.write(target, GOOD, force=False)
        archive.write(target, {**GOOD, "root/new": b"1"}, force=True)
        assert "root/new" in archive.read(target)
    (tmp_path / "b/own.txt").touch()
    with pytest.raises(UsageError, match="no recording"):
        archive.write(tmp_path / "b", GOOD, force=True)
    (tmp_path / "other.tar.gz").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    for name in ("other.tar.gz", "link"):
        with pytest.raises(UsageError, match="no recording"):
            archive.write(tmp_path / name, GOOD, force=True)
    assert (tmp_path / "other.tar.gz").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["b", "b.tar.gz"])
def test_a_full_disk_and_an_interrupt_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    archive.write(tmp_path / name, GOOD, force=False)
    for error, seen in (
        (OSError(28, "No space left on device"), Error),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        for step in ("rename", "replace"):
            monkeypatch.setattr(Path, step, fail)
        with pytest.raises(seen):
            archive.write(tmp_path / name, {**GOOD, "root/new": b"1"}, force=True)
        monkeypatch.undo()
        assert names(tmp_path) == [name]
        assert archive.read(tmp_path / name) == GOOD
