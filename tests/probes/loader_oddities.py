"""Unusual files for the loader model and the real loader, used by tests/probes/test_loader.py."""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

from lab import standins

if TYPE_CHECKING:
    from pathlib import Path


def compile_program(path: Path, *flags: str) -> None:
    """Compile an executable under the name of a library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    compiler = shutil.which("cc") or "cc"
    subprocess.run([compiler, *flags, "-o", str(path), str(source)], check=True, capture_output=True)


def set_header_field(path: Path, kind: int, field: int, value: int) -> None:
    """Write `value` into the 8 bytes at offset `field` of each program header of the type `kind`."""
    content = bytearray(path.read_bytes())
    (phoff,) = struct.unpack_from("<Q", content, 32)
    (count,) = struct.unpack_from("<H", content, 56)
    for index in range(count):
        offset = phoff + 56 * index
        if struct.unpack_from("<I", content, offset)[0] == kind:
            struct.pack_into("<Q", content, offset + field, value)
    path.unlink()
    path.write_bytes(content)


def remove_header(path: Path, kind: int) -> None:
    """Turn each program header of the type `kind` into PT_NULL."""
    content = bytearray(path.read_bytes())
    (phoff,) = struct.unpack_from("<Q", content, 32)
    (count,) = struct.unpack_from("<H", content, 56)
    for index in range(count):
        if struct.unpack_from("<I", content, phoff + 56 * index)[0] == kind:
            struct.pack_into("<I", content, phoff + 56 * index, 0)
    path.unlink()
    path.write_bytes(content)


def build_chain(folder: Path, cache: Path, length: int) -> str:
    """Create `length` objects, each of which needs the next, and return the name of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    first = standins.write_library(
        folder / "libc00000.so.1", cache, needs=["libc00001.so.1"], soname="libc00000.so.1", runpath="$ORIGIN"
    )
    last = standins.write_library(
        folder / "end", cache, soname=f"libc{length - 1:05}.so.1", runpath="$ORIGIN"
    )
    content = first.read_bytes()
    for number in range(1, length - 1):
        renamed = content.replace(b"libc00001", b"libcXXXXX").replace(
            b"libc00000", f"libc{number:05}".encode()
        )
        (folder / f"libc{number:05}.so.1").write_bytes(
            renamed.replace(b"libcXXXXX", f"libc{number + 1:05}".encode())
        )
    last.replace(folder / f"libc{length - 1:05}.so.1")
    return "libc00000.so.1"
