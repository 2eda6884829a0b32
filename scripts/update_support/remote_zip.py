"""Single members of zip files over HTTP, read by the central directory and byte ranges."""

from __future__ import annotations

import queue
import struct
import threading
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import requests

from update_support.files import DownloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Member", "Web", "extract", "group_members", "load_central_directory"]


class Web:
    """Byte ranges of files on the index: one connection, retries, and counts of requests and bytes."""

    def __init__(self) -> None:
        self.session = requests.Session()
        self.session.headers["User-Agent"] = "tfdoctor-update (compatibility data)"
        self.requests = 0
        self.bytes = 0

    def get(self, url: str, spec: str, *, stream: bool = False) -> requests.Response:
        """Return the response to a Range request. Raise HTTPError if the server does not support ranges."""
        attempt = 0
        while True:
            response = self._send_request(url, spec, stream=stream, last=attempt == 4)
            if response is not None:
                break
            time.sleep(2.0**attempt)
            attempt += 1
        if response.status_code != 206:
            msg = f"{url}: the server ignores byte ranges"
            raise requests.HTTPError(msg)
        return response

    def _send_request(self, url: str, spec: str, *, stream: bool, last: bool) -> requests.Response | None:
        """Send one request; return None if it should be tried again."""
        self.requests += 1
        try:
            response = self.session.get(
                url, headers={"Range": f"bytes={spec}"}, stream=stream, timeout=(20, 120)
            )
            response.raise_for_status()
        except (requests.ConnectionError, requests.Timeout, requests.HTTPError) as error:
            if last or getattr(error.response, "status_code", 500) in {404, 416}:
                raise
            return None
        return response

    def read(self, url: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`."""
        data = self.get(url, f"{start}-{start + length - 1}").content
        self.bytes += len(data)
        return data

    def tail(self, url: str, length: int) -> tuple[bytes, int]:
        """Return the last `length` bytes, and the size of the whole file."""
        response = self.get(url, f"-{length}")
        self.bytes += len(response.content)
        return response.content, int(response.headers["Content-Range"].rsplit("/", 1)[1])

    def stream(self, url: str, start: int, length: int) -> Iterator[bytes]:
        """Yield `length` bytes from `start` in pieces.

        A thread fetches them ahead while the caller unpacks.
        """
        pieces: queue.Queue[bytes | Exception | None] = queue.Queue(maxsize=32)
        stop = threading.Event()

        def fetch() -> None:
            try:
                for piece in self._fetch_pieces(url, start, length):
                    while not _try_put(pieces, piece):
                        if stop.is_set():
                            return
                pieces.put(None)
            except Exception as error:  # raised again in the caller
                pieces.put(error)

        thread = threading.Thread(target=fetch, daemon=True)
        thread.start()
        try:
            while (piece := pieces.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            stop.set()
            thread.join(timeout=5)

    def _fetch_pieces(self, url: str, start: int, length: int) -> Iterator[bytes]:
        """Yield the pieces of `stream`; continue after a broken connection."""
        end = start + length
        failures = 0
        while start < end:
            try:
                with self.get(url, f"{start}-{end - 1}", stream=True) as response:
                    for piece in response.iter_content(1 << 20):
                        start += len(piece)
                        self.bytes += len(piece)
                        yield piece
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                failures += 1
                if failures > 5:
                    raise
                time.sleep(2.0**failures)


def _try_put(pieces: queue.Queue[bytes | Exception | None], piece: bytes) -> bool:
    """Put a piece into the queue; return False if it is still full after half a second."""
    try:
        pieces.put(piece, timeout=0.5)
    except queue.Full:
        return False
    return True


@dataclass(frozen=True)
class Member:
    """One file of a wheel, as the central directory describes it."""

    name: str
    crc: int
    method: int
    packed: int
    size: int
    offset: int
    """Offset of its local header."""


def load_central_directory(web: Web, url: str) -> tuple[list[Member], int]:
    """Return every member of a remote zip file by offset, and the file's size.

    Takes one or two requests. Raise DownloadError if it is no whole zip file.
    """
    tail, total = web.tail(url, 1 << 17)
    try:
        return _parse_central_directory(web, url, tail, total), total
    except (struct.error, UnicodeDecodeError) as error:
        msg = f"{url}: its directory cannot be read: {error}"
        raise DownloadError(msg) from error


def _parse_central_directory(web: Web, url: str, tail: bytes, total: int) -> list[Member]:
    position = tail.rfind(b"PK\x05\x06")
    if position < 0:
        msg = f"{url}: no end-of-central-directory record"
        raise DownloadError(msg)
    _, _, _, _, count, size, offset, _ = struct.unpack("<IHHHHIIH", tail[position : position + 22])
    if 0xFFFFFFFF in (size, offset) or count == 0xFFFF:
        at64 = tail.rfind(b"PK\x06\x06")
        count, size, offset = struct.unpack("<QQQ", tail[at64 + 32 : at64 + 56])
    start = total - len(tail)
    raw = tail[offset - start : offset - start + size] if offset >= start else web.read(url, offset, size)
    members = []
    position = 0
    for _ in range(count):
        (
            _,
            _,
            _,
            _,
            method,
            _,
            _,
            crc,
            packed,
            unpacked,
            name_len,
            extra_len,
            comment_len,
            _,
            _,
            _,
            local,
        ) = struct.unpack("<IHHHHHHIIIHHHHHII", raw[position : position + 46])
        name = raw[position + 46 : position + 46 + name_len].decode()
        extra = raw[position + 46 + name_len : position + 46 + name_len + extra_len]
        packed, unpacked, local = _apply_zip64(extra, unpacked, packed, local)
        members.append(Member(name, crc, method, packed, unpacked, local))
        position += 46 + name_len + extra_len + comment_len
    return sorted(members, key=lambda member: member.offset)


def _apply_zip64(extra: bytes, unpacked: int, packed: int, local: int) -> tuple[int, int, int]:
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack("<HH", extra[position : position + 4])
        if kind == 1:
            values = iter(
                struct.unpack(f"<{length // 8}Q", extra[position + 4 : position + 4 + length // 8 * 8])
            )
            unpacked = next(values) if unpacked == 0xFFFFFFFF else unpacked
            packed = next(values) if packed == 0xFFFFFFFF else packed
            local = next(values) if local == 0xFFFFFFFF else local
        position += 4 + length
    return packed, unpacked, local


def group_members(members: Iterable[Member], gap: int) -> Iterator[list[Member]]:
    """Yield runs of members worth one request each: at most `gap` unwanted bytes between two members."""
    run: list[Member] = []
    for member in members:
        if run and member.offset - (run[-1].offset + run[-1].packed) > gap:
            yield run
            run = []
        run.append(member)
    if run:
        yield run


def extract(
    web: Web, url: str, run: list[Member], limit: int, take: Callable[[Member, Iterator[bytes]], None]
) -> None:
    """Stream a run of members; `take` gets the unpacked pieces of each one.

    limit: the offset at which the archive's data ends.
    """
    start = run[0].offset
    # The extra field of a local header may differ from the central one, so its length is known only after
    # the header was read.
    length = min(run[-1].offset + run[-1].packed + 30 + 4096, limit) - start
    pieces = web.stream(url, start, length)
    buffer = bytearray()
    position = start

    def fill(count: int) -> None:
        while len(buffer) < count:
            piece = next(pieces, None)
            if piece is None:
                msg = f"{url}: ended early"
                raise DownloadError(msg)
            buffer.extend(piece)

    def skip(count: int) -> None:
        nonlocal position
        while count > 0:
            fill(1)
            step = min(count, len(buffer))
            del buffer[:step]
            position += step
            count -= step

    for member in run:
        skip(member.offset - position)
        fill(30)
        name_len, extra_len = struct.unpack("<HH", buffer[26:30])
        skip(30 + name_len + extra_len)

        def unpack_member(member: Member = member) -> Iterator[bytes]:
            nonlocal position
            remaining = member.packed
            inflate = zlib.decompressobj(-15) if member.method == 8 else None
            crc = 0
            while remaining > 0:
                fill(1)
                step = min(remaining, len(buffer))
                piece = bytes(buffer[:step])
                del buffer[:step]
                position += step
                remaining -= step
                try:
                    data = inflate.decompress(piece) if inflate else piece
                except zlib.error as error:
                    msg = f"{url}: {member.name}: {error}"
                    raise DownloadError(msg) from error
                crc = zlib.crc32(data, crc)
                yield data
            if crc != member.crc:
                msg = f"{url}: {member.name}: wrong CRC-32"
                raise DownloadError(msg)

        take(member, unpack_member())
    pieces.close()
