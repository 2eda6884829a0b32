"""Read logs from files, standard input, compressed files and growing files, with constant memory."""

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

from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean
from tfdoctor.logs.blocks import is_binary, strip_leading_nuls
from tfdoctor.system.children import drop_working_folder
from tfdoctor.verification.running import archives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["STDIN", "Meter", "follow", "read_log"]

STDIN = "-"
"""The name of a log that is read from standard input."""
_STDIN_LABEL = "standard input"
CHUNK_BYTES = 1 << 20
"""The number of bytes that are read at once."""
POLL_S = 0.25
"""The seconds between two checks of a growing log."""
ZSTD_TIMEOUT_S = 60.0
"""The seconds without output after which the `zstd` program is considered to hang."""
_DECODE_BYTES = 1 << 16
"""The largest number of bytes that a decoder gets or returns at once."""
_UNLIMITED_CHUNK_BYTES = 512
"""The number of bytes that a decoder without an output limit gets at once. They unpack to at most about 16 MiB."""
_MAX_LAYERS = 3
"""The largest number of compression layers that are unpacked."""
_SAMPLE_BYTES = 8192
"""The number of bytes that decide whether the data are text."""
MIN_BOMB_BYTES = 1 << 30
"""The unpacked size in bytes up to which any compression ratio is accepted."""
MAX_UNPACK_RATIO = 100
"""The largest accepted ratio of unpacked to packed size, for data larger than `MIN_BOMB_BYTES`."""

Meter: TypeAlias = "Callable[[int, int], None]"
"""A callback for progress. It gets the number of bytes that were read, and the size of the file in bytes."""


class _DamagedDataError(Exception):
    """Compressed data end early or cannot be unpacked."""


# ---------------------------------------------------------------- a whole log


def read_log(
    name: str,
    *,
    on_note: Callable[[str], None],
    meter: Meter | None = None,
) -> Iterator[bytes]:
    """Yield the unpacked data of a file or of standard input ("-").

    If the data are damaged, the readable part is yielded, and `on_note` is called with a sentence about it. `meter` is
    called only for regular files. Raise UsageError if nothing can be read or if the data are not text.
    """
    if name == STDIN:
        _refuse_device(sys.stdin.fileno(), _STDIN_LABEL)
        yield from _unpack(_read_chunks(sys.stdin.fileno(), 0, meter), _STDIN_LABEL, on_note)
        return
    with _open_file(name) as file:
        try:
            status = os.fstat(file.fileno())
            _refuse_device(file.fileno(), name)
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            yield from _unpack(_read_chunks(file.fileno(), size, meter), name, on_note)
        except OSError as error:
            raise _make_read_error(name, error) from error


def _refuse_device(descriptor: int, name: str) -> None:
    """Raise UsageError for a device such as /dev/zero, which may have no end. Terminals and /dev/null are allowed."""
    status = os.fstat(descriptor)
    is_device = stat.S_ISCHR(status.st_mode) and not os.isatty(descriptor)
    if is_device and status.st_rdev != os.stat(os.devnull).st_rdev:  # noqa: PTH116 - not a path of the user's
        msg = f"{clean(name)} is a device, not a log."
        raise UsageError(msg, hint="Name a file, a pipe, or - for standard input.")


def _open_file(name: str) -> Any:
    """Open a file. Raise UsageError if it cannot be opened."""
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
        raise _make_read_error(name, error) from error


