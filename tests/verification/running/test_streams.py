"""Reading of logs: compressed, damaged, endless and growing files."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from typing import TYPE_CHECKING

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.verification.running import archives, streams
from tfdoctor.verification.running.streams import CHUNK_BYTES, follow, read_log
from tfdoctor.verification.running.watch import LogWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tfdoctor.logs.report import LogReport

TEXT = b"".join(b"line %d of a log\n" % number for number in range(20_000))
zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd program")


def read_with_notes(path: Path) -> tuple[bytes, list[str]]:
    """Return the content of a log and the notes about it."""
    notes: list[str] = []
    return b"".join(read_log(str(path), on_note=notes.append)), notes


def compress_lzma(data: bytes) -> bytes:
    """Compress with the fastest preset."""
    return lzma.compress(data, preset=0)


def compress_zstd(data: bytes) -> bytes:
    """Compress with the zstd program."""
    program = shutil.which("zstd") or ""
    return subprocess.run([program, "-qc"], input=data, capture_output=True, check=True, timeout=60).stdout


@pytest.fixture(params=["own", "package", "program"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Allow only one of the zstd decoders: the standard library, the zstandard package or the zstd program."""
    modules = {"own": "compression.zstd", "package": "zstandard"}
    allowed = modules.get(request.param)
    if allowed is not None and (
        sys.version_info < (3, 14) if allowed == "compression.zstd" else not _is_installed(allowed)
    ):
        pytest.skip(f"no {allowed}")
    import_module = streams._import_module
    monkeypatch.setattr(
        streams, "_import_module", lambda name: import_module(name) if name == allowed else None
    )
    return str(request.param)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_every_compression_format(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(TEXT))
    assert read_with_notes(path) == (TEXT, [])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_several_members_and_padding(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(TEXT) + pack(b"more\n") + b"\0" * 512)
    assert read_with_notes(path) == (TEXT + b"more\n", [])


@zstd
def test_zstd(tmp_path: Path, decoder: str) -> None:
    path = tmp_path / "log.zst"
    path.write_bytes(compress_zstd(TEXT) + compress_zstd(b"more\n"))
    assert read_with_notes(path) == (TEXT + b"more\n", [])


@zstd
def test_truncated_zstd(tmp_path: Path, decoder: str) -> None:
    path = tmp_path / "log.zst"
    noise = os.urandom(500_000).hex().encode()
    path.write_bytes(compress_zstd(TEXT + noise)[:-1000])
    data, notes = read_with_notes(path)
    assert data.startswith(TEXT)
    assert len(notes) == 1
    assert "damaged" in notes[0]


def test_decoder_without_an_output_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets little input at once, and keeps the rest for the next call."""

    class Inner:
        eof, unused_data, sizes = False, b"", list[int]()

        def decompress(self, data: bytes) -> bytes:
            self.sizes.append(len(data))
            self.eof = data.endswith(b"end")
            return data * 10

    monkeypatch.setattr(streams, "_UNLIMITED_CHUNK_BYTES", 4)
    monkeypatch.setattr(streams, "_DECODE_BYTES", 80)
    decoder = streams._UnlimitedDecoder(Inner())
    assert decoder.needs_input
    assert len(decoder.decompress(b"x" * 12)) == 80
    assert (decoder.needs_input, decoder._inner.sizes) == (False, [4, 4])
    assert decoder.decompress(b"") == b"x" * 40
    assert decoder.needs_input
    assert not decoder.eof
    assert decoder.decompress(b"yendnext") == b"yend" * 10
    assert (decoder.eof, decoder.unused_data) == (True, b"next")
    assert decoder.decompress(b"") == b""


def test_zstd_without_a_decoder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_import_module", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 100)
    with pytest.raises(UsageError, match="zstd"):
        read_with_notes(path)


def test_hanging_zstd_program_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "zstd"
    program.write_text("#!/bin/sh\nexec sleep 30\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(streams, "_import_module", lambda _: None)
    monkeypatch.setattr(streams, "ZSTD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(streams.shutil, "which", lambda *_, **__: str(program))
    path = tmp_path / "log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 100)
    began = time.monotonic()
    with pytest.raises(UsageError, match="does not answer"):
        read_with_notes(path)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, compress_lzma])
@pytest.mark.parametrize("kind", ["truncated", "broken", "followed by garbage"])
def test_damaged_file_is_read_up_to_the_damage(
    tmp_path: Path, pack: Callable[[bytes], bytes], kind: str
) -> None:
    noise = os.urandom(700_000).hex().encode()  # more than one bzip2 block follows the text
    content = bytearray(pack(TEXT + noise))
    if kind == "truncated":
        del content[-1000:]
    elif kind == "broken":
        middle = len(content) * 3 // 4
        content[middle : middle + 64] = bytes(64)
    else:
        content += b"garbage" * 9
    path = tmp_path / "log"
    path.write_bytes(bytes(content))
    data, notes = read_with_notes(path)
    assert data.startswith(TEXT)
    assert len(notes) == 1
    assert "damaged" in notes[0]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_bomb_is_read_in_small_chunks(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(b"a" * 50_000_000))
    sizes = [len(chunk) for chunk in read_log(str(path), on_note=pytest.fail)]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= CHUNK_BYTES


@zstd
def test_zstd_bomb_is_read_in_small_chunks(tmp_path: Path, decoder: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(compress_zstd(b"a" * 50_000_000))
    sizes = [len(chunk) for chunk in read_log(str(path), on_note=pytest.fail)]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= 20 * CHUNK_BYTES


@pytest.mark.parametrize("inner", [gzip.compress, bz2.compress, compress_lzma])
@pytest.mark.parametrize("outer", [gzip.compress, bz2.compress, compress_lzma])
def test_twice_compressed_log_is_read(
    tmp_path: Path, inner: Callable[[bytes], bytes], outer: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(outer(inner(TEXT)))
    assert read_with_notes(path) == (TEXT, [])


def test_deeply_nested_compression_is_refused(tmp_path: Path) -> None:
    data = TEXT
    for _ in range(4):
        data = gzip.compress(data)
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="packed more than 3 times"):
        read_with_notes(path)


@pytest.mark.few(1)
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, compress_lzma])
def test_bomb_is_cut_and_the_cut_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(streams, "MIN_BOMB_BYTES", 4 << 20)
    path = tmp_path / "log"
    path.write_bytes(pack(TEXT + bytes(30 << 20)))
    data, notes = read_with_notes(path)
    assert data.startswith(TEXT)
    assert 4 << 20 <= len(data) < 12 << 20
    assert notes == [
        f"{path} unpacks to more than 100 times its size: only its first {len(data) >> 20} MiB are read."
    ]
    path.write_bytes(pack(os.urandom(1 << 20).hex().encode() * 3))  # a log of the same size
    assert read_with_notes(path)[1] == []


def make_tar(name: str, *, pax: bool = False) -> bytes:
    """Return a tar archive with TEXT in the member `name`."""
    file = io.BytesIO()
    with tarfile.open(
        fileobj=file, mode="w", format=tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT
    ) as archive:
        member = tarfile.TarInfo(name)
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT))
    return file.getvalue()


def make_zip(name: str) -> bytes:
    """Return a zip archive with TEXT in the member `name`."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, TEXT)
    return file.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, compress_lzma])
