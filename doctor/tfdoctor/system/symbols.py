"""Dynamic symbols: which of an object's undefined symbols nothing in a process defines.

`dlopen(…, RTLD_NOW)`, as TensorFlow calls it, fails with "undefined symbol: …" on the first such one. That is how a
libcusparse meets an older libnvJitLink of the same soname. Tables are found through the dynamic section and looked
up through DT_GNU_HASH (or DT_HASH) in a memory map, so that libraries of a gigabyte cost no more than small ones.
"""

from __future__ import annotations

import mmap
import struct
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.system.elf import DYN64, EHDR64, MAX_DYNAMIC_BYTES, PHDR64, PT_DYNAMIC, PT_LOAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DT_HASH, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
SYM64 = struct.Struct("<IBBHQQ")
WORD = struct.Struct("<Q")
SHN_UNDEF = 0
STB_GLOBAL, STB_WEAK = 1, 2
MAX_SYMBOLS = 1 << 20
MAX_NAME = 4096
MAX_NAMES = 1 << 25
MAX_STEPS = 1 << 19
"""Links of hash chains followed in one object, together: real ones have a handful a name."""


class SymbolTable:
    """The dynamic symbols of one object. Use as a context manager. Raises OSError, ValueError, OverflowError,
    struct.error."""

    def __init__(self, path: str) -> None:
        with Path(path).open("rb") as stream:
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        header = EHDR64.unpack_from(self._map, 0)
        segments = [
            PHDR64.unpack_from(self._map, header[5] + i * PHDR64.size) for i in range(min(header[10], 512))
        ]
        self._loads = [s for s in segments if s[0] == PT_LOAD]
        self._steps = 0
        tags: dict[int, int] = {}
        for segment in segments:
            if segment[0] == PT_DYNAMIC:
                size = min(segment[5], MAX_DYNAMIC_BYTES)
                for at in range(segment[2], segment[2] + size - DYN64.size + 1, DYN64.size):
                    tag, value = DYN64.unpack_from(self._map, at)
                    if tag == 0:
                        break
                    tags.setdefault(tag, value)
        self._symbols = self._offset(tags.get(DT_SYMTAB))
        self._strings = self._offset(tags.get(DT_STRTAB))
        self._gnu = self._offset(tags.get(DT_GNU_HASH))
        self._sysv = self._offset(tags.get(DT_HASH))

    def __enter__(self) -> SymbolTable:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def _offset(self, address: int | None) -> int | None:
        for segment in self._loads if address is not None else ():
            if segment[3] <= address < segment[3] + segment[5]:
                return int(address - segment[3] + segment[2])
        return None

    def _name(self, index: int) -> bytes:
        start = (self._strings or 0) + index
        end = self._map.find(b"\0", start, start + MAX_NAME)
        return self._map[start : end if end >= 0 else start]

    def iter_undefined(self) -> Iterator[bytes]:
        """Yield the names of strong undefined symbols."""
        if self._symbols is None or self._strings is None:
            return
        if self._gnu is not None:  # everything that is not hashed comes first, the undefined ones among it
            count = struct.unpack_from("<I", self._map, self._gnu + 4)[0]
        elif self._sysv is not None:
            count = struct.unpack_from("<I", self._map, self._sysv + 4)[0]
        else:
            return
        room = MAX_NAMES
        for index in range(1, min(count, MAX_SYMBOLS)):
            name, info, _, section, _, _ = SYM64.unpack_from(self._map, self._symbols + index * SYM64.size)
            if section == SHN_UNDEF and info >> 4 == STB_GLOBAL and name:
                found = self._name(name)
                room -= len(found)
                if room < 0:
                    raise ValueError("names too long")
                yield found

    def filter_missing(self, names: Iterable[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """Return those of (name, its `gnu_hash`) of which there is no global or weak definition here."""
        if self._symbols is None or self._strings is None:
            return list(names)
        if self._gnu is None:
            return [one for one in names if not self._is_in_sysv(one[0])]
        buckets, first, words, shift = struct.unpack_from("<IIII", self._map, self._gnu)
        if not buckets or not words:
            return list(names)
        filtered = self._gnu + 16
        chains = filtered + words * 8
        where, read = self._map, WORD.unpack_from
        lacking = []
        for one in names:
            value = one[1]
            (word,) = read(where, filtered + (value // 64 % words) * 8)  # a Bloom filter: most are not here
            if not (
                word >> (value % 64) & word >> ((value >> shift) % 64) & 1
                and self._is_in_gnu(*one, chains, buckets, first)
            ):
                lacking.append(one)
        return lacking

    def _is(self, index: int, name: bytes) -> bool:
        at, info, _, section, _, _ = SYM64.unpack_from(self._map, (self._symbols or 0) + index * SYM64.size)
        start = (self._strings or 0) + at
        same = self._map[start : start + len(name) + 1] == name + b"\0"
        return bool(same and section != SHN_UNDEF and info >> 4 in (STB_GLOBAL, STB_WEAK, 10))

    def _step(self) -> None:
        """One more link; ValueError where a damaged table would go on for ever."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise ValueError("hash chains too long")

    def _is_in_gnu(self, name: bytes, value: int, table: int, buckets: int, first: int) -> bool:
        (index,) = struct.unpack_from("<I", self._map, table + value % buckets * 4)
        while True:
            self._step()
            if index < first:
                return False
            (chained,) = struct.unpack_from("<I", self._map, table + buckets * 4 + (index - first) * 4)
            if chained | 1 == value | 1 and self._is(index, name):
                return True
            if chained & 1:
                return False
            index += 1

    def _is_in_sysv(self, name: bytes) -> bool:
        if self._sysv is None:
            return False
        value = 0
        for byte in name:
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
        buckets, _ = struct.unpack_from("<II", self._map, self._sysv)
        (index,) = struct.unpack_from("<I", self._map, self._sysv + 8 + value % max(1, buckets) * 4)
        while index:
            self._step()
            if self._is(index, name):
                return True
            (index,) = struct.unpack_from("<I", self._map, self._sysv + 8 + (buckets + index) * 4)
        return False


@lru_cache(maxsize=4096)  # libraries ask each other for the same few hundred
def gnu_hash(name: bytes) -> int:
    """Return DT_GNU_HASH's hash of a symbol name."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def find_unresolved(path: str, providers: Iterable[str]) -> tuple[str, ...]:
    """Return the strong undefined symbols of `path` that none of `providers` (paths) defines.

    Empty, too, where a table cannot be read: nothing is claimed then. Raises OSError if `path` is not there.
    """
    try:
        with SymbolTable(path) as asking:
            wanted = [(name, gnu_hash(name)) for name in asking.iter_undefined()]
        for provider in providers:
            if not wanted:
                break
            with SymbolTable(provider) as table:
                wanted = table.filter_missing(wanted)
    except (ValueError, OverflowError, struct.error, IndexError):
        return ()
    return tuple(name.decode("utf-8", "replace") for name, _ in wanted)
