"""payload/strip.py takes symbol tables off real shared objects, and leaves everything else as it is, byte for byte."""

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
BULK = 3 << 20
"""Bytes of a section that only a debugger would read."""
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


def interpreters() -> dict[str, str]:
    """The oldest Python that it has to run on, where there is one, and this one."""
    old = sorted((Path.home() / ".pyenv" / "versions").glob("2.7.*/bin/python"))
    found = {"this": sys.executable}
    for candidate in (shutil.which("python2.7"), *map(str, old)):
        if candidate:
            found["2.7"] = candidate
    return found


PYTHONS = interpreters()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared object with debug information and a large section that is not loaded."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "a.c").write_text(SOURCE % BULK, encoding="ascii")
    target = folder / "liba.so.1"
    command = [COMPILER or "", "-g", "-shared", "-fPIC", "-Wl,-soname,liba.so.1", "-o", str(target)]
    subprocess.run([*command, str(folder / "a.c")], check=True, timeout=60)
    return target


@pytest.fixture
def library(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(built, tmp_path / "liba.so.1"))


def strip(*arguments: Path, python: str = "this") -> str:
    done = subprocess.run(
        [PYTHONS[python], str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def list_events(library: Path, *options: str) -> str:
    """What readelf says, without the file's own name."""
    done = subprocess.run(
        [READELF or "", *options, "--wide", str(library)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.replace(str(library), "")


def call(library: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(library)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("strip_payload", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


# ---------------------------------------------------------------- what is taken away


@pytest.mark.parametrize("python", PYTHONS)
def test_a_stripped_library_works(library: Path, python: str) -> None:
    dynamic, segments, answer = (
        list_events(library, "--dynamic"),
        list_events(library, "--segments"),
        call(library),
    )
    before = library.stat()
    said = strip(library, python=python)
    after = library.stat()
    assert before.st_size - after.st_size > BULK
    assert said == f"{library}: {before.st_size - after.st_size} bytes of symbol tables\n"
    assert after.st_mode == before.st_mode
    assert call(library) == answer == "42\nFalse\n"
    assert list_events(library, "--dynamic") == dynamic
    loads = [line for line in segments.splitlines() if line.strip().startswith("LOAD")]
    assert loads
    assert [
        line for line in list_events(library, "--segments").splitlines() if line.strip().startswith("LOAD")
    ] == loads
    assert "There are no sections" in list_events(library, "--sections")


def test_a_folder_is_looked_through_and_links_are_not_followed(library: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.so"
    inside = tmp_path / "in" / "deep"
    inside.mkdir(parents=True)
    shutil.copy(library, outside)
    shutil.copy(library, inside / "b.cpython-39.so")
    shutil.copy(library, inside / "c.bin")
    (inside / "d.so").symlink_to(outside)
    whole = outside.read_bytes()
    assert strip(tmp_path / "in").count("\n") == 1
    assert outside.read_bytes() == (inside / "c.bin").read_bytes() == whole
    assert (inside / "b.cpython-39.so").stat().st_size < len(whole) - BULK


# ---------------------------------------------------------------- what is left alone


def sections_at(content: bytes) -> tuple[int, int]:
    """Offset and number of the section headers."""
    return struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 60)[0]


def with_bulk_loaded(content: bytes) -> bytes:
    """The same with SHF_ALLOC on the large section: somebody maps it, whatever the segments say."""
    changed = bytearray(content)
    start, count = sections_at(content)
    for offset in range(start, start + count * 64, 64):
        if struct.unpack_from("<Q", content, offset + 32)[0] == BULK:
            struct.pack_into("<Q", changed, offset + 8, 2)
            return bytes(changed)
    raise AssertionError("no such section")


def apply_patch(content: bytes, offset: int, value: bytes) -> bytes:
    return content[:offset] + value + content[offset + len(value) :]


ODD = {
    "empty": lambda _: b"",
    "short": lambda whole: whole[:63],
    "header alone": lambda whole: whole[:64],
    "without its end": lambda whole: whole[: len(whole) - 1],
    "cut in the middle": lambda whole: whole[: BULK // 2],
    "text": lambda _: b"INPUT ( libm.so.6 )\n" + b"x" * BULK,
    "32 bits": lambda whole: apply_patch(whole, 4, b"\x01"),
    "big-endian": lambda whole: apply_patch(whole, 5, b"\x02"),
    "a program": lambda whole: apply_patch(whole, 16, b"\x02"),
    "an object file": lambda whole: apply_patch(whole, 16, b"\x01"),
    "no section headers": lambda whole: apply_patch(whole, 40, b"\0" * 8),
    "section headers outside": lambda whole: apply_patch(whole, 40, b"\xff" * 7 + b"\x7f"),
    "program headers outside": lambda whole: apply_patch(whole, 32, b"\xff" * 7 + b"\x7f"),
    "too many program headers": lambda whole: apply_patch(whole, 56, b"\xff\xff"),
    "odd program headers": lambda whole: apply_patch(whole, 54, b"\x20\x00"),
    "a loaded section behind the segments": with_bulk_loaded,
}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ODD)
def test_left_byte_for_byte(library: Path, name: str, python: str) -> None:
    content = ODD[name](library.read_bytes())
    library.write_bytes(content)
    assert strip(library, python=python) == ""
    assert library.read_bytes() == content


def test_a_second_time_nothing_is_left_to_take(library: Path) -> None:
    strip(library)
    once = library.read_bytes()
    assert strip(library) == ""
    assert library.read_bytes() == once


def test_little_is_not_worth_a_changed_file(built: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.so"
    (tmp_path / "s.c").write_text("int answer(int n) { return n; }\n", encoding="ascii")
    subprocess.run(
        [COMPILER or "", "-g", "-shared", "-fPIC", "-o", str(small), str(tmp_path / "s.c")],
        check=True,
        timeout=60,
    )
    content = small.read_bytes()
    assert strip(small) == ""
    assert small.read_bytes() == content


def test_what_stays_is_not_opened_for_writing(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of an image gets a copy of every file of the layers below that is opened for writing."""
    modes: list[str] = []
    real = builtins.open

    def run_watched(path: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        modes.append(mode)
        return real(path, mode, *args, **more)

    stripper = module()
    monkeypatch.setattr(builtins, "open", run_watched)
    assert stripper.strip(str(library)) > BULK
    assert modes == ["rb", "r+b"]
    modes.clear()
    assert stripper.strip(str(library)) == 0
    assert modes == ["rb"]