def _make_read_error(name: str, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or error
    return UsageError(f"{clean(name)} cannot be read: {reason}.")


def _read_chunks(descriptor: int, size: int, meter: Meter | None) -> Iterator[bytes]:
    """Yield the data of a descriptor. `size` is the file size; 0 if it is not a regular file."""
    read_bytes = 0
    while piece := os.read(descriptor, CHUNK_BYTES):
        yield piece
        read_bytes += len(piece)
        if meter is not None and size:
            meter(read_bytes, size)


def _unpack(pieces: Iterator[bytes], name: str, on_note: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the unpacked data. Raise UsageError if they are an archive or not text."""
    label = clean(name, limit=300)
    counted_pieces = _CountedPieces(pieces)
    unpacked: Iterator[bytes] = counted_pieces
    for layer in range(_MAX_LAYERS + 1):
        first_bytes, unpacked = _peek(unpacked, archives.HEADER_BYTES)
        decoded = _decode(first_bytes, unpacked, label)
        if decoded is None:
            break
        if layer == _MAX_LAYERS:
            msg = f"{label} is packed more than {_MAX_LAYERS} times."
            raise UsageError(msg, hint="Unpack it yourself, and give the log that is in it.")
        unpacked = decoded
    archives.refuse_archive(first_bytes, label, None if name == _STDIN_LABEL else name)
    _, unpacked = _peek(unpacked, _SAMPLE_BYTES)
    is_checked = False
    size = 0
    try:
        for piece in unpacked:
            if not is_checked and (text := strip_leading_nuls(piece)):
                is_checked = True
                # is_binary needs the NULs of UTF-16, but a sparse file can begin with nothing else
                if is_binary((piece if len(piece) - len(text) < _SAMPLE_BYTES else text)[:_SAMPLE_BYTES]):
                    msg = f"{label} is not a text file."
                    raise UsageError(msg, hint="diagnose reads logs.")
            yield piece
            size += len(piece)
            if layer and size >= MIN_BOMB_BYTES and size > MAX_UNPACK_RATIO * counted_pieces.size:
                on_note(
                    f"{label} unpacks to more than {MAX_UNPACK_RATIO} times its size: only its first {size >> 20} MiB are read."
                )
                return
    except _DamagedDataError as error:
        if not size:
            msg = f"{label} cannot be unpacked: {error}."
            raise UsageError(msg) from error
        on_note(f"{label} is damaged ({error}): only the part that could be unpacked is read.")


class _CountedPieces:
    """An iterator over pieces of data that counts their bytes in `size`."""

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
    """Return the first bytes (at least `size` unless there are fewer) and an iterator over all pieces."""
    first_bytes = b""
    try:
        while len(first_bytes) < size and (piece := next(pieces, b"")):  # a pipe may return few bytes at once
            first_bytes += piece
    except _DamagedDataError as error:
        return first_bytes, _raise_after(first_bytes, error)
    return first_bytes, _prepend(first_bytes, pieces)


def _raise_after(first_bytes: bytes, error: _DamagedDataError) -> Iterator[bytes]:
    if first_bytes:
        yield first_bytes
    raise error


# ---------------------------------------------------------------- unpacking


class _Decoder(Protocol):
    """The common interface of the decoders of `lzma`, `bz2` and `compression.zstd`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _GzipDecoder:
    """A gzip decoder with the interface of the other decoders."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)  # the gzip format
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        output = self._zlib.decompress(self._zlib.unconsumed_tail + data, max(max_length, 0))
        # If the buffer is full, zlib may hold more output although all input is used up.
        self.needs_input = not self._zlib.unconsumed_tail and len(output) < max_length
        return output


class _UnlimitedDecoder:
    """A decoder of the `zstandard` package. It gets little input at once, as it cannot limit its output."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._pending = b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        return not self._pending

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._pending

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:  # noqa: ARG002 - the interface of the other decoders
        self._pending += data
        pieces: list[bytes] = []
        size = 0
        while self._pending and not self.eof and size < _DECODE_BYTES:
            piece = self._pending[:_UNLIMITED_CHUNK_BYTES]
            self._pending = self._pending[_UNLIMITED_CHUNK_BYTES:]
            pieces.append(self._inner.decompress(piece))
            size += len(pieces[-1])
        return b"".join(pieces)


def _decode(head: bytes, pieces: Iterator[bytes], label: str) -> Iterator[bytes] | None:
    """Return an iterator over the unpacked data; None if `head` shows no known compression.

    The iterator raises _DamagedDataError if the data are damaged. Raise UsageError if zstd is needed but not available.
    """
    if head.startswith(b"\x1f\x8b"):
        return _inflate(pieces, _GzipDecoder, (zlib.error,))
    if head.startswith(b"\xfd7zXZ\x00"):
        return _inflate(pieces, lzma.LZMADecompressor, (lzma.LZMAError,))
    if head.startswith(b"BZh") and head[4:8] == b"1AY&":
        return _inflate(pieces, bz2.BZ2Decompressor, (OSError, ValueError))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _unpack_zstd(pieces, label)
    return None


def _prepend(head: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from pieces


def _inflate(
    pieces: Iterable[bytes], make_decoder: Callable[[], _Decoder], errors: tuple[type[Exception], ...]
) -> Iterator[bytes]:
    """Yield the unpacked data of all members. Raise _DamagedDataError if they are damaged.

    The chunks are small, because the whole output of a damaged chunk is lost.
    """
    decoder: _Decoder | None = make_decoder()
    for chunk in (
        piece[start : start + _DECODE_BYTES]
        for piece in pieces
        for start in range(0, len(piece), _DECODE_BYTES)
    ):
        data = chunk
        while True:
            if decoder is None:
                data = data.lstrip(b"\0")  # padding between or after members
                if not data:
                    break
                decoder = make_decoder()
            try:
                output = decoder.decompress(data, _DECODE_BYTES)
            except errors as error:
                raise _DamagedDataError(str(error).rstrip(".")) from error
            if output:
                yield output
            data = b""
            if decoder.eof:
                data, decoder = decoder.unused_data, None
            elif decoder.needs_input:
                break
    if decoder is not None:
        raise _DamagedDataError("it ends early")


def _unpack_zstd(pieces: Iterator[bytes], label: str) -> Iterator[bytes]:
    """Unpack zstd data with the standard library (3.14), the `zstandard` package or the `zstd` program.

    Raise UsageError if none of them is available.
    """
    stdlib_zstd: Any = _import_module("compression.zstd")
    if stdlib_zstd is not None:
        return _inflate(pieces, stdlib_zstd.ZstdDecompressor, (stdlib_zstd.ZstdError,))
    package: Any = _import_module("zstandard")
    # `eof` exists since zstandard 0.19
    if package is not None and hasattr(package.ZstdDecompressor().decompressobj(), "eof"):
        context = package.ZstdDecompressor()
        return _inflate(pieces, lambda: _UnlimitedDecoder(context.decompressobj()), (package.ZstdError,))
    program = shutil.which("zstd", path=drop_working_folder(os.environ).get("PATH"))
    if program is not None:
        return _unpack_by_program([program, "-dcq"], pieces)
    msg = f"{label} is packed with zstd, which cannot be unpacked here."
    raise UsageError(msg, hint="Install zstd or the Python package zstandard, or unpack it yourself.")


def _import_module(name: str) -> object | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _unpack_by_program(command: list[str], pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack data with a program. Raise _DamagedDataError if it fails or hangs."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None  # noqa: S101 - for mypy
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        errors: list[OSError] = []

        def feed(stream: Any) -> None:
            try:
                for piece in pieces:
                    remaining = memoryview(piece)
                    while remaining:
                        remaining = remaining[stream.write(remaining) :]
            except BrokenPipeError:
                pass
            except OSError as error:
                errors.append(error)
            finally:
                stream.close()

        threading.Thread(target=feed, args=(process.stdin,), daemon=True).start()
        process.stdin = None  # owned by the thread from now on
        try:
            while True:
                if not select.select([process.stdout], [], [], ZSTD_TIMEOUT_S)[0]:
                    raise _DamagedDataError("zstd does not answer")
                piece = os.read(process.stdout.fileno(), CHUNK_BYTES)
                if not piece:
                    break
                yield piece
            if errors:
                raise errors[0]
            error_output = process.stderr.read(2000)
            if process.wait(ZSTD_TIMEOUT_S) != 0:
                text = clean(error_output.decode("utf-8", "replace"), limit=200).strip()
                raise _DamagedDataError(text.rstrip(". ") or f"zstd ended with {process.returncode}")
        finally:
            process.kill()


# ---------------------------------------------------------------- a growing log


def follow(name: str, is_stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the data of a growing log until `is_stopped()` is true.

    b"" is yielded for each `POLL_S` without data. A truncated file is read again from its beginning, and a replaced
    file is opened again. A pipe ends when all writers close it. Raise UsageError if the log cannot be read, is
    compressed or is not text.
    """
    if name == STDIN:
        yield from _follow_pipe(sys.stdin.fileno(), is_stopped)
        return
    file = _open_file(name)
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield from _follow_pipe(file.fileno(), is_stopped)
            return
        position = 0
        while not is_stopped():
            piece = file.read(CHUNK_BYTES)
            if piece:
                if position == 0:
                    _refuse_unreadable(piece, name)
                position += len(piece)
                yield piece
                continue
            opened_status, path_status = os.fstat(file.fileno()), _stat_path(name)
            if opened_status.st_size < position:  # the file was truncated
                file.seek(0)
                position = 0
            elif path_status is not None and not os.path.samestat(
                path_status, opened_status
            ):  # it was replaced
                try:
                    new_file = Path(name).open("rb", buffering=0)  # noqa: SIM115 - closed below
                except OSError:  # not yet readable: the next check may succeed
                    new_file = None
                if new_file is not None:
                    while piece := file.read(CHUNK_BYTES):  # written since the last check
                        yield piece
                    file.close()
                    file, position = new_file, 0
                    continue
            yield b""
            time.sleep(POLL_S)
    except OSError as error:
        raise _make_read_error(name, error) from error
    finally:
        file.close()


def _stat_path(name: str) -> os.stat_result | None:
    try:
        return Path(name).stat()
    except OSError:  # a log rotation is in progress
        return None


def _follow_pipe(descriptor: int, is_stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the data of a pipe until its end, and b"" if no new data arrive for `POLL_S`."""
    is_first = True
    while not is_stopped():
        if not select.select([descriptor], [], [], POLL_S)[0]:
            yield b""
            continue
        piece = os.read(descriptor, CHUNK_BYTES)
        if not piece:
            return
        if is_first:
            _refuse_unreadable(piece, _STDIN_LABEL)
        is_first = False
        yield piece


def _refuse_unreadable(piece: bytes, name: str) -> None:
    """Raise UsageError if the data are an archive, compressed, or not text."""
    archives.refuse_archive(piece, clean(name, limit=300), None if name == _STDIN_LABEL else name)
    is_packed = piece.startswith((b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"))
    if is_packed or is_binary(piece[:_SAMPLE_BYTES]):
        msg = f"{clean(name, limit=300)} cannot be followed: it is {'packed' if is_packed else 'not a text'}."
        raise UsageError(msg, hint="Without -f, packed logs are read to their end.")
