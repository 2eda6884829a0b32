"""payload/strip.py removes symbol tables from real shared objects and leaves everything else unchanged."""

from __future__ import annotations

import builtins
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).resolve().parents[2] / "doctor" / "tfdoctor" / "payload" / "strip.py"
DEBUG_BYTES = 3 << 20
"""Bytes of a section that only a debugger reads."""
SOURCE = r"""
static int table[4] = {1, 2, 3, 4};
__thread int counter;
int answer(int n) { counter += n; return counter + table[n & 3]; }
__attribute__((constructor)) static void set(void) { counter = 35; }
__asm__(".section .debug_bulk,\"\",@progbits\n.zero %d\n.previous");
"""
CALL = (
    "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); print(library.answer(3)); "
    "getattr(library, 'answer'); print(hasattr(library, 'nothing'))"
)
COMPILER = shutil.which("gcc") or shutil.which("cc")
READELF = shutil.which("readelf")
pytestmark = [
    pytest.mark.skipif(COMPILER is None or READELF is None, reason="no compiler or no binutils"),
    pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="not Linux x86-64"),
]


def find_interpreters() -> dict[str, str]:
    """Return the running interpreter and, if it is installed, Python 2.7, the oldest one that strip.py supports."""
    candidates = sorted((Path.home() / ".pyenv" / "versions").glob("2.7.*/bin/python"))
    interpreters = {"this": sys.executable}
    for candidate in (shutil.which("python2.7"), *map(str, candidates)):
        if candidate:
            interpreters["2.7"] = candidate
    return interpreters


PYTHONS = find_interpreters()


@pytest.fixture(scope="module")
def built_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared object with debug information and a large section that is not loaded."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "a.c").write_text(SOURCE % DEBUG_BYTES, encoding="ascii")
    library = folder / "liba.so.1"
    command = [COMPILER or "", "-g", "-shared", "-fPIC", "-Wl,-soname,liba.so.1", "-o", str(library)]
    subprocess.run([*command, str(folder / "a.c")], check=True, timeout=60)
    return library


@pytest.fixture
def library(built_library: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(built_library, tmp_path / "liba.so.1"))


