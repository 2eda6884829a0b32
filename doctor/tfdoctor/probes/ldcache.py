"""/etc/ld.so.cache, in the format that glibc has written since 2.2 (sysdeps/generic/dl-cache.h)."""

from __future__ import annotations

import struct

from tfdoctor.records import dataclass

MAGIC = b"glibc-ld.so.cache1.1"
HEADER = struct.Struct("<20sIIB3xI12x")
ENTRY = struct.Struct("<iIIIQ")
HWCAP_EXTENSION = 1 << 62
EXTENSION_MAGIC = 0xEAA42174
TAG_GLIBC_HWCAPS = 1
FLAGS = {62: 0x0303, 183: 0x0A03, 21: 0x0503, 22: 0x0403, 243: 0x1003}
"""ELF e_machine → the flags of its 64-bit libraries."""
MAX_ENTRIES = 1 << 20
GROWTH = 4
"""Bytes of names for each byte of the cache, at most: in a damaged one all entries may share one long name."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One line of `ldconfig -p`."""

    soname: str
    path: str
    hwcap: str | None
    """"x86-64-v3" for a library in a glibc-hwcaps folder; "legacy" for the kinds dropped in 2.37."""


def parse_ldcache(content: bytes, machine: int = 62) -> tuple[CacheEntry, ...]:
    """Return the cache's entries for one kind of ELF object, in the cache's order.

    Damaged input gives what is left.

    Of several entries with one soname the loader takes the first that this CPU can run.
    """
    start = content.find(MAGIC)
    if start < 0 or len(content) < start + HEADER.size:
        return ()
    _, count, _, _, extension = HEADER.unpack_from(content, start)
    hwcaps = _hwcap_names(content, start, extension)
    entries: list[CacheEntry] = []
    room = GROWTH * len(content)
    for index in range(min(count, MAX_ENTRIES)):
        at = start + HEADER.size + index * ENTRY.size
        if at + ENTRY.size > len(content):
            break
        flags, key, value, _, hwcap = ENTRY.unpack_from(content, at)
        if flags != FLAGS.get(machine, FLAGS[62]):
            continue
        kind: str | None = None
        if hwcap & HWCAP_EXTENSION:
            number = hwcap & 0xFFFFFFFF
            kind = hwcaps[number] if number < len(hwcaps) else "unknown"
        elif hwcap:
            kind = "legacy"
        entry = CacheEntry(_text(content, start + key), _text(content, start + value), kind)
        room -= len(entry.soname) + len(entry.path)
        if room < 0:
            break
        entries.append(entry)
    return tuple(entries)


def _hwcap_names(content: bytes, start: int, extension: int) -> list[str]:
    at = start + extension
    if not extension or at + 8 > len(content):
        return []
    magic, count = struct.unpack_from("<II", content, at)
    if magic != EXTENSION_MAGIC:
        return []
    names: list[str] = []
    for index in range(min(count, 16)):
        section = at + 8 + index * 16
        if section + 16 > len(content):
            break
        tag, _, offset, size = struct.unpack_from("<IIII", content, section)
        if tag == TAG_GLIBC_HWCAPS and start + offset + size <= len(content):
            names = [
                _text(content, start + struct.unpack_from("<I", content, start + offset + position)[0])
                for position in range(0, min(size, 1 << 12) - 3, 4)
            ]
    return names


def _text(content: bytes, at: int) -> str:
    end = content.find(b"\0", at, at + 4096)
    return content[at : end if end >= 0 else at].decode("utf-8", "replace")
