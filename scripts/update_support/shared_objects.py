"""What a shared object says: dynamic section, symbol versions, and the GPU code in its fat binaries."""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from packaging.version import Version

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ObjectFacts", "fat_binaries", "lz4_prefix", "read_object"]


@dataclass
class ObjectFacts:
    """What one shared object says."""

    needed: list[str] = field(default_factory=list)
    path_kind: str = ""
    """`RPATH`, `RUNPATH` or empty."""
    path: str = ""
    symbols: dict[str, str] = field(default_factory=dict)
    """`GLIBC` → the newest symbol version needed."""
    cubin: dict[str, int] = field(default_factory=dict)
    """Architecture (`"90"`) → entries with machine code."""
    ptx: dict[str, int] = field(default_factory=dict)
    """Architecture (`"90"`, `"90a"`) → entries with PTX."""


def read_object(path: Path) -> ObjectFacts:
    """The dynamic section, the symbol versions and the fat binaries of a shared object."""
    facts = ObjectFacts()
    with path.open("rb") as file:
        elf = ELFFile(file)
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                for tag in section.iter_tags():
                    if tag.entry.d_tag == "DT_NEEDED":
                        facts.needed.append(tag.needed)
                    elif tag.entry.d_tag in {"DT_RPATH", "DT_RUNPATH"}:
                        facts.path_kind = tag.entry.d_tag[3:]
                        facts.path = tag.rpath if facts.path_kind == "RPATH" else tag.runpath
            elif isinstance(section, GNUVerNeedSection):
                for _, auxiliaries in section.iter_versions():
                    for auxiliary in auxiliaries:
                        family, _, number = auxiliary.name.partition("_")
                        if re.fullmatch(r"[0-9.]+", number):
                            facts.symbols[family] = max(facts.symbols.get(family, "0"), number, key=Version)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            cubin, ptx = fat_binaries(view)
    facts.cubin = dict(sorted(cubin.items(), key=lambda item: int(item[0])))
    facts.ptx = dict(sorted(ptx.items()))
    return facts


FAT_MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, CUBIN = 1, 2
LZ4, ZSTD = 0x2000, 0x8000
TARGET = re.compile(rb"\.target\s+sm_\d+([af]?)")


def fat_binaries(data: mmap.mmap | bytes) -> tuple[Counter[str], Counter[str]]:
    """Entries of every fat binary in `data`: architecture → cubins, architecture (with the target's letter)
    → PTX.

    Found by their magic wherever they are, because the kernels that MLIR generates are not in .nv_fatbin. A
    fat binary is a 16-byte header (magic, version 1, header size 16, size of the rest) and entries; an
    entry has a header (kind, its size, the payload's padded size, its packed size, minor, major,
    architecture at 28, flags at 40) and a payload.
    """
    cubin: Counter[str] = Counter()
    ptx: Counter[str] = Counter()
    at = data.find(FAT_MAGIC)
    while at >= 0:
        after = at + 4
        if at + 16 <= len(data):
            version, header, size = struct.unpack("<HHQ", data[at + 4 : at + 16])
            if version == 1 and header == 16 and at + 16 + size <= len(data):
                entries = _entries(data, at + 16, at + 16 + size)
                if entries is not None:
                    for kind, name in entries:
                        (cubin if kind == CUBIN else ptx)[name] += 1
                    after = at + 16 + size
        at = data.find(FAT_MAGIC, after)
    return cubin, ptx


def _entries(data: mmap.mmap | bytes, at: int, end: int) -> list[tuple[int, str]] | None:
    found: list[tuple[int, str]] = []
    while at + 64 <= end:
        kind, _, header, size = struct.unpack("<HHIQ", data[at : at + 16])
        packed, _, _, _, arch = struct.unpack("<IIHHI", data[at + 16 : at + 32])
        flags = struct.unpack("<Q", data[at + 40 : at + 48])[0]
        if (
            kind not in {PTX, CUBIN}
            or not 48 <= header <= 4096
            or at + header + size > end
            or not 10 <= arch <= 999
        ):
            return found or None
        name = str(arch)
        if kind == PTX:
            # The driver chooses by the header's number; only the text tells that it is for one architecture
            # alone.
            name += _suffix(data[at + header : at + header + min(size, 4096)], packed, flags)
        found.append((kind, name))
        at += header + size
    return found


def _suffix(payload: bytes, packed: int, flags: int) -> str:
    """The letter of a PTX module's `.target sm_90a`; empty where there is none, or the packing hides it."""
    text = payload
    if flags & LZ4:
        text = lz4_prefix(payload[: packed or len(payload)], 1024)
    match = TARGET.search(text)
    return match[1].decode() if match else ""


def lz4_prefix(block: bytes, want: int) -> bytes:
    """The first `want` bytes of an LZ4 block (fewer where the block is cut off)."""
    out = bytearray()
    at = 0
    try:
        while at < len(block) and len(out) < want:
            token = block[at]
            at += 1
            literal, at = _lz4_length(block, at, token >> 4)
            out += block[at : at + literal]
            at += literal
            if at >= len(block):
                break
            back = block[at] | block[at + 1] << 8
            at += 2
            match, at = _lz4_length(block, at, token & 15)
            if not 0 < back <= len(out):
                break
            for _ in range(match + 4):
                out.append(out[-back])
    except IndexError:
        pass
    return bytes(out[:want])


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    return length, at