@pytest.mark.parametrize(
    ("data", "words", "hint"),
    [
        (make_tar("logs/train.log"), "tar archive", "tar -xOf {0} logs/train.log | tfdoctor diagnose -"),
        (make_tar("a log"), "tar archive", "tar -xOf {0} 'a log' | tfdoctor diagnose -"),
        (make_tar("a\x1b[31mlog; rm"), "tar archive", "tar -xOf {0} MEMBER | tfdoctor diagnose -"),
        (make_tar("x" * 300, pax=True), "tar archive", "tar -xOf {0} MEMBER |"),
        (make_zip("0_build.txt"), "zip archive", "unzip -p {0} 0_build.txt | tfdoctor diagnose -"),
        (make_zip("$(reboot)"), "zip archive", "unzip -p {0} MEMBER | tfdoctor diagnose -"),
        (make_zip("folder/"), "zip archive", "unzip -p {0} MEMBER | tfdoctor diagnose -"),
        (b"PK\x05\x06" + b"name" * 200, "zip archive", "unzip -p {0} MEMBER | tfdoctor diagnose -"),
        (make_tar("-x"), "tar archive", "tar -xOf {0} MEMBER |"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(900), "7-Zip", "7z e -so {0} |"),
        (b"\x1f\x9d" + os.urandom(900), "compress", "uncompress -c {0} |"),
    ],
    ids=range(11),
)
def test_archive_is_refused_with_a_hint(
    tmp_path: Path, pack: Callable[[bytes], bytes], data: bytes, words: str, hint: str
) -> None:
    path = tmp_path / "it"
    path.write_bytes(pack(data))
    with pytest.raises(UsageError, match=words) as caught:
        read_with_notes(path)
    assert hint.format(path) in (caught.value.hint or "")
    if pack is bytes:
        with pytest.raises(UsageError, match=words):
            next(follow(str(path), lambda: False))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(TEXT), "packed"),
        (lzma.compress(b"x"), "packed"),
        (b"\x28\xb5\x2f\xfd" + b"text", "packed"),
        (bytes(range(256)) * 4, "not a text"),
    ],
)
def test_packed_log_is_not_followed(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(UsageError, match=f"cannot be followed: it is {reason}"):
        next(follow(str(tmp_path / "log"), lambda: False))


def test_tar_header_is_recognized_by_its_sum() -> None:
    head = make_tar("x")[:512]
    assert archives._is_tar(head)
    assert not archives._is_tar(head[:511])
    assert not archives._is_tar(bytes(512))
    assert not archives._is_tar(head[:10] + b"x" + head[11:])
    assert not archives._is_tar(head[:148] + b"no digit" + head[156:])
    archives.refuse_archive(head[:511], "x", None)
    with pytest.raises(UsageError) as caught:
        archives.refuse_archive(head, "x", None)
    assert "tar -xOf FILE x |" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        archives.refuse_archive(head, "x", "a\nb")
    assert "tar -xOf FILE x |" in caught.value.hint
    folder = head[:156] + b"5" + head[157:]
    folder = folder[:148] + b"%06o\0 " % (sum(folder[:148]) + sum(folder[156:]) + 8 * 32) + folder[156:]
    with pytest.raises(UsageError) as caught:
        archives.refuse_archive(folder, "x", "file")
    assert "tar -xOf file MEMBER |" in caught.value.hint


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, compress_lzma])
@pytest.mark.parametrize("cut", [0, 5000])
def test_compressed_noise_is_refused(tmp_path: Path, pack: Callable[[bytes], bytes], cut: int) -> None:
    path = tmp_path / "log"
    data = pack(b"\x00\x01" + os.urandom(50_000))
    path.write_bytes(data[: len(data) - cut])
    with pytest.raises(UsageError, match=r"is not a text|cannot be unpacked"):
        read_with_notes(path)


