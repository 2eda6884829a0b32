"""Parse /etc/ld.so.cache in the format of glibc 2.2 and newer (see glibc's dl-cache.h)."""

from __future__ import annotations

import struct

from tfdoctor.core.records import dataclass

MAGIC = b"glibc-ld.so.cache1.1"
"""The beginning of the header."""
HEADER = struct.Struct("<20sIIB3xI12x")
"""The magic bytes, the number of entries, the length of the strings, flags, and the offset of the extension."""
ENTRY = struct.Struct("<iIIIQ")
"""An entry: flags, the offsets of the soname and the path, the required kernel, and hwcap."""
HWCAP_EXTENSION = 1 << 62
"""If this bit of hwcap is set, its low 32 bits are an index into the names of glibc-hwcaps folders."""
EXTENSION_MAGIC = 0xEAA42174
"""The first four bytes of the extension."""
TAG_GLIBC_HWCAPS = 1
"""The tag of the section with the names of glibc-hwcaps folders."""
FLAGS_BY_MACHINE = {62: 0x0303, 183: 0x0A03, 21: 0x0503, 22: 0x0403, 243: 0x1003}
"""The flags of 64-bit libraries, by ELF machine number (62 is x86-64)."""
MAX_ENTRIES = 1 << 20
"""The maximum number of entries that are read."""
MAX_NAME_CHARS_FACTOR = 4
"""The maximum total length of all names, as a multiple of the size of the cache.

Without this limit, a damaged cache whose entries all share one long name would use too much memory.
"""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An entry of the cache: a line in the output of `ldconfig -p`."""

    soname: str
    path: str
    hwcap: str | None
    """The name of the glibc-hwcaps folder, such as "x86-64-v3", or None for a library outside of such folders.

    "legacy" means a hardware subfolder that glibc 2.37 and newer ignores, and "unknown" an invalid index.
    """


def parse_ldcache(content: bytes, machine: int = 62) -> tuple[CacheEntry, ...]:
    """Return the entries for one ELF machine, in the order of the cache.

    If several entries have the same soname, the loader uses the first one that this CPU supports. If the cache is
    damaged, only the readable entries are returned.
    """
    start = content.find(MAGIC)
    if start < 0 or len(content) < start + HEADER.size:
        return ()
    _, count, _, _, extension = HEADER.unpack_from(content, start)
    hwcaps = _parse_hwcap_names(content, start, extension)
    entries: list[CacheEntry] = []
    remaining_chars = MAX_NAME_CHARS_FACTOR * len(content)
    for index in range(min(count, MAX_ENTRIES)):
        offset = start + HEADER.size + index * ENTRY.size
        if offset + ENTRY.size > len(content):
            break
        flags, soname_offset, path_offset, _, hwcap = ENTRY.unpack_from(content, offset)
        if flags != FLAGS_BY_MACHINE.get(machine, FLAGS_BY_MACHINE[62]):
            continue
        hwcap_name: str | None = None
        if hwcap & HWCAP_EXTENSION:
            number = hwcap & 0xFFFFFFFF
            hwcap_name = hwcaps[number] if number < len(hwcaps) else "unknown"
        elif hwcap:
            hwcap_name = "legacy"
        entry = CacheEntry(
            _parse_text(content, start + soname_offset), _parse_text(content, start + path_offset), hwcap_name
        )
        remaining_chars -= len(entry.soname) + len(entry.path)
        if remaining_chars < 0:
            break
        entries.append(entry)
    return tuple(entries)


def _parse_hwcap_names(content: bytes, start: int, extension: int) -> list[str]:
    """Return the names of glibc-hwcaps folders in the extension of the cache, if there is one."""
    extension_offset = start + extension
    if not extension or extension_offset + 8 > len(content):
        return []
    magic, count = struct.unpack_from("<II", content, extension_offset)
    if magic != EXTENSION_MAGIC:
        return []
    names: list[str] = []
    for index in range(min(count, 16)):
        section_offset = extension_offset + 8 + index * 16
        if section_offset + 16 > len(content):
            break
        tag, _, offset, size = struct.unpack_from("<IIII", content, section_offset)
        if tag == TAG_GLIBC_HWCAPS and start + offset + size <= len(content):
            names = [
                _parse_text(content, start + struct.unpack_from("<I", content, start + offset + position)[0])
                for position in range(0, min(size, 1 << 12) - 3, 4)
            ]
    return names


def _parse_text(content: bytes, offset: int) -> str:
    """Return the string at an offset, or an empty string if it is not terminated within 4096 bytes."""
    end = content.find(b"\0", offset, offset + 4096)
    return content[offset : end if end >= 0 else offset].decode("utf-8", "replace")
