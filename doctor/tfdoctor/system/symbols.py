"""Find the undefined symbols of an object that no other object in the process defines.

TensorFlow calls `dlopen(…, RTLD_NOW)`, which fails with "undefined symbol: …" at the first of them. This happens,
for example, if libcusparse is loaded with an older libnvJitLink of the same soname. The dynamic section locates the
tables, and DT_GNU_HASH or DT_HASH finds a name in them. The file is memory-mapped, so a library of one gigabyte
costs no more than a small one.
"""

from __future__ import annotations

import mmap
import struct
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.system.elf import (
    DYN64,
    EHDR64,
    MAX_DYNAMIC_BYTES,
    MAX_PROGRAM_HEADERS,
    PHDR64,
    PT_DYNAMIC,
    PT_LOAD,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DT_HASH, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
SYM64 = struct.Struct("<IBBHQQ")
BLOOM_WORD = struct.Struct("<Q")
SHN_UNDEF = 0
STB_GLOBAL, STB_WEAK = 1, 2
MAX_SYMBOLS = 1 << 20
MAX_NAME_BYTES = 4096
"""Limit for the length of a symbol name."""
MAX_ALL_NAMES_BYTES = 1 << 25
"""Limit for the total length of the undefined symbol names of an object."""
MAX_STEPS = 1 << 19
"""Limit for the hash chain links that are followed in an object. Real objects need a handful per name."""


class SymbolTable:
    """The dynamic symbol table of an object, as a context manager.

    The constructor and the methods raise OSError, ValueError, OverflowError or struct.error if the file cannot be
    read or is damaged.
    """

    def __init__(self, path: str) -> None:
        with Path(path).open("rb") as stream:
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        _, _, _, _, _, phoff, _, _, _, _, phnum, _, _, _ = EHDR64.unpack_from(self._map, 0)
        # Fields of a program header: 0 is the type, 2 the offset, 3 the address, 5 the size in the file.
        segments = [
            PHDR64.unpack_from(self._map, phoff + number * PHDR64.size)
            for number in range(min(phnum, MAX_PROGRAM_HEADERS))
        ]
        self._load_segments = [segment for segment in segments if segment[0] == PT_LOAD]
        self._step_count = 0
        tags: dict[int, int] = {}
        for segment in segments:
            if segment[0] == PT_DYNAMIC:
                size = min(segment[5], MAX_DYNAMIC_BYTES)
                for entry_offset in range(segment[2], segment[2] + size - DYN64.size + 1, DYN64.size):
                    tag, value = DYN64.unpack_from(self._map, entry_offset)
                    if tag == 0:
                        break
                    tags.setdefault(tag, value)
        self._symbols_offset = self._get_offset(tags.get(DT_SYMTAB))
        self._strings_offset = self._get_offset(tags.get(DT_STRTAB))
        self._gnu_hash_offset = self._get_offset(tags.get(DT_GNU_HASH))
        self._sysv_hash_offset = self._get_offset(tags.get(DT_HASH))

    def __enter__(self) -> SymbolTable:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def _get_offset(self, address: int | None) -> int | None:
        """Return the file offset of a virtual address; None if no segment contains it."""
        for segment in self._load_segments if address is not None else ():
            if segment[3] <= address < segment[3] + segment[5]:
                return int(address - segment[3] + segment[2])
        return None

    def _read_name(self, index: int) -> bytes:
        """Return the name at an index of the string table; b"" if it is longer than MAX_NAME_BYTES."""
        start = (self._strings_offset or 0) + index
        end = self._map.find(b"\0", start, start + MAX_NAME_BYTES)
        return self._map[start : end if end >= 0 else start]

    def iter_undefined_names(self) -> Iterator[bytes]:
        """Yield the names of the strong undefined symbols. Raise ValueError if all together are too long."""
        if self._symbols_offset is None or self._strings_offset is None:
            return
        if self._gnu_hash_offset is not None:
            # Undefined symbols are not hashed, so they come before the first hashed symbol.
            count = struct.unpack_from("<I", self._map, self._gnu_hash_offset + 4)[0]
        elif self._sysv_hash_offset is not None:
            count = struct.unpack_from("<I", self._map, self._sysv_hash_offset + 4)[0]
        else:
            return
        remaining = MAX_ALL_NAMES_BYTES
        for index in range(1, min(count, MAX_SYMBOLS)):
            name_index, info, _, section, _, _ = SYM64.unpack_from(
                self._map, self._symbols_offset + index * SYM64.size
            )
            if section == SHN_UNDEF and info >> 4 == STB_GLOBAL and name_index:
                name = self._read_name(name_index)
                remaining -= len(name)
                if remaining < 0:
                    raise ValueError("names too long")
                yield name

    def filter_undefined(self, names: Iterable[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """Return the (name, `compute_gnu_hash`) pairs for which this object has no global or weak definition."""
        if self._symbols_offset is None or self._strings_offset is None:
            return list(names)
        if self._gnu_hash_offset is None:
            return [(name, hash_value) for name, hash_value in names if not self._is_in_sysv_hash(name)]
        bucket_count, first_hashed, bloom_words, shift = struct.unpack_from(
            "<IIII", self._map, self._gnu_hash_offset
        )
        if not bucket_count or not bloom_words:
            return list(names)
        bloom_offset = self._gnu_hash_offset + 16
        buckets_offset = bloom_offset + bloom_words * 8
        data, read = self._map, BLOOM_WORD.unpack_from
        missing = []
        for symbol in names:
            _, hash_value = symbol
            # The Bloom filter rejects most names.
            (bloom_word,) = read(data, bloom_offset + (hash_value // 64 % bloom_words) * 8)
            if not (
                bloom_word >> (hash_value % 64) & bloom_word >> ((hash_value >> shift) % 64) & 1
                and self._is_in_gnu_hash(*symbol, buckets_offset, bucket_count, first_hashed)
            ):
                missing.append(symbol)
        return missing

    def _defines(self, index: int, name: bytes) -> bool:
        """Return whether the symbol at an index is a global, weak or unique definition of `name`."""
        name_offset, info, _, section, _, _ = SYM64.unpack_from(
            self._map, (self._symbols_offset or 0) + index * SYM64.size
        )
        start = (self._strings_offset or 0) + name_offset
        is_same_name = self._map[start : start + len(name) + 1] == name + b"\0"
        # 10 is STB_GNU_UNIQUE.
        return bool(is_same_name and section != SHN_UNDEF and info >> 4 in (STB_GLOBAL, STB_WEAK, 10))

    def _count_step(self) -> None:
        """Count a hash chain link. Raise ValueError after MAX_STEPS, because a damaged chain can be endless."""
        self._step_count += 1
        if self._step_count > MAX_STEPS:
            raise ValueError("hash chains too long")

    def _is_in_gnu_hash(
        self, name: bytes, hash_value: int, buckets_offset: int, bucket_count: int, first_hashed: int
    ) -> bool:
        """Return whether DT_GNU_HASH leads to a definition of `name`. The hash chains follow the buckets."""
        chains_offset = buckets_offset + bucket_count * 4
        (index,) = struct.unpack_from("<I", self._map, buckets_offset + hash_value % bucket_count * 4)
        while True:
            self._count_step()
            if index < first_hashed:
                return False
            (chained,) = struct.unpack_from("<I", self._map, chains_offset + (index - first_hashed) * 4)
            # The lowest bit is not part of the hash: it marks the end of the chain.
            if chained | 1 == hash_value | 1 and self._defines(index, name):
                return True
            if chained & 1:
                return False
            index += 1

    def _is_in_sysv_hash(self, name: bytes) -> bool:
        """Return whether DT_HASH leads to a definition of `name`."""
        if self._sysv_hash_offset is None:
            return False
        hash_value = 0
        for byte in name:
            hash_value = (hash_value << 4) + byte
            high = hash_value & 0xF0000000
            hash_value = (hash_value ^ (high >> 24)) & ~high & 0xFFFFFFFF
        bucket_count, _ = struct.unpack_from("<II", self._map, self._sysv_hash_offset)
        (index,) = struct.unpack_from(
            "<I", self._map, self._sysv_hash_offset + 8 + hash_value % max(1, bucket_count) * 4
        )
        while index:
            self._count_step()
            if self._defines(index, name):
                return True
            (index,) = struct.unpack_from(
                "<I", self._map, self._sysv_hash_offset + 8 + (bucket_count + index) * 4
            )
        return False


@lru_cache(maxsize=4096)  # libraries share a few hundred symbol names
def compute_gnu_hash(name: bytes) -> int:
    """Return the DT_GNU_HASH hash of a symbol name."""
    hash_value = 5381
    for byte in name:
        hash_value = (hash_value * 33 + byte) & 0xFFFFFFFF
    return hash_value


def list_unresolved_symbols(path: str, providers: Iterable[str]) -> tuple[str, ...]:
    """Return the strong undefined symbols of the object at `path` that no object at `providers` defines.

    Return () if a table cannot be parsed. Raise OSError if a file cannot be opened.
    """
    try:
        with SymbolTable(path) as symbols:
            missing = [(name, compute_gnu_hash(name)) for name in symbols.iter_undefined_names()]
        for provider in providers:
            if not missing:
                break
            with SymbolTable(provider) as table:
                missing = table.filter_undefined(missing)
    except (ValueError, OverflowError, struct.error, IndexError):
        return ()
    return tuple(name.decode("utf-8", "replace") for name, _ in missing)