def test_leading_nuls_before_text_and_noise(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(3 << 20) + TEXT)
    assert read_with_notes(path) == (bytes(3 << 20) + TEXT, [])
    path.write_bytes(bytes(3 << 20) + os.urandom(50_000))
    with pytest.raises(UsageError, match="not a text"):
        read_with_notes(path)


def test_meter_counts_compressed_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(TEXT))
    counts: list[tuple[int, int]] = []
    for _ in read_log(str(path), on_note=pytest.fail, meter=lambda *count: counts.append(count)):
        pass
    assert counts[-1] == (path.stat().st_size, path.stat().st_size)


# ---------------------------------------------------------------- following


class FollowThread:
    """`follow` in a thread, with the bytes and the error that it produced."""

    def __init__(self, path: Path) -> None:
        self.content = b""
        self.stopped = False
        self.error: UsageError | None = None
        self.thread = threading.Thread(target=self._run, args=(str(path),))
        self.thread.start()

    def _run(self, name: str) -> None:
        try:
            for chunk in follow(name, lambda: self.stopped):
                self.content += chunk
        except UsageError as error:
            self.error = error

    def expect(self, text: bytes) -> None:
        """Wait at most 10 s until `text` was read."""
        deadline = time.monotonic() + 10
        while text not in self.content and time.monotonic() < deadline:
            time.sleep(0.01)
        assert text in self.content


@pytest.fixture
def grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, FollowThread]]:
    """Yield a log file and the thread that follows it."""
    monkeypatch.setattr(streams, "POLL_S", 0.02)
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    following = FollowThread(path)
    following.expect(b"one\n")
    yield path, following
    following.stopped = True
    following.thread.join(10)
    assert not following.thread.is_alive()
    assert following.error is None


def test_growing_file_is_followed(grown: tuple[Path, FollowThread]) -> None:
    path, following = grown
    for line in (b"two\n", b"three\n"):
        with path.open("ab") as file:
            file.write(line)
        following.expect(line)
    assert following.content == b"one\ntwo\nthree\n"


def test_truncated_file_is_followed(grown: tuple[Path, FollowThread]) -> None:
    path, following = grown
    path.write_bytes(b"2\n")
    following.expect(b"one\n2\n")


def test_rotated_file_is_followed(grown: tuple[Path, FollowThread]) -> None:
    path, following = grown
    path.rename(path.with_suffix(".1"))
    with path.with_suffix(".1").open("ab") as file:
        file.write(b"last words\n")
    time.sleep(0.1)
    path.write_bytes(b"the new one\n")
    following.expect(b"one\nlast words\nthe new one\n")


def test_named_pipe_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    following = FollowThread(path)
    with path.open("wb") as file:
        file.write(b"words\n")
    following.thread.join(10)
    assert following.content == b"words\n"


# ---------------------------------------------------------------- verdicts while a log grows


def test_verdict_is_reported_once_per_change() -> None:
    reports: list[LogReport] = []
    watch = LogWatcher(Compat.load(), "-", reports.append)
    missing = (
        b"W x.cc:60] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: "
        b"cannot open shared object file: No such file or directory\n"
    )
    skipped = b"Skipping registering GPU devices...\n"

    def pieces() -> Iterator[bytes]:
        yield b"starting\n"
        yield b""
        assert not reports
        yield missing[:60]
        yield missing[60:] + skipped
        yield b""
        assert len(reports) == 1
        for _ in range(5):
            time.sleep(0.01)
            yield b"Epoch 1\n" + skipped
            yield b""

    passed = list(watch.forward_pieces(pieces()))
    assert b"" not in passed
    assert b"".join(passed).startswith(b"starting\n" + missing + skipped)
    assert [report.gpu_registered for report in reports] == [False]


def test_buffered_log_does_not_grow() -> None:
    watch = LogWatcher(Compat.load(), "-", lambda _: None)
    watch._next_diagnosis_at = float("inf")
    chunk = b"Skipping registering GPU devices...\n" * 10_000
    for _ in watch.forward_pieces(chunk for _ in range(40)):
        pass
    assert len(watch._head) + watch._tail_size <= 5 << 20
