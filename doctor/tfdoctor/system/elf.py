"""The dynamic section of an ELF object, and what glibc's loader would object to before it looks there.

`read_elf` checks a file in the order of glibc's `open_verify` (elf/dl-load.c), because the order decides
whether the loader gives up ("file too short") or goes on to the next folder (another class or machine).
"""

from __future__ import annotations

import enum
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tfdoctor.records import dataclass

EI_CLASS, EI_DATA = 4, 5
EHDR64 = struct.Struct("<16sHHIQQQIHHHHHH")
PHDR64 = struct.Struct("<IIQQQQQQ")
ET_EXEC, ET_DYN = 2, 3
PT_LOAD, PT_DYNAMIC = 1, 2
DYN64 = struct.Struct("<qQ")
VERNEED = struct.Struct("<HHIII")
VERNAUX = struct.Struct("<IHHII")
VERDEF = struct.Struct("<HHHHIII")
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 14, 15, 29
DT_FLAGS_1, DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
DF_1_NODEFLIB = 0x800
DF_1_PIE = 0x08000000
PAGE = 4096
TOUCHED = {
    DT_STRTAB: None,
    6: None,  # DT_SYMTAB
    7: 8,  # DT_RELA, DT_RELASZ
    23: 2,  # DT_JMPREL, DT_PLTRELSZ
    25: 27,  # DT_INIT_ARRAY, DT_INIT_ARRAYSZ: its entries are relocated
    0x6FFFFEF5: None,  # DT_GNU_HASH
    0x6FFFFFF0: None,  # DT_VERSYM
    DT_VERNEED: None,
}
"""Tables that loading itself reads → the entry with their size in bytes."""
VER_FLG_WEAK = 2

MACHINES = {
    "x86_64": 62,
    "amd64": 62,
    "aarch64": 183,
    "arm64": 183,
    "ppc64le": 21,
    "s390x": 22,
    "riscv64": 243,
}
"""uname -m → ELF e_machine."""
MACHINE_NAMES = {
    3: "i386",
    62: "x86-64",
    183: "AArch64",
    21: "PowerPC64",
    40: "ARM",
    22: "S/390",
    243: "RISC-V",
}

MAX_PROGRAM_HEADERS = 512
MAX_DYNAMIC_BYTES = 1 << 20
MAX_VERSION_ENTRIES = 1 << 14
MAX_STRING = 1 << 20
MAX_STRINGS = 1 << 22
"""Bytes of all names together: entries of a damaged table may all point at one long string."""
MAX_OFFSET = 1 << 42


class ElfProblem(str, enum.Enum):
    """Why the loader would not take a file. Those in `SKIPPED` make it look in the next folder."""

    TOO_SHORT = "file too short"
    BAD_MAGIC = "invalid ELF header"
    WRONG_CLASS = "wrong ELF class"
    WRONG_MACHINE = "another machine's object"
    NOT_SHARED = "only ET_DYN and ET_EXEC can be loaded"
    NO_LOADABLE = "object file has no loadable segments"
    CANNOT_READ = "cannot read file data"
    TRUNCATED = "truncated: the loader is killed by a bus error"
    MALFORMED = "malformed dynamic section"
    NO_DYNAMIC = "object file has no dynamic section"
    PIPE = "a named pipe: the loader waits for somebody to write into it"


SKIPPED = frozenset({ElfProblem.WRONG_CLASS, ElfProblem.WRONG_MACHINE})


