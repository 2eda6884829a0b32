"""Where the bytes of a log come from: files, standard input, packed ones, growing ones. Memory stays constant."""

from __future__ import annotations

import bz2
import importlib
import lzma
import os
import select
import shutil
import stat
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tfdoctor.errors import UsageError
from tfdoctor.logs.blocks import is_binary, strip_leading_nuls
from tfdoctor.running import archives
from tfdoctor.system.children import drop_working_folder
from tfdoctor.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["STDIN", "Meter", "follow", "read_log"]

STDIN = "-"
CHUNK_BYTES = 1 << 20
"""Bytes that are read, or unpacked, at once."""
POLL_S = 0.25
"""Seconds between two looks at a log that is followed."""
ZSTD_TIMEOUT_S = 60.0
"""Seconds that the `zstd` program may be silent."""
_DECODE_BYTES = 1 << 16
"""Bytes that a decoder takes, and gives, at once."""
_SMALL = 512
"""Packed bytes given at once to a decoder that cannot limit what comes out: at most some 16 MiB do."""
_MAX_LAYERS = 3
"""How often a log may be packed."""
_SAMPLE = 8192
"""Bytes that tell whether it is a text."""
MUCH = 1 << 30
TIMES = 100
"""What unpacks to more than `MUCH` bytes and to more than so many times its size is no longer read."""

Meter: TypeAlias = "Callable[[int, int], None]"
"""Told (bytes read, size of the file) while a regular file is read, before unpacking."""


class _DamagedError(Exception):
    """Packed data that end early or cannot be unpacked."""


# ---------------------------------------------------------------- a whole log


def read_log(
    name: str,
    *,
    note: Callable[[str], None],
    meter: Meter | None = None,
) -> Iterator[bytes]:
    """Read the bytes of a file or of standard input ("-"), unpacked.

    Raises UsageError where nothing of it can be read. What could be read of a damaged archive is given out, and
    `note` is told so in a sentence.
    """
    if name == STDIN:
        yield from _unpack(_read_chunks(sys.stdin.fileno(), 0, meter), "standard input", note)
        return
    with _open_file(name) as file:
        try:
            status = os.fstat(file.fileno())
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            yield from _unpack(_read_chunks(file.fileno(), size, meter), name, note)
        except OSError as error:
            raise _unreadable(name, error) from error


def _open_file(name: str) -> Any:
    path = Path(name)
    if path.is_dir():
        msg = f"{clean(name)} is a folder, not a log."
        raise UsageError(msg, hint="Name the file inside it.")
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError as error:
        msg = f"there is no file {clean(name)}."
        raise UsageError(msg) from error
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> UsageError:
    why = getattr(error, "strerror", None) or error
    return UsageError(f"{clean(name)} cannot be read: {why}.")


def _read_chunks(descriptor: int, size: int, meter: Meter | None) -> Iterator[bytes]:
    done = 0
    while piece := os.read(descriptor, CHUNK_BYTES):
        yield piece
        done += len(piece)
        if meter is not None and size:
            meter(done, size)


def _unpack(pieces: Iterator[bytes], name: str, note: Callable[[str], None]) -> Iterator[bytes]:
    shown = clean(name, limit=300)
    packed = _Counted(pieces)
    plain: Iterator[bytes] = packed
    for layer in range(_MAX_LAYERS + 1):
        first, plain = _peek(plain, archives.LONGEST_HEADER)
        unpacked = _decode(first, plain, shown)
        if unpacked is None:
            break
        if layer == _MAX_LAYERS:
            msg = f"{shown} is packed more than {_MAX_LAYERS} times."
            raise UsageError(msg, hint="Unpack it yourself, and give the log that is in it.")
        plain = unpacked
    archives.refuse(first, shown, None if name == "standard input" else name)
    _, plain = _peek(plain, _SAMPLE)
    checked = False
    size = 0
    try:
        for piece in plain:
            if not checked and (text := strip_leading_nuls(piece)):
                checked = True
                if is_binary((piece if len(piece) - len(text) < _SAMPLE else text)[:_SAMPLE]):
                    msg = f"{shown} is not a text file."
                    raise UsageError(msg, hint="diagnose reads logs.")
            yield piece
            size += len(piece)
            if layer and size >= MUCH and size > TIMES * packed.size:
                note(
                    f"{shown} unpacks to more than {TIMES} times its size: only its first {size >> 20} MiB are read."
                )
                return
    except _DamagedError as error:
        if not size:
            msg = f"{shown} cannot be unpacked: {error}."
            raise UsageError(msg) from error
        note(f"{shown} is damaged ({error}): only the part that could be unpacked is read.")


