"""Bytes of a log → blocks of whole lines in UTF-8: other encodings, byte-order marks and NULs are undone here."""

from __future__ import annotations

import codecs
import re
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["as_text", "blocks", "is_binary", "strip_leading_nuls"]

_SAMPLE = 400
"""Bytes of the beginning that tell the encoding."""
_NULS = re.compile(rb"\0{4,}")
"""What a truncated file or a power loss leaves. Fewer stand between the letters of a text in UTF-16."""
_BLOCK = 1 << 17
_HUGE = 1 << 20


def is_binary(sample: bytes) -> bool:
    """Return whether the first bytes of a file are no text at all."""
    if sample.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    if not sample or _utf16(sample):
        return False
    sample = sample.replace(b"\0", b"")
    odd = sum(byte < 8 or 13 < byte < 27 or 27 < byte < 32 for byte in sample)
    return odd * 20 > len(sample)


def blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of some tens of KiB that end where a line ends; a line that is far longer is cut."""
    rest = b""
    for data in _as_utf8(chunks):
        start = 0
        if rest:
            # only what ends the line that is open is copied, not the whole chunk
            start = data.find(b"\n") + 1
            if start == 0:
                start = len(data)
            rest += data[:start]
            if not rest.endswith(b"\n"):
                while len(rest) >= _HUGE:
                    yield rest[:_HUGE]
                    rest = rest[_HUGE:]
                continue
            yield rest
            rest = b""
        while start < len(data):
            end = data.rfind(b"\n", start, start + _BLOCK) + 1
            if end <= 0:
                end = data.find(b"\n", start, start + _HUGE) + 1
                if end <= 0 and len(data) - start >= _HUGE:
                    end = start + _HUGE
            if end <= 0:
                rest = data[start:]
                break
            yield data[start:end]
            start = end
    if rest:
        yield rest


def _as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes without a byte-order mark and without NULs, and UTF-16 as UTF-8.

    NULs in the middle of a text are no text: a few are passed over, many end a line as a carriage return does, which
    leaves the numbers of the lines as they are.
    """
    rest = iter(chunks)
    head = b""
    for chunk in rest:
        head += chunk
        nuls = len(head) - len(strip_leading_nuls(head))
        head = head[nuls - nuls % 2 :]  # the halves of UTF-16's characters stay where they were
        if len(head) >= _SAMPLE:
            break
    kind = _utf16(head)
    if kind is not None:
        decoder = codecs.getincrementaldecoder(kind)("replace")
        yield from _strip_nuls(
            decoder.decode(data).encode("utf-8", "replace") for data in chain([head], rest)
        )
    else:
        yield from _strip_nuls(chain([head.lstrip(b"\0").removeprefix(codecs.BOM_UTF8)], rest))


def strip_leading_nuls(data: bytes) -> bytes:
    """Return what follows the NULs at the beginning.

    A hole in a file can have gigabytes of them: compared, not counted.
    """
    return b"" if data.startswith(b"\0") and data == bytes(len(data)) else data.lstrip(b"\0")


def _strip_nuls(chunks: Iterable[bytes]) -> Iterator[bytes]:
    held = 0
    """NULs at the end of what was read: what follows tells how many there are."""
    for chunk in chunks:
        data = chunk
        if held:
            data = strip_leading_nuls(data)
            held += len(chunk) - len(data)
            if not data:
                continue
            data = bytes(min(held, 4)) + data
            held = 0
        if b"\0" in data:
            text = data.rstrip(b"\0") if data != bytes(len(data)) else b""
            held = len(data) - len(text)
            data = _NULS.sub(b"\r", text).replace(b"\0", b"")
        if data:
            yield data


def _utf16(data: bytes) -> str | None:
    """Return the kind of UTF-16 that these first bytes are: by their mark, or NULs are every other byte and no more."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = data[:_SAMPLE]
    if len(sample) < 8:
        return None
    even, odd = sample[0::2].count(0) * 10, sample[1::2].count(0) * 10
    if odd > len(sample) * 4 and even < len(sample):
        return "utf-16-le"
    if even > len(sample) * 4 and odd < len(sample):
        return "utf-16-be"
    return None


def as_text(raw: bytes) -> str:
    """Return UTF-8, or what Windows wrote."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
