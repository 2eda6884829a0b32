"""A parser of /etc/ld.so.cache, in the format that glibc has used since 2.2.

See sysdeps/generic/dl-cache.h.
"""

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
"""The flags of 64-bit libraries in the cache, by ELF e_machine."""
MAX_ENTRIES = 1 << 20
MAX_NAME_GROWTH = 4
"""The limit for the total length of names, in bytes per byte of the cache.

In a damaged cache all entries may share one long name.
"""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An entry of the cache, as in a line of `ldconfig -p`."""

    soname: str
    path: str
    hwcap: str | None
    """"x86-64-v3" for a library in such a glibc-hwcaps folder; "legacy" for the kinds dropped in 2.37."""


def parse_ldcache(content: bytes, machine: int = 62) -> tuple[CacheEntry, ...]:
    """Return the cache's entries for one ELF machine, in the cache's order.

    If several entries have one soname, the loader takes the first that this CPU can run. Of a damaged cache the
    readable entries are returned.
    """
    start = content.find(MAGIC)
    if start < 0 or len(content) < start + HEADER.size:
        return ()
    _, count, _, _, extension = HEADER.unpack_from(content, start)
    hwcaps = _load_hwcap_names(content, start, extension)
    entries: list[CacheEntry] = []
    remaining = MAX_NAME_GROWTH * len(content)
    for index in range(min(count, MAX_ENTRIES)):
        offset = start + HEADER.size + index * ENTRY.size
        if offset + ENTRY.size > len(content):
            break
        flags, key, value, _, hwcap = ENTRY.unpack_from(content, offset)
        if flags != FLAGS.get(machine, FLAGS[62]):
            continue
        kind: str | None = None
        if hwcap & HWCAP_EXTENSION:
            number = hwcap & 0xFFFFFFFF
            kind = hwcaps[number] if number < len(hwcaps) else "unknown"
        elif hwcap:
            kind = "legacy"
        entry = CacheEntry(_load_text(content, start + key), _load_text(content, start + value), kind)
        remaining -= len(entry.soname) + len(entry.path)
        if remaining < 0:
            break
        entries.append(entry)
    return tuple(entries)


def _load_hwcap_names(content: bytes, start: int, extension: int) -> list[str]:
    """Return the glibc-hwcaps names of the cache's extension; empty if it has none."""
    extension_offset = start + extension
    if not extension or extension_offset + 8 > len(content):
        return []
    magic, count = struct.unpack_from("<II", content, extension_offset)
    if magic != EXTENSION_MAGIC:
        return []
    names: list[str] = []
    for index in range(min(count, 16)):
        section = extension_offset + 8 + index * 16
        if section + 16 > len(content):
            break
        tag, _, offset, size = struct.unpack_from("<IIII", content, section)
        if tag == TAG_GLIBC_HWCAPS and start + offset + size <= len(content):
            names = [
                _load_text(content, start + struct.unpack_from("<I", content, start + offset + position)[0])
                for position in range(0, min(size, 1 << 12) - 3, 4)
            ]
    return names


def _load_text(content: bytes, offset: int) -> str:
    """Return the string at an offset; empty if it is not terminated within 4096 bytes."""
    end = content.find(b"\0", offset, offset + 4096)
    return content[offset : end if end >= 0 else offset].decode("utf-8", "replace")
