"""Split the bytes of a log into blocks of whole UTF-8 lines, without byte-order marks and NULs."""

from __future__ import annotations

import codecs
import re
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["decode_text", "is_binary", "iter_blocks", "strip_leading_nuls"]

_SAMPLE_BYTES = 400
"""The number of bytes at the beginning of a file that determine its encoding."""
_NULS = re.compile(rb"\0{4,}")
"""NULs that a truncated file or a power loss left. UTF-16 text can contain fewer NULs in a row."""
_BLOCK_BYTES = 1 << 17
"""The size of a block in bytes."""
_MAX_LINE_BYTES = 1 << 20
"""The maximum size of a line in bytes. A longer line is split."""


def is_binary(sample: bytes) -> bool:
    """Return whether more than 5 % of the first bytes of a file are control characters."""
    if sample.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    if not sample or _detect_utf16(sample):
        return False
    sample = sample.replace(b"\0", b"")
    # white space, backspace and escape also occur in text
    control_chars = sum(byte < 8 or 13 < byte < 27 or 27 < byte < 32 for byte in sample)
    return control_chars * 20 > len(sample)


def iter_blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of up to 128 KiB that end with a complete line.

    A block is larger if its first line is. A line of more than 1 MiB is split.
    """
    unfinished_line = b""
    for data in _convert_to_utf8(chunks):
        start = 0
        if unfinished_line:
            # copy only the end of the unfinished line, not the whole chunk
            start = data.find(b"\n") + 1
            if start == 0:
                start = len(data)
            unfinished_line += data[:start]
            if not unfinished_line.endswith(b"\n"):
                while len(unfinished_line) >= _MAX_LINE_BYTES:
                    yield unfinished_line[:_MAX_LINE_BYTES]
                    unfinished_line = unfinished_line[_MAX_LINE_BYTES:]
                continue
            yield unfinished_line
            unfinished_line = b""
        while start < len(data):
            end = data.rfind(b"\n", start, start + _BLOCK_BYTES) + 1
            if end <= 0:
                end = data.find(b"\n", start, start + _MAX_LINE_BYTES) + 1
                if end <= 0 and len(data) - start >= _MAX_LINE_BYTES:
                    end = start + _MAX_LINE_BYTES
            if end <= 0:
                unfinished_line = data[start:]
                break
            yield data[start:end]
            start = end
    if unfinished_line:
        yield unfinished_line


def _convert_to_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes as UTF-8, without a byte-order mark and NULs.

    Up to three NULs in a row are dropped. More become a carriage return, which ends a line but does not change the
    line numbers.
    """
    remaining_chunks = iter(chunks)
    head = b""
    for chunk in remaining_chunks:
        head += chunk
        nuls = len(head) - len(strip_leading_nuls(head))
        head = head[nuls - nuls % 2 :]  # keep the two bytes of UTF-16 characters together
        if len(head) >= _SAMPLE_BYTES:
            break
    encoding = _detect_utf16(head)
    if encoding is not None:
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield from _strip_nuls(
            decoder.decode(data).encode("utf-8", "replace") for data in chain([head], remaining_chunks)
        )
    else:
        yield from _strip_nuls(chain([head.lstrip(b"\0").removeprefix(codecs.BOM_UTF8)], remaining_chunks))


def strip_leading_nuls(data: bytes) -> bytes:
    """Return the bytes without the NULs at the beginning.

    A sparse file can have gigabytes of NULs. For a chunk of nothing else, a comparison is faster than stripping.
    """
    return b"" if data.startswith(b"\0") and data == bytes(len(data)) else data.lstrip(b"\0")


def _strip_nuls(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes without NULs. Four or more in a row become a carriage return."""
    pending_nuls = 0
    """The number of NULs at the end of the data so far. More may follow in the next chunk."""
    for chunk in chunks:
        data = chunk
        if pending_nuls:
            data = strip_leading_nuls(data)
            pending_nuls += len(chunk) - len(data)
            if not data:
                continue
            data = bytes(min(pending_nuls, 4)) + data  # four are enough to become a carriage return
            pending_nuls = 0
        if b"\0" in data:
            text = data.rstrip(b"\0") if data != bytes(len(data)) else b""
            pending_nuls = len(data) - len(text)
            data = _NULS.sub(b"\r", text).replace(b"\0", b"")
        if data:
            yield data


def _detect_utf16(data: bytes) -> str | None:
    """Return the UTF-16 codec of these first bytes of a file, or None for other encodings.

    Without a byte-order mark, UTF-16 is recognized by NULs in every other byte.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = data[:_SAMPLE_BYTES]
    if len(sample) < 8:
        return None
    # NULs are more than 80 % of the bytes at one parity, which are half of all bytes, and few at the other
    even, odd = sample[0::2].count(0) * 10, sample[1::2].count(0) * 10
    if odd > len(sample) * 4 and even < len(sample):
        return "utf-16-le"
    if even > len(sample) * 4 and odd < len(sample):
        return "utf-16-be"
    return None


def decode_text(raw: bytes) -> str:
    """Return the bytes decoded as UTF-8, or as Latin-1 if they are not valid UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