class ElfError(Exception):
    """The loader would not take this file."""

    def __init__(self, problem: ElfProblem, detail: str = "") -> None:
        super().__init__(f"{problem.value}{f' ({detail})' if detail else ''}")
        self.problem = problem
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ElfFile:
    """What the loader reads of an object. Strings are as in the file: `$ORIGIN` is not expanded."""

    machine: int
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    nodeflib: bool = False
    verneed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(library, the symbol versions it must define), weak ones left out."""
    verdef: tuple[str, ...] = ()
    size: int = 0
    device_inode: tuple[int, int] = (0, 0)
    truncated: bool = False
    """Some segment that is not needed to load reaches beyond the end of the file."""
    program: str = ""
    """"executable", "position-independent executable": what dlopen refuses, and is run all the same."""


def read_elf(path: str, machine: str) -> ElfFile:
    """Return the dynamic section of the object at `path`, for a loader on `machine` (as `uname -m` says it).

    Raises OSError if the file cannot be opened or read, ElfError where the loader would not take it.
    """
    with Path(path).open("rb") as stream:
        stat = os.fstat(stream.fileno())
        return _parse_elf(stream, stat.st_size, (stat.st_dev, stat.st_ino), MACHINES.get(machine.lower(), 62))


def read_elf_stream(stream: BinaryIO, size: int, device_inode: tuple[int, int], machine: str) -> ElfFile:
    """Return the same of an open file, wherever it is. Raises OSError, ElfError."""
    return _parse_elf(stream, size, device_inode, MACHINES.get(machine.lower(), 62))


def _parse_elf(stream: BinaryIO, size: int, device_inode: tuple[int, int], expected_machine: int) -> ElfFile:
    header = stream.read(EHDR64.size)
    if len(header) < EHDR64.size:
        raise ElfError(ElfProblem.TOO_SHORT)
    if header[:4] != b"\x7fELF":
        raise ElfError(ElfProblem.BAD_MAGIC)
    if header[EI_CLASS] != 2:
        raise ElfError(ElfProblem.WRONG_CLASS, "ELFCLASS32")
    if header[EI_DATA] != 1:
        raise ElfError(ElfProblem.BAD_MAGIC, "not little-endian")
    (_, kind, machine, _, _, phoff, _, _, _, phentsize, phnum, _, _, _) = EHDR64.unpack(header)
    if machine != expected_machine:
        raise ElfError(ElfProblem.WRONG_MACHINE, MACHINE_NAMES.get(machine, f"e_machine {machine}"))
    if kind not in (ET_EXEC, ET_DYN):
        raise ElfError(ElfProblem.NOT_SHARED)
    if phentsize != PHDR64.size or phnum > MAX_PROGRAM_HEADERS:
        raise ElfError(ElfProblem.MALFORMED, "program headers")
    table = _bytes(stream, phoff, phnum * PHDR64.size)
    if len(table) < phnum * PHDR64.size:
        raise ElfError(ElfProblem.CANNOT_READ)
    segments = [Segment(s[0], s[2], s[3], s[5]) for s in PHDR64.iter_unpack(table)]
    loads = [s for s in segments if s.kind == PT_LOAD]
    if not loads:
        raise ElfError(ElfProblem.NO_LOADABLE)
    beyond = [s for s in loads if s.end > size]
    dynamic = next((s for s in segments if s.kind == PT_DYNAMIC), None)
    if loads[0] in beyond or (beyond and (dynamic is None or dynamic.offset >= size)):
        raise ElfError(ElfProblem.TRUNCATED, f"{size} bytes are left of at least {max(s.end for s in loads)}")
    whole = ElfFile(machine, size=size, device_inode=device_inode, truncated=bool(beyond))
    if kind == ET_EXEC:
        whole = replace(whole, program="executable")
    if dynamic is None or not dynamic.size:
        if kind == ET_DYN:
            raise ElfError(ElfProblem.NO_DYNAMIC)
        return whole
    try:
        section = _Dynamic(stream, loads, dynamic)
        if beyond and section.reaches() > -(-size // PAGE) * PAGE:
            detail = f"{size} bytes are left of at least {max(s.end for s in loads)}"
            raise ElfError(ElfProblem.TRUNCATED, detail)
        return section.fill(whole)
    except (struct.error, IndexError) as error:
        raise ElfError(ElfProblem.MALFORMED, str(error)) from error


def _bytes(stream: BinaryIO, offset: int, count: int) -> bytes:
    """At most `count` bytes from `offset`; none where a damaged header points beyond any file."""
    if offset > MAX_OFFSET:
        return b""
    stream.seek(offset)
    return stream.read(count)


class Segment(NamedTuple):
    """What of a program header matters here."""

    kind: int
    offset: int
    address: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class _Dynamic:
    """The PT_DYNAMIC segment of an open object. Section headers are not used: they may be stripped.

    Read by hand because it is on the hot path of every check: a general ELF library needs 20 times as long for
    the same fields (tests/system compares the two).
    """

    def __init__(self, stream: BinaryIO, loads: list[Segment], dynamic: Segment) -> None:
        self._stream = stream
        self._loads = loads
        self._entries: list[tuple[int, int]] = []
        self._room = MAX_STRINGS
        self._versions = MAX_VERSION_ENTRIES
        self._fill_entries(self._offset(dynamic.address), dynamic.size)
        table = self._value(DT_STRTAB)
        self._strings = self._offset(table) if table is not None else 0

    def _fill_entries(self, start: int, size: int) -> None:
        """The entries up to DT_NULL: as the loader does, wherever the segment is said to end."""
        step = min(max(size // DYN64.size * DYN64.size, DYN64.size), PAGE)
        for at in range(start, start + MAX_DYNAMIC_BYTES, step):
            content = _bytes(self._stream, at, step)
            for tag, value in DYN64.iter_unpack(content[: len(content) // DYN64.size * DYN64.size]):
                if tag == DT_NULL:
                    return
                self._entries.append((tag, value))
            if len(content) < step:
                break

    def reaches(self) -> int:
        """Return how far into the file the loader reads whatever it loads the object for: its tables, all
        relocations.
        """
        last = 0
        for tag, size_tag in TOUCHED.items():
            address = self._value(tag)
            if address:
                last = max(last, self._offset(address) + (self._value(size_tag) or 1 if size_tag else 1))
        return last

    def fill(self, elf: ElfFile) -> ElfFile:
        """Return `elf` with everything that this segment says."""
        soname, rpath, runpath = (self._value(tag) for tag in (DT_SONAME, DT_RPATH, DT_RUNPATH))
        if (self._value(DT_FLAGS_1) or 0) & DF_1_PIE:
            elf = replace(elf, program="position-independent executable")
        return replace(
            elf,
            soname=self._string(soname) if soname is not None else None,
            needed=tuple(self._string(value) for tag, value in self._entries if tag == DT_NEEDED),
            rpath=self._string(rpath) if rpath is not None else None,
            runpath=self._string(runpath) if runpath is not None else None,
            nodeflib=bool((self._value(DT_FLAGS_1) or 0) & DF_1_NODEFLIB),
            verneed=self._parse_verneed(),
            verdef=self._verdef(),
        )

    def _value(self, wanted: int) -> int | None:
        return next((value for tag, value in self._entries if tag == wanted), None)

    def _offset(self, address: int) -> int:
        for segment in self._loads:
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise ElfError(ElfProblem.MALFORMED, f"address {address:#x} is in no segment")

    def _string(self, index: int) -> str:
        content = _bytes(self._stream, self._strings + index, 256)
        if b"\0" not in content:  # a RUNPATH can have 20 KB
            content = _bytes(self._stream, self._strings + index, MAX_STRING)
        name = content.split(b"\0", 1)[0]
        self._room -= len(name)
        if self._room < 0:
            raise ElfError(ElfProblem.MALFORMED, "names too long")
        return name.decode("utf-8", "surrogateescape")

    def _count_version(self) -> None:
        """Tables are chains of offsets, which can be laid so that every link is met thousands of times."""
        self._versions -= 1
        if self._versions < 0:
            raise ElfError(ElfProblem.MALFORMED, "too many symbol versions")

    def _parse_verneed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return Elfxx_Verneed and Elfxx_Vernaux."""
        table = self._value(DT_VERNEED)
        if table is None:
            return ()
        result: list[tuple[str, tuple[str, ...]]] = []
        at = self._offset(table)
        for _ in range(self._value(DT_VERNEEDNUM) or 0):
            self._count_version()
            _, count, file_at, aux, following = VERNEED.unpack(_bytes(self._stream, at, VERNEED.size))
            versions: list[str] = []
            aux_at = at + aux
            for _ in range(count):
                self._count_version()
                _, flags, _, name_at, next_aux = VERNAUX.unpack(_bytes(self._stream, aux_at, VERNAUX.size))
                if not flags & VER_FLG_WEAK:
                    versions.append(self._string(name_at))
                if not next_aux:
                    break
                aux_at += next_aux
            result.append((self._string(file_at), tuple(versions)))
            if not following:
                break
            at += following
        return tuple(result)

    def _verdef(self) -> tuple[str, ...]:
        """Return the names of Elfxx_Verdef."""
        table = self._value(DT_VERDEF)
        if table is None:
            return ()
        names: list[str] = []
        at = self._offset(table)
        for _ in range(self._value(DT_VERDEFNUM) or 0):
            self._count_version()
            _, _, _, _, _, aux, following = VERDEF.unpack(_bytes(self._stream, at, VERDEF.size))
            (name_at,) = struct.unpack("<I", _bytes(self._stream, at + aux, 4))
            names.append(self._string(name_at))
            if not following:
                break
            at += following
        return tuple(names)
