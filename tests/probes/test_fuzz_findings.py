"""Inputs that once broke a parser, found by scripts/fuzz or by coverage."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import pytest

from tfdoctor.compat.decode import DataError, read_raw
from tfdoctor.core.text import clean
from tfdoctor.probes.ldcache import ENTRY, HEADER, MAGIC, parse_ldcache
from tfdoctor.probes.parsers.registry import detect_kind, parse
from tfdoctor.system.elf import DYN64, EHDR64, PHDR64, ElfError, ElfProblem, read_elf
from tfdoctor.system.payloads import MARKER, parse_payload_output
from tfdoctor.system.symbols import SYM64, list_unresolved_symbols

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DYNAMIC, CONTENT = 0x1000, 0x8000
NEEDED, HASH, STRTAB, SYMTAB, VERNEED, VERNEEDNUM = 1, 4, 5, 6, 0x6FFFFFFE, 0x6FFFFFFF


def build_elf(tags: Sequence[tuple[int, int]], content: bytes = b"", phoff: int = EHDR64.size) -> bytes:
    """Return a shared object with its dynamic entries at DYNAMIC and `content` at CONTENT."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = EHDR64.pack(ident, 3, 62, 1, 0, phoff, 0, 0, EHDR64.size, PHDR64.size, 2, 0, 0, 0)
    dynamic = b"".join(DYN64.pack(*tag) for tag in tags) + DYN64.pack(0, 0)
    start = max(CONTENT, DYNAMIC + len(dynamic))
    load = PHDR64.pack(1, 5, 0, 0, 0, start + len(content), start + len(content), 4096)
    segment = PHDR64.pack(2, 6, DYNAMIC, DYNAMIC, DYNAMIC, len(dynamic), len(dynamic), 8)
    return ((header + load + segment).ljust(DYNAMIC, b"\0") + dynamic).ljust(start, b"\0") + content


def test_built_object_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(build_elf([(STRTAB, CONTENT), (NEEDED, 1)], b"\0libx.so.1\0"))
    assert read_elf(str(path), "x86_64").needed == ("libx.so.1",)


def test_shared_long_name_does_not_fill_memory(tmp_path: Path) -> None:
    """60 000 needed libraries of 1 MiB each would take 60 GB, from a file of 2 MB."""
    path = tmp_path / "lib.so"
    path.write_bytes(build_elf([(STRTAB, 0x200000), *[(NEEDED, 0)] * 60_000], b"a" * 0x200000))
    with pytest.raises(ElfError) as caught:
        read_elf(str(path), "x86_64")
    assert caught.value.problem is ElfProblem.MALFORMED


def test_overlapping_version_tables_take_bounded_time(tmp_path: Path) -> None:
    """4096 libraries share one chain of 4096 versions: 16 million entries, which once took half a minute."""
    path = tmp_path / "lib.so"
    count = 4096
    needs = b"".join(struct.pack("<HHIII", 1, count, 0, (count - i) * 16, 16) for i in range(count))
    versions = struct.pack("<IHHII", 0, 0, 0, 0, 16) * count
    tags = [(STRTAB, CONTENT + 1), (VERNEED, CONTENT), (VERNEEDNUM, count)]
    path.write_bytes(build_elf(tags, needs + versions))
    began = time.process_time()
    with pytest.raises(ElfError):
        read_elf(str(path), "x86_64")
    assert time.process_time() - began < 2


def test_headers_beyond_the_file_have_no_symbols(tmp_path: Path) -> None:
    """`struct` cannot unpack at an offset of 2⁶³ or more."""
    path = tmp_path / "lib.so"
    path.write_bytes(build_elf([], phoff=1 << 63))
    assert list_unresolved_symbols(str(path), []) == ()
    path.write_bytes(build_elf([(STRTAB, CONTENT)])[:-8])
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, EHDR64.size + PHDR64.size + 8, (1 << 64) - 32)
    path.write_bytes(content)
    assert list_unresolved_symbols(str(path), []) == ()


def test_cyclic_hash_chain_defines_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    undefined = b"".join(SYM64.pack(1, 0x10, 0, 0, 0, 0) for _ in range(400))
    symbols = CONTENT + 0x100
    # One bucket, whose chain links symbol 1 to itself.
    table = struct.pack("<IIIII", 1, 400, 1, 0, 1).ljust(0x100, b"\0")
    tags = [(STRTAB, symbols + len(undefined)), (SYMTAB, symbols), (HASH, CONTENT)]
    path.write_bytes(build_elf(tags, table + undefined + b"\0puts\0"))
    assert list_unresolved_symbols(str(path), []) == ("puts",) * 399
    began = time.process_time()
    assert list_unresolved_symbols(str(path), [str(path)]) == ()
    assert time.process_time() - began < 6


def test_shared_long_cache_name_stays_small() -> None:
    count = 20_000
    offset = HEADER.size + count * ENTRY.size
    entries = ENTRY.pack(0x0303, offset, offset, 0, 0) * count
    content = HEADER.pack(MAGIC, count, 4096, 2, 0) + entries + b"a" * 4000 + b"\0"
    parsed = parse_ldcache(content)
    assert parsed
    assert sum(len(entry.soname) + len(entry.path) for entry in parsed) <= 4 * len(content)


def test_deeply_nested_data_is_refused(tmp_path: Path) -> None:
    for name in ("x.toml", "x.json"):
        (tmp_path / name).write_text(("a = " if name == "x.toml" else "") + "[" * 100_000, encoding="ascii")
        with pytest.raises(DataError, match=r"not (TOML|JSON)"):
            read_raw(tmp_path / name, name)


@pytest.mark.parametrize("text", ["\r" * 100_000, "|" * 100_000 + "x---", "+|:`" * 25_000 + "x==="])
@pytest.mark.parametrize("kind", ["smi_table", "nvcc", "auto"])
def test_repeated_characters_take_linear_time(kind: str, text: str) -> None:
    """Each input once took hours, because a run was scanned from each of its characters."""
    began = time.process_time()
    if kind == "auto":
        detect_kind(text)
    else:
        parse(kind, text)
    assert time.process_time() - began < 6


def test_clean_is_idempotent() -> None:
    for text in ("\x1b[1m" + "a" * 5000, "a" * 4001, "a" * 4000 + " […]", "a" * 3999 + " […] b"):
        once = clean(text)
        assert clean(once) == once
        assert len(once) <= 4004


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "9" * 5000, '{"a": ' + "1" * 5000 + "}"])
def test_unreadable_payload_answer_is_ignored(text: str) -> None:
    assert parse_payload_output(f'{MARKER}{text}\n{MARKER}{{"ok": true}}\n') == {"ok": True}