def run_strip(*arguments: Path, python: str = "this") -> str:
    process = subprocess.run(
        [PYTHONS[python], str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


def read_elf(library: Path, *options: str) -> str:
    """Return readelf's output without the file's own name."""
    process = subprocess.run(
        [READELF or "", *options, "--wide", str(library)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return process.stdout.replace(str(library), "")


def call_library(library: Path) -> str:
    process = subprocess.run(
        [sys.executable, "-c", CALL, str(library)], capture_output=True, text=True, timeout=60, check=True
    )
    return process.stdout


def load_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("strip_payload", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- what is removed


@pytest.mark.parametrize("python", PYTHONS)
def test_stripped_library_still_works(library: Path, python: str) -> None:
    dynamic, segments, answer = (
        read_elf(library, "--dynamic"),
        read_elf(library, "--segments"),
        call_library(library),
    )
    before = library.stat()
    output = run_strip(library, python=python)
    after = library.stat()
    assert before.st_size - after.st_size > DEBUG_BYTES
    assert output == f"{library}: {before.st_size - after.st_size} bytes of symbol tables\n"
    assert after.st_mode == before.st_mode
    assert call_library(library) == answer == "42\nFalse\n"
    assert read_elf(library, "--dynamic") == dynamic
    loads = [line for line in segments.splitlines() if line.strip().startswith("LOAD")]
    assert loads
    assert [
        line for line in read_elf(library, "--segments").splitlines() if line.strip().startswith("LOAD")
    ] == loads
    assert "There are no sections" in read_elf(library, "--sections")


def test_folder_is_searched_without_following_links(library: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.so"
    inside = tmp_path / "in" / "deep"
    inside.mkdir(parents=True)
    shutil.copy(library, outside)
    shutil.copy(library, inside / "b.cpython-39.so")
    shutil.copy(library, inside / "c.bin")
    (inside / "d.so").symlink_to(outside)
    content = outside.read_bytes()
    assert run_strip(tmp_path / "in").count("\n") == 1
    assert outside.read_bytes() == (inside / "c.bin").read_bytes() == content
    assert (inside / "b.cpython-39.so").stat().st_size < len(content) - DEBUG_BYTES


# ---------------------------------------------------------------- what is unchanged


def read_section_table(content: bytes) -> tuple[int, int]:
    """Return the offset and the number of the section headers."""
    return struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 60)[0]


def mark_debug_section_loaded(content: bytes) -> bytes:
    """Return the content with SHF_ALLOC set on the large section: it counts as loaded, whatever the segments say."""
    patched = bytearray(content)
    start, count = read_section_table(content)
    for offset in range(start, start + count * 64, 64):
        if struct.unpack_from("<Q", content, offset + 32)[0] == DEBUG_BYTES:
            struct.pack_into("<Q", patched, offset + 8, 2)
            return bytes(patched)
    raise AssertionError("no such section")


def replace_bytes(content: bytes, offset: int, value: bytes) -> bytes:
    return content[:offset] + value + content[offset + len(value) :]


UNSTRIPPABLE = {
    "empty": lambda _: b"",
    "short": lambda whole: whole[:63],
    "header alone": lambda whole: whole[:64],
    "without its end": lambda whole: whole[: len(whole) - 1],
    "cut in the middle": lambda whole: whole[: DEBUG_BYTES // 2],
    "text": lambda _: b"INPUT ( libm.so.6 )\n" + b"x" * DEBUG_BYTES,
    "32 bits": lambda whole: replace_bytes(whole, 4, b"\x01"),
    "big-endian": lambda whole: replace_bytes(whole, 5, b"\x02"),
    "a program": lambda whole: replace_bytes(whole, 16, b"\x02"),
    "an object file": lambda whole: replace_bytes(whole, 16, b"\x01"),
    "no section headers": lambda whole: replace_bytes(whole, 40, b"\0" * 8),
    "section headers outside": lambda whole: replace_bytes(whole, 40, b"\xff" * 7 + b"\x7f"),
    "program headers outside": lambda whole: replace_bytes(whole, 32, b"\xff" * 7 + b"\x7f"),
    "too many program headers": lambda whole: replace_bytes(whole, 56, b"\xff\xff"),
    "odd program headers": lambda whole: replace_bytes(whole, 54, b"\x20\x00"),
    "a loaded section behind the segments": mark_debug_section_loaded,
}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", UNSTRIPPABLE)
def test_unsuitable_file_is_unchanged(library: Path, name: str, python: str) -> None:
    content = UNSTRIPPABLE[name](library.read_bytes())
    library.write_bytes(content)
    assert run_strip(library, python=python) == ""
    assert library.read_bytes() == content


def test_second_run_changes_nothing(library: Path) -> None:
    run_strip(library)
    stripped = library.read_bytes()
    assert run_strip(library) == ""
    assert library.read_bytes() == stripped


def test_small_symbol_tables_are_kept(built_library: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.so"
    (tmp_path / "s.c").write_text("int answer(int n) { return n; }\n", encoding="ascii")
    subprocess.run(
        [COMPILER or "", "-g", "-shared", "-fPIC", "-o", str(small), str(tmp_path / "s.c")],
        check=True,
        timeout=60,
    )
    content = small.read_bytes()
    assert run_strip(small) == ""
    assert small.read_bytes() == content


def test_unchanged_file_is_not_opened_for_writing(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image layer gets a copy of each file of the layers below that is opened for writing."""
    modes: list[str] = []
    real_open = builtins.open

    def open_recorded(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        modes.append(mode)
        return real_open(path, mode, *args, **options)

    stripper = load_module()
    monkeypatch.setattr(builtins, "open", open_recorded)
    assert stripper.strip(str(library)) > DEBUG_BYTES
    assert modes == ["rb", "r+b"]
    modes.clear()
    assert stripper.strip(str(library)) == 0
    assert modes == ["rb"]
