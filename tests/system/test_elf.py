"""The ELF reader compared with pyelftools on this machine's shared objects, and on damaged objects."""

from __future__ import annotations

import contextlib
import itertools
import platform
import struct
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdoctor.system.elf import ElfError, ElfFile, ElfProblem, read_elf

MACHINE = platform.machine()
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu")


def find_small_objects() -> list[str]:
    """Return up to 40 shared objects of this machine, smallest first, because pyelftools is slow on large ones."""
    sizes: dict[str, int] = {}
    for folder in FOLDERS:
        for path in Path(folder).glob("*.so*") if Path(folder).is_dir() else ():
            if path.is_file():
                sizes[str(path.resolve())] = path.stat().st_size
    smallest = sorted(sizes, key=lambda path: (sizes[path], path))
    return list(itertools.islice(filter(is_elf, smallest), 40))


def is_elf(path: str) -> bool:
    with Path(path).open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


OBJECTS = find_small_objects()

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="ELF is Linux's")


def parse_by_pyelftools(path: str) -> dict[str, Any]:
    """Return the same fields, as pyelftools reads them from the sections."""
    with Path(path).open("rb") as stream:
        elf = ELFFile(stream)
        fields: dict[str, Any] = {"needed": [], "soname": None, "rpath": None, "runpath": None}
        for segment in elf.iter_segments("PT_DYNAMIC"):
            assert isinstance(segment, DynamicSegment)
            tag: Any
            for tag in segment.iter_tags():
                kind = tag.entry.d_tag
                if kind == "DT_NEEDED":
                    fields["needed"].append(tag.needed)
                elif kind in ("DT_SONAME", "DT_RPATH", "DT_RUNPATH"):
                    name = kind.removeprefix("DT_").lower()
                    fields[name] = getattr(tag, name)
        fields["verneed"], fields["verdef"] = [], []
        for section in elf.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for need, auxiliaries in section.iter_versions():
                    names = [aux.name for aux in auxiliaries if not aux["vna_flags"] & 2]
                    fields["verneed"].append((need.name, tuple(names)))
            if isinstance(section, GNUVerDefSection):
                fields["verdef"] += [
                    next(iter(auxiliaries)).name for _, auxiliaries in section.iter_versions()
                ]
        return fields


@pytest.mark.skipif(not OBJECTS, reason="no shared objects in the usual folders")
def test_reader_agrees_with_pyelftools() -> None:
    compared = 0
    for path in OBJECTS:
        try:
            parsed = read_elf(path, MACHINE)
        except ElfError:
            continue
        expected = parse_by_pyelftools(path)
        assert list(parsed.needed) == expected["needed"], path
        assert (parsed.soname, parsed.rpath, parsed.runpath) == (
            expected["soname"],
            expected["rpath"],
            expected["runpath"],
        )
        assert list(parsed.verneed) == expected["verneed"], path
        assert list(parsed.verdef) == expected["verdef"], path
        compared += 1
    assert compared > len(OBJECTS) // 2


@pytest.fixture
def good() -> bytes:
    """Return the content of the smallest shared object."""
    if not OBJECTS:
        pytest.skip("no shared objects in the usual folders")
    return min((Path(path).read_bytes() for path in OBJECTS), key=len)


def parse_content(tmp_path: Path, content: bytes) -> ElfFile:
    """Write `content` to a file and parse it."""
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    return read_elf(str(path), MACHINE)


def get_refusal(tmp_path: Path, content: bytes) -> ElfProblem:
    """Return the problem for which the ELF reader refuses `content`."""
    with pytest.raises(ElfError) as caught:
        parse_content(tmp_path, content)
    return caught.value.problem


def test_objects_that_glibc_refuses(tmp_path: Path, good: bytes) -> None:
    assert get_refusal(tmp_path, b"") is ElfProblem.TOO_SHORT
    assert get_refusal(tmp_path, good[:63]) is ElfProblem.TOO_SHORT
    assert (
        get_refusal(tmp_path, b"/* GNU ld script */\nINPUT(libfoo.so.1)\n" + b" " * 64)
        is ElfProblem.BAD_MAGIC
    )
    assert get_refusal(tmp_path, good[:64]) is ElfProblem.CANNOT_READ
    assert get_refusal(tmp_path, good[:4] + b"\x01" + good[5:]) is ElfProblem.WRONG_CLASS
    assert get_refusal(tmp_path, good[:18] + struct.pack("<H", 3) + good[20:]) is ElfProblem.WRONG_MACHINE
    assert get_refusal(tmp_path, good[:16] + struct.pack("<H", 1) + good[18:]) is ElfProblem.NOT_LOADABLE
    assert get_refusal(tmp_path, good[: len(good) // 3]) is ElfProblem.TRUNCATED


def build_patched_object(tables_at: int) -> bytes:
    """Return an object as patchelf writes it: the string table is in a later segment than the dynamic section."""
    strings = b"\0libneeded.so.1\0"
    dynamic = b"".join(
        struct.pack("<qQ", *pair) for pair in ((1, 1), (5, 0x400000), (10, len(strings)), (0, 0))
    )
    loads = [(1, 4, 0, 0, 0, 0x1000, 0x1000, 0x1000), (1, 6, tables_at, 0x400000, 0, 0x100, 0x100, 0x1000)]
    segments = [*loads, (2, 6, 0x800, 0x800, 0, len(dynamic), len(dynamic), 8)]
    machine = {"x86_64": 62, "aarch64": 183}[MACHINE]
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 0, 0, 0)
    content = bytearray(tables_at + 0x100)
    content[:64] = header
    for number, segment in enumerate(segments):
        content[64 + 56 * number : 120 + 56 * number] = struct.pack("<IIQQQQQQ", *segment)
    content[0x800 : 0x800 + len(dynamic)] = dynamic
    content[tables_at : tables_at + len(strings)] = strings
    return bytes(content)


@pytest.mark.skipif(MACHINE not in ("x86_64", "aarch64"), reason="written for these")
def test_object_cut_before_its_tables_is_truncated(tmp_path: Path) -> None:
    """The first half of NVIDIA's libcufft.so.11 makes dlopen end with SIGBUS."""
    content = build_patched_object(0x8000)
    assert parse_content(tmp_path, content).needed == ("libneeded.so.1",)
    assert get_refusal(tmp_path, content[:0x4000]) is ElfProblem.TRUNCATED
    # The kernel fills the last page of a mapped file with zeros, so data in that page can be read.
    assert parse_content(tmp_path, content[:0x8020]).needed == ("libneeded.so.1",)


@settings(deadline=None)
@given(st.integers(0, 4000), st.binary(min_size=1, max_size=64))
def test_damaged_object_raises_only_elf_errors(tmp_path_factory: Any, at: int, noise: bytes) -> None:
    if not OBJECTS:
        pytest.skip("no shared objects in the usual folders")
    content = Path(OBJECTS[0]).read_bytes()
    path = tmp_path_factory.mktemp("elf") / "lib.so"
    path.write_bytes(content[:at] + noise + content[at + len(noise) :])
    with contextlib.suppress(ElfError):
        read_elf(str(path), MACHINE)
