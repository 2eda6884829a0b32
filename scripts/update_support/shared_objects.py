"""Facts about a shared object: dynamic section, symbol versions, and the GPU code in its fat binaries."""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from packaging.version import Version

from tfdoctor.payload.fatbins import count_fat_binaries

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ObjectFacts", "load_object"]


@dataclass
class ObjectFacts:
    """Facts about one shared object."""

    needed: list[str] = field(default_factory=list)
    path_kind: str = ""
    """`RPATH`, `RUNPATH` or empty."""
    path: str = ""
    symbols: dict[str, str] = field(default_factory=dict)
    """The newest required version of each symbol family, such as `GLIBC`."""
    cubin: dict[str, int] = field(default_factory=dict)
    """Number of entries with machine code by architecture (`"90"`)."""
    ptx: dict[str, int] = field(default_factory=dict)
    """Number of entries with PTX by architecture (`"90"`, `"90a"`)."""


def load_object(path: Path) -> ObjectFacts:
    """Read the dynamic section, the symbol versions and the fat binaries of a shared object."""
    facts = ObjectFacts()
    with path.open("rb") as file:
        elf = ELFFile(file)
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                for tag in section.iter_tags():
                    if tag.entry.d_tag == "DT_NEEDED":
                        facts.needed.append(tag.needed)
                    elif tag.entry.d_tag in {"DT_RPATH", "DT_RUNPATH"}:
                        facts.path_kind = tag.entry.d_tag[3:]
                        facts.path = tag.rpath if facts.path_kind == "RPATH" else tag.runpath
            elif isinstance(section, GNUVerNeedSection):
                for _, auxiliaries in section.iter_versions():
                    for auxiliary in auxiliaries:
                        family, _, number = auxiliary.name.partition("_")
                        if re.fullmatch(r"[0-9.]+", number):
                            facts.symbols[family] = max(facts.symbols.get(family, "0"), number, key=Version)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            cubin, ptx = count_fat_binaries(view)
    facts.cubin = dict(sorted(cubin.items(), key=lambda item: int(item[0])))
    facts.ptx = dict(sorted(ptx.items()))
    return facts