class _Counted:
    """Pieces, and how many bytes they had so far."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        self.size += len(piece)
        return piece


def _peek(pieces: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, at least `size` if there are as many, and all pieces with them."""
    first = b""
    try:
        while len(first) < size and (piece := next(pieces, b"")):  # a pipe may bring little at once
            first += piece
    except _DamagedError as error:
        return first, _raise_after(first, error)
    return first, _chain(first, pieces)


def _raise_after(first: bytes, error: _DamagedError) -> Iterator[bytes]:
    if first:
        yield first
    raise error


# ---------------------------------------------------------------- unpacking


class _Decoder(Protocol):
    """What `lzma`, `bz2` and `compression.zstd` have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """zlib's decoder with the interface of the others."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        out = self._zlib.decompress(self._zlib.unconsumed_tail + data, max(max_length, 0))
        # A full buffer may leave output inside zlib even where all input is used up.
        self.needs_input = not self._zlib.unconsumed_tail and len(out) < max_length
        return out


class _Unlimited:
    """The `zstandard` package's decoder: no limit on what comes out, so it is fed little at once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._waiting = b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._waiting

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:  # noqa: ARG002 - the others' interface
        self._waiting += data
        out: list[bytes] = []
        size = 0
        while self._waiting and not self.eof and size < _DECODE_BYTES:
            piece, self._waiting = self._waiting[:_SMALL], self._waiting[_SMALL:]
            out.append(self._inner.decompress(piece))
            size += len(out[-1])
        return b"".join(out)


def _decode(first: bytes, pieces: Iterator[bytes], shown: str) -> Iterator[bytes] | None:
    """Return what is packed in pieces that begin with `first`; None if nothing is.

    Raises _DamagedError when it is read; UsageError where nothing here can unpack it.
    """
    if first.startswith(b"\x1f\x8b"):
        return _inflate(pieces, _Gzip, (zlib.error,))
    if first.startswith(b"\xfd7zXZ\x00"):
        return _inflate(pieces, lzma.LZMADecompressor, (lzma.LZMAError,))
    if first.startswith(b"BZh") and first[4:8] == b"1AY&":
        return _inflate(pieces, bz2.BZ2Decompressor, (OSError, ValueError))
    if first.startswith(b"\x28\xb5\x2f\xfd"):
        return _unpack_zstd(pieces, shown)
    return None


def _chain(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from pieces


def _inflate(
    pieces: Iterable[bytes], make: Callable[[], _Decoder], errors: tuple[type[Exception], ...]
) -> Iterator[bytes]:
    """Unpack member after member. Little at once: what a damaged piece gave before its damage is lost."""
    decoder: _Decoder | None = make()
    for given in (
        piece[at : at + _DECODE_BYTES] for piece in pieces for at in range(0, len(piece), _DECODE_BYTES)
    ):
        data = given
        while True:
            if decoder is None:
                data = data.lstrip(b"\0")  # padding between or after members
                if not data:
                    break
                decoder = make()
            try:
                out = decoder.decompress(data, _DECODE_BYTES)
            except errors as error:
                raise _DamagedError(str(error).rstrip(".")) from error
            if out:
                yield out
            data = b""
            if decoder.eof:
                data, decoder = decoder.unused_data, None
            elif decoder.needs_input:
                break
    if decoder is not None:
        raise _DamagedError("it ends early")


def _unpack_zstd(pieces: Iterator[bytes], shown: str) -> Iterator[bytes]:
    """Unpack by Python's own decoder (3.14), else the `zstandard` package, else the `zstd` program."""
    own: Any = _module("compression.zstd")
    if own is not None:
        return _inflate(pieces, own.ZstdDecompressor, (own.ZstdError,))
    package: Any = _module("zstandard")
    if package is not None and hasattr(package.ZstdDecompressor().decompressobj(), "eof"):  # 0.19
        context = package.ZstdDecompressor()
        return _inflate(pieces, lambda: _Unlimited(context.decompressobj()), (package.ZstdError,))
    program = shutil.which("zstd", path=drop_working_folder(os.environ).get("PATH"))
    if program is not None:
        return _unpack_by_program([program, "-dcq"], pieces)
    msg = f"{shown} is packed with zstd, which cannot be unpacked here."
    raise UsageError(msg, hint="Install zstd or the Python package zstandard, or unpack it yourself.")


