"""Measurements of NVIDIA's wheels: hashes, sizes, and the names and dependencies of their libraries.

A library is found by its file name. Its soname and DT_NEEDED are in the dynamic section, so each wheel is streamed
once. The results are cached by the wheel's hash.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from tfdoctor.compat.wheels import read_sets
from update_support.files import write_file
from update_support.remote_zip import extract, group_members, load_central_directory
from update_support.resolve import list_platforms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from update_support.index import File, Index
    from update_support.remote_zip import Member

__all__ = ["write_cuda_locks"]

FORMAT = 1
"""Format version of the cache."""
OBJECT = re.compile(r"\.so(?:\.[0-9.]+)?$")
SYSTEM_LIBRARIES = re.compile(r"lib(?:c|m|dl|rt|pthread|util|stdc\+\+|gcc_s|gomp)\.so\.|ld-linux|linux-vdso")
"""Libraries of glibc and the compiler."""


def find_wheel(index: Index, pin: str) -> File:
    """Return the Linux x86-64 wheel of an exact version; of several builds the one with the lowest glibc."""
    name, _, version = pin.partition("==")
    order = {platform: -rank for rank, platform in enumerate(list_platforms(60))}
    fitting = [
        (min(order[tag.platform] for tag in file.tags if tag.platform in order), file)
        for file in index.files(name)
        if file.is_wheel
        and file.version == Version(version)
        and any(tag.platform in order for tag in file.tags)
    ]
    if not fitting:
        sys.exit(f"{pin}: no wheel for Linux x86-64 on the index")
    return min(fitting, key=lambda item: (item[0], item[1].filename))[1]


def measure(index: Index, file: File) -> dict[str, Any]:
    """Return the entry of one wheel in wheels.json."""
    path = index.cache / "nvidia" / f"{file.sha256}.json"
    if path.is_file():
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw.get("format") == FORMAT:
            return dict(raw["wheel"])
    members, total = load_central_directory(index.web, file.url)
    entry = {
        "file": file.filename,
        "sha256": file.sha256,
        "size": total,
        "unpacked": sum(member.size for member in members),
        "libraries": measure_libraries(index, file.url, members, total),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps({"format": FORMAT, "wheel": entry}))
    return entry


def measure_libraries(index: Index, url: str, members: list[Member], total: int) -> dict[str, Any]:
    """Return the soname and the dependencies of every shared object."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    entries: dict[str, Any] = {}
    object_members = [member for member in members if OBJECT.search(member.name)]
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as folder:
        path = Path(folder) / "object"

        def load_member(member: Member, pieces: Iterator[bytes]) -> None:
            with path.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            entry: dict[str, Any] = {"needed": []}
            with path.open("rb") as file:
                for section in ELFFile(file).iter_sections():
                    if isinstance(section, DynamicSection):
                        for tag in section.iter_tags():
                            if tag.entry.d_tag == "DT_NEEDED" and not SYSTEM_LIBRARIES.match(tag.needed):
                                entry["needed"].append(tag.needed)
                            elif tag.entry.d_tag == "DT_SONAME":
                                entry = {"soname": tag.soname, **entry}
            entries[member.name] = entry

        for run in group_members(object_members, 1 << 22):
            extract(index.web, url, run, total, load_member)
    return dict(sorted(entries.items()))


def write_cuda_locks(index: Index, compat: Path, folder: Path, as_of: str) -> None:
    """Measure every wheel of compat/cuda_wheels.toml; write wheels.json and one lock per set."""
    sets = read_sets(compat).sets
    wheels: dict[str, dict[str, Any]] = {}
    for pin in sorted({pin for row in sets for pin in row.pins}):
        wheels[pin] = measure(index, find_wheel(index, pin))
        print(
            f"{pin}: {wheels[pin]['size'] / 1e6:.0f} MB, {wheels[pin]['unpacked'] / 1e6:.0f} unpacked",
            file=sys.stderr,
            flush=True,
        )
    folder.mkdir(parents=True, exist_ok=True)
    for row in sets:
        packed = sum(wheels[pin]["size"] for pin in row.pins)
        unpacked = sum(wheels[pin]["unpacked"] for pin in row.pins)
        lines = [
            f"# NVIDIA's wheels for TensorFlow {row.tensorflow}: CUDA {row.cuda}, cuDNN {row.cudnn}, Linux x86-64",
            f"# made by scripts/update_locks.py: {packed / 1e9:.1f} GB to download, {unpacked / 1e9:.1f} GB on disk",
            f"# pip install --no-deps --require-hashes -r cuda/{row.id}.txt",
            *(f"{pin} --hash=sha256:{wheels[pin]['sha256']}" for pin in row.pins),
        ]
        write_file(folder / f"{row.id}.txt", "\n".join([*lines, ""]))
    rows = ",\n".join(f"{json.dumps(pin)}:{json.dumps(facts)}" for pin, facts in wheels.items())
    text = f'{{"schema_version":1,"as_of":"{as_of}","wheels":{{\n{rows}\n}}}}\n'
    path = folder / "wheels.json"
    if (
        not path.is_file()
        or path.read_text(encoding="utf-8").partition('"wheels"')[2] != text.partition('"wheels"')[2]
    ):
        write_file(path, text)
