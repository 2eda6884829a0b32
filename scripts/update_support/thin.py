"""Overwrite the GPU code of other architectures in shared objects, which makes them smaller when compressed.

The layout of a fat binary is that of `tfdoctor.payload.fatbins`.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import mmap
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["thin_file", "update_records"]

MAGIC = struct.pack("<I", 0xBA55ED50)
HEADER = struct.Struct("<IHHQ")
"""Magic number, version, bytes of the header, bytes after it."""
ENTRY = struct.Struct("<HHIQ")
"""Kind, version, bytes of the entry's header, bytes after it."""
PTX, CUBIN = 1, 2
ARCH_OFFSET = 28
MIN_THINNED_BYTES = 1 << 16


def thin_file(path: Path, arch: int) -> int:
    """Overwrite the GPU code that a GPU of `arch` (90 for 9.0) does not run with zeros; return the number of bytes.

    PTX stays if a fat binary has no machine code for the GPU.
    """
    if path.stat().st_size < MIN_THINNED_BYTES:
        return 0
    count = 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for entries in _fat_binaries(data):
            is_native = any(kind == CUBIN and entry_arch == arch for kind, entry_arch, _, _ in entries)
            for kind, entry_arch, start, size in entries:
                usable = (
                    entry_arch == arch if is_native else entry_arch // 10 == arch // 10 and entry_arch <= arch
                )
                if (kind == CUBIN and not usable) or (kind == PTX and is_native and entry_arch != arch):
                    data[start : start + size] = bytes(size)
                    count += size
    return count


def _fat_binaries(data: mmap.mmap) -> Iterator[list[tuple[int, int, int, int]]]:
    """Yield the entries of each fat binary: kind, architecture, offset and size of the code."""
    position = data.find(MAGIC)
    while position >= 0:
        end = position + len(MAGIC)
        if position + HEADER.size <= len(data):
            _, version, header, size = HEADER.unpack_from(data, position)
            offset, limit = position + HEADER.size, position + HEADER.size + size
            if (version, header) == (1, HEADER.size) and limit <= len(data):
                entries = []
                while offset + 64 <= limit:
                    kind, _, length, payload = ENTRY.unpack_from(data, offset)
                    if (
                        kind not in (PTX, CUBIN)
                        or not 48 <= length <= 4096
                        or offset + length + payload > limit
                    ):
                        break
                    (arch,) = struct.unpack_from("<I", data, offset + ARCH_OFFSET)
                    entries.append((kind, arch, offset + length, payload))
                    offset += length + payload
                if entries:
                    yield entries
                    end = offset
        position = data.find(MAGIC, end)


def update_records(site: Path, changed: set[str]) -> None:
    """Write the new hashes of changed files into the RECORD of their wheels, as `check` verifies them."""
    for record in site.glob("*.dist-info/RECORD"):
        with record.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        for row in rows:
            if row and row[0] in changed:
                digest = hashlib.sha256((site / row[0]).read_bytes()).digest()
                row[1] = "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        with record.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