def _module(name: str) -> object | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _unpack_by_program(command: list[str], pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack in another program: a thread feeds it. Raises _DamagedError where it complains or hangs."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None  # noqa: S101 - for mypy
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        failed: list[OSError] = []

        def feed(stream: Any) -> None:
            try:
                for piece in pieces:
                    rest = memoryview(piece)
                    while rest:
                        rest = rest[stream.write(rest) :]
            except BrokenPipeError:
                pass
            except OSError as error:
                failed.append(error)
            finally:
                stream.close()

        threading.Thread(target=feed, args=(process.stdin,), daemon=True).start()
        process.stdin = None  # the thread's
        try:
            while True:
                if not select.select([process.stdout], [], [], ZSTD_TIMEOUT_S)[0]:
                    raise _DamagedError("zstd does not answer")
                piece = os.read(process.stdout.fileno(), CHUNK_BYTES)
                if not piece:
                    break
                yield piece
            if failed:
                raise failed[0]
            complaint = process.stderr.read(2000)
            if process.wait(ZSTD_TIMEOUT_S) != 0:
                text = clean(complaint.decode("utf-8", "replace"), limit=200).strip()
                raise _DamagedError(text.rstrip(". ") or f"zstd ended with {process.returncode}")
        finally:
            process.kill()


# ---------------------------------------------------------------- a growing log


def follow(name: str, stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the bytes of a growing log until `stopped()`, b"" whenever there is nothing new for a moment.

    A file that was made shorter is read again from its beginning, one that was replaced is opened again. A pipe ends
    where its writers end. Raises UsageError.
    """
    if name == STDIN:
        yield from _follow_pipe(sys.stdin.fileno(), stopped)
        return
    file = _open_file(name)
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield from _follow_pipe(file.fileno(), stopped)
            return
        position = 0
        while not stopped():
            piece = file.read(CHUNK_BYTES)
            if piece:
                if position == 0:
                    _refuse_unreadable(piece, name)
                position += len(piece)
                yield piece
                continue
            here, there = os.fstat(file.fileno()), _status(name)
            if here.st_size < position:
                file.seek(0)
                position = 0
            elif there is not None and (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                try:
                    successor = Path(name).open("rb", buffering=0)  # noqa: SIM115 - closed below
                except OSError:  # not yet readable: the next look may find it
                    successor = None
                if successor is not None:
                    while piece := file.read(CHUNK_BYTES):  # written between the two looks
                        yield piece
                    file.close()
                    file, position = successor, 0
                    continue
            yield b""
            time.sleep(POLL_S)
    except OSError as error:
        raise _unreadable(name, error) from error
    finally:
        file.close()


def _status(name: str) -> os.stat_result | None:
    try:
        return Path(name).stat()
    except OSError:  # between two steps of a rotation
        return None


def _follow_pipe(descriptor: int, stopped: Callable[[], bool]) -> Iterator[bytes]:
    first = True
    while not stopped():
        if not select.select([descriptor], [], [], POLL_S)[0]:
            yield b""
            continue
        piece = os.read(descriptor, CHUNK_BYTES)
        if not piece:
            return
        if first:
            _refuse_unreadable(piece, "standard input")
        first = False
        yield piece


def _refuse_unreadable(piece: bytes, name: str) -> None:
    archives.refuse(piece, clean(name, limit=300), None if name == "standard input" else name)
    packed = piece.startswith((b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"))
    if packed or is_binary(piece[:8192]):
        msg = f"{clean(name, limit=300)} cannot be followed: it is {'packed' if packed else 'not a text'}."
        raise UsageError(msg, hint="Without -f, packed logs are read to their end.")
