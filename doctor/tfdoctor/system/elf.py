"""Read the dynamic section of an ELF object, and detect problems for which glibc's loader rejects it.

`read_elf` checks a file in the order of glibc's `open_verify` (elf/dl-load.c), because the order decides
whether the loader fails ("file too short") or continues in the next folder (other class or machine).
"""

from __future__ import annotations

import enum
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tfdoctor.core.records import dataclass

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
PAGE_BYTES = 4096
SIZE_TAG_BY_TABLE_TAG = {
    DT_STRTAB: None,
    6: None,  # DT_SYMTAB
    7: 8,  # DT_RELA, DT_RELASZ
    23: 2,  # DT_JMPREL, DT_PLTRELSZ
    25: 27,  # DT_INIT_ARRAY, DT_INIT_ARRAYSZ: its entries are relocated
    0x6FFFFEF5: None,  # DT_GNU_HASH
    0x6FFFFFF0: None,  # DT_VERSYM
    DT_VERNEED: None,
}
"""Dynamic tags of the tables that the loader reads, each with the tag of the table's size in bytes, if any."""
VER_FLG_WEAK = 2

ELF_MACHINE_BY_NAME = {
    "x86_64": 62,
    "amd64": 62,
    "aarch64": 183,
    "arm64": 183,
    "ppc64le": 21,
    "s390x": 22,
    "riscv64": 243,
}
"""The ELF field e_machine by the machine name of `uname -m`."""
NAME_BY_ELF_MACHINE = {
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
MAX_NAME_BYTES = 1 << 20
MAX_ALL_NAMES_BYTES = 1 << 22
"""Limit for the total length of all names. Many entries of a damaged table may point to one long string."""
MAX_OFFSET = 1 << 42


class ElfProblem(str, enum.Enum):
    """A reason why the loader rejects a file. After `SKIPPED_PROBLEMS`, it searches the next folder."""

    TOO_SHORT = "file too short"
    BAD_MAGIC = "invalid ELF header"
    WRONG_CLASS = "wrong ELF class"
    WRONG_MACHINE = "another machine's object"
    NOT_LOADABLE = "only ET_DYN and ET_EXEC can be loaded"
    NO_LOADABLE_SEGMENTS = "object file has no loadable segments"
    CANNOT_READ = "cannot read file data"
    TRUNCATED = "truncated: the loader is killed by a bus error"
    MALFORMED = "malformed dynamic section"
    NO_DYNAMIC_SECTION = "object file has no dynamic section"
    NAMED_PIPE = "a named pipe: the loader waits for somebody to write into it"


SKIPPED_PROBLEMS = frozenset({ElfProblem.WRONG_CLASS, ElfProblem.WRONG_MACHINE})


class ElfError(Exception):
    """The loader would reject this file."""

    def __init__(self, problem: ElfProblem, detail: str = "") -> None:
        super().__init__(f"{problem.value}{f' ({detail})' if detail else ''}")
        self.problem = problem
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ElfFile:
    """The fields of an ELF object that matter to the loader. `$ORIGIN` in a path is not expanded."""

    machine: int
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    nodeflib: bool = False
    verneed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Required libraries, each with the symbol versions that it must define. Weak versions are omitted."""
    verdef: tuple[str, ...] = ()
    """Symbol versions that the object defines."""
    size: int = 0
    device_inode: tuple[int, int] = (0, 0)
    truncated: bool = False
    """Whether a segment extends beyond the end of the file, although the object can be loaded."""
    program: str = ""
    """"executable" or "position-independent executable" for a program, which dlopen rejects; otherwise ""."""


def read_elf(path: str, machine: str) -> ElfFile:
    """Return the dynamic section of the object at `path`, for a loader on `machine` (as in `uname -m`).

    Raise OSError if the file cannot be opened or read, or ElfError if the loader would reject it.
    """
    with Path(path).open("rb") as stream:
        stat = os.fstat(stream.fileno())
        return _parse_elf(stream, stat.st_size, (stat.st_dev, stat.st_ino), _get_elf_machine(machine))


def read_elf_stream(stream: BinaryIO, size: int, device_inode: tuple[int, int], machine: str) -> ElfFile:
    """Return the dynamic section of an object that is open as a stream, for a loader on `machine`.

    Raise OSError if the stream cannot be read, or ElfError if the loader would reject the object.
    """
    return _parse_elf(stream, size, device_inode, _get_elf_machine(machine))


def _get_elf_machine(name: str) -> int:
    """Return the ELF field e_machine for a machine name of `uname -m`. An unknown name counts as x86-64."""
    return ELF_MACHINE_BY_NAME.get(name.lower(), 62)


def _parse_elf(stream: BinaryIO, size: int, device_inode: tuple[int, int], expected_machine: int) -> ElfFile:
    """Check an object in the loader's order, and return its dynamic section."""
    header = stream.read(EHDR64.size)
    if len(header) < EHDR64.size:
        raise ElfError(ElfProblem.TOO_SHORT)
    if header[:4] != b"\x7fELF":
        raise ElfError(ElfProblem.BAD_MAGIC)
    if header[EI_CLASS] != 2:  # ELFCLASS64
        raise ElfError(ElfProblem.WRONG_CLASS, "ELFCLASS32")
    if header[EI_DATA] != 1:  # ELFDATA2LSB
        raise ElfError(ElfProblem.BAD_MAGIC, "not little-endian")
    (_, kind, machine, _, _, phoff, _, _, _, phentsize, phnum, _, _, _) = EHDR64.unpack(header)
    if machine != expected_machine:
        raise ElfError(ElfProblem.WRONG_MACHINE, NAME_BY_ELF_MACHINE.get(machine, f"e_machine {machine}"))
    if kind not in (ET_EXEC, ET_DYN):
        raise ElfError(ElfProblem.NOT_LOADABLE)
    if phentsize != PHDR64.size or phnum > MAX_PROGRAM_HEADERS:
        raise ElfError(ElfProblem.MALFORMED, "program headers")
    table = _read_at(stream, phoff, phnum * PHDR64.size)
    if len(table) < phnum * PHDR64.size:
        raise ElfError(ElfProblem.CANNOT_READ)
    segments = [
        Segment(kind=segment_kind, offset=offset, address=address, size=segment_size)
        for segment_kind, _, offset, address, _, segment_size, _, _ in PHDR64.iter_unpack(table)
    ]
    load_segments = [segment for segment in segments if segment.kind == PT_LOAD]
    if not load_segments:
        raise ElfError(ElfProblem.NO_LOADABLE_SEGMENTS)
    truncated_segments = [segment for segment in load_segments if segment.end > size]
    dynamic = next((segment for segment in segments if segment.kind == PT_DYNAMIC), None)
    if load_segments[0] in truncated_segments or (
        truncated_segments and (dynamic is None or dynamic.offset >= size)
    ):
        raise ElfError(
            ElfProblem.TRUNCATED,
            f"{size} bytes are left of at least {max(segment.end for segment in load_segments)}",
        )
    elf = ElfFile(machine, size=size, device_inode=device_inode, truncated=bool(truncated_segments))
    if kind == ET_EXEC:
        elf = replace(elf, program="executable")
    if dynamic is None or not dynamic.size:
        if kind == ET_DYN:
            raise ElfError(ElfProblem.NO_DYNAMIC_SECTION)
        return elf
    try:
        dynamic_section = _Dynamic(stream, load_segments, dynamic)
        # The rest of the last page in the file can be read, so round the size up.
        if truncated_segments and dynamic_section.find_required_size() > -(-size // PAGE_BYTES) * PAGE_BYTES:
            detail = f"{size} bytes are left of at least {max(segment.end for segment in load_segments)}"
            raise ElfError(ElfProblem.TRUNCATED, detail)
        return dynamic_section.fill_fields(elf)
    except (struct.error, IndexError) as error:
        raise ElfError(ElfProblem.MALFORMED, str(error)) from error


def _read_at(stream: BinaryIO, offset: int, count: int) -> bytes:
    """Return at most `count` bytes from `offset`; b"" if the offset is too large, as in a damaged header."""
    if offset > MAX_OFFSET:
        return b""
    stream.seek(offset)
    return stream.read(count)


class Segment(NamedTuple):
    """The relevant fields of a program header."""

    kind: int
    offset: int
    address: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class _Dynamic:
    """The PT_DYNAMIC segment of an open object. Section headers are ignored, because they may be stripped.

    Every check uses this code, and a general ELF library takes 20 times as long for the same fields. A test in
    tests/system compares the results.
    """

    def __init__(self, stream: BinaryIO, load_segments: list[Segment], dynamic: Segment) -> None:
        self._stream = stream
        self._load_segments = load_segments
        self._entries: list[tuple[int, int]] = []
        self._remaining_name_bytes = MAX_ALL_NAMES_BYTES
        self._remaining_versions = MAX_VERSION_ENTRIES
        self._read_entries(self._get_offset(dynamic.address), dynamic.size)
        table = self._find_value(DT_STRTAB)
        self._strings_offset = self._get_offset(table) if table is not None else 0

    def _read_entries(self, start: int, size: int) -> None:
        """Read the entries up to DT_NULL, even beyond the segment's stated size, as the loader does."""
        step = min(max(size // DYN64.size * DYN64.size, DYN64.size), PAGE_BYTES)
        for offset in range(start, start + MAX_DYNAMIC_BYTES, step):
            content = _read_at(self._stream, offset, step)
            for tag, value in DYN64.iter_unpack(content[: len(content) // DYN64.size * DYN64.size]):
                if tag == DT_NULL:
                    return
                self._entries.append((tag, value))
            if len(content) < step:
                break

    def find_required_size(self) -> int:
        """Return the end of the tables and relocations that the loader always reads, as a file offset."""
        end = 0
        for tag, size_tag in SIZE_TAG_BY_TABLE_TAG.items():
            address = self._find_value(tag)
            if address:
                size = self._find_value(size_tag) if size_tag else None
                end = max(end, self._get_offset(address) + (size or 1))  # at least one byte is read
        return end

    def fill_fields(self, elf: ElfFile) -> ElfFile:
        """Return a copy of `elf` with the fields from this segment."""
        soname, rpath, runpath = (self._find_value(tag) for tag in (DT_SONAME, DT_RPATH, DT_RUNPATH))
        if (self._find_value(DT_FLAGS_1) or 0) & DF_1_PIE:
            elf = replace(elf, program="position-independent executable")
        return replace(
            elf,
            soname=self._read_string(soname) if soname is not None else None,
            needed=tuple(self._read_string(value) for tag, value in self._entries if tag == DT_NEEDED),
            rpath=self._read_string(rpath) if rpath is not None else None,
            runpath=self._read_string(runpath) if runpath is not None else None,
            nodeflib=bool((self._find_value(DT_FLAGS_1) or 0) & DF_1_NODEFLIB),
            verneed=self._parse_verneed(),
            verdef=self._parse_verdef(),
        )

    def _find_value(self, target_tag: int) -> int | None:
        """Return the value of the first entry with this tag; None if there is none."""
        return next((value for tag, value in self._entries if tag == target_tag), None)

    def _get_offset(self, address: int) -> int:
        """Return the file offset of a virtual address. Raise ElfError if it is in no segment."""
        for segment in self._load_segments:
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise ElfError(ElfProblem.MALFORMED, f"address {address:#x} is in no segment")

    def _read_string(self, index: int) -> str:
        """Return the name at an index of the string table. Raise ElfError if all names together are too long."""
        content = _read_at(self._stream, self._strings_offset + index, 256)
        if b"\0" not in content:  # a RUNPATH can be 20 KB long
            content = _read_at(self._stream, self._strings_offset + index, MAX_NAME_BYTES)
        name = content.split(b"\0", 1)[0]
        self._remaining_name_bytes -= len(name)
        if self._remaining_name_bytes < 0:
            raise ElfError(ElfProblem.MALFORMED, "names too long")
        return name.decode("utf-8", "surrogateescape")

    def _count_version(self) -> None:
        """Count one version entry. Raise ElfError after too many, because a damaged list can be endless."""
        self._remaining_versions -= 1
        if self._remaining_versions < 0:
            raise ElfError(ElfProblem.MALFORMED, "too many symbol versions")

    def _parse_verneed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the required symbol versions by library (Elfxx_Verneed and Elfxx_Vernaux)."""
        table = self._find_value(DT_VERNEED)
        if table is None:
            return ()
        required_versions: list[tuple[str, tuple[str, ...]]] = []
        entry_offset = self._get_offset(table)
        for _ in range(self._find_value(DT_VERNEEDNUM) or 0):
            self._count_version()
            _, count, file_name_index, aux_distance, next_offset = VERNEED.unpack(
                _read_at(self._stream, entry_offset, VERNEED.size)
            )
            versions: list[str] = []
            aux_offset = entry_offset + aux_distance
            for _ in range(count):
                self._count_version()
                _, flags, _, name_index, next_aux = VERNAUX.unpack(
                    _read_at(self._stream, aux_offset, VERNAUX.size)
                )
                if not flags & VER_FLG_WEAK:
                    versions.append(self._read_string(name_index))
                if not next_aux:
                    break
                aux_offset += next_aux
            required_versions.append((self._read_string(file_name_index), tuple(versions)))
            if not next_offset:
                break
            entry_offset += next_offset
        return tuple(required_versions)

    def _parse_verdef(self) -> tuple[str, ...]:
        """Return the defined symbol versions (Elfxx_Verdef)."""
        table = self._find_value(DT_VERDEF)
        if table is None:
            return ()
        names: list[str] = []
        entry_offset = self._get_offset(table)
        for _ in range(self._find_value(DT_VERDEFNUM) or 0):
            self._count_version()
            _, _, _, _, _, aux_distance, next_offset = VERDEF.unpack(
                _read_at(self._stream, entry_offset, VERDEF.size)
            )
            (name_index,) = struct.unpack("<I", _read_at(self._stream, entry_offset + aux_distance, 4))
            names.append(self._read_string(name_index))
            if not next_offset:
                break
            entry_offset += next_offset
        return tuple(names)
