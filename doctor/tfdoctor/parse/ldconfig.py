"""``ldconfig -p`` (the loader's cache) and ``ldconfig -v`` (the links that it would make)."""

from __future__ import annotations

import re

from tfdoctor.parse._text import Parsed, clean_lines
from tfdoctor.records import dataclass

# A damaged paste can have several entries on a line, hence finditer. The look-behind prevents a match at
# every offset of a long word.
_ENTRY = re.compile(r"(?<![^\s()#>])([^\s()#>]+)[ \t]+\(([^()\n]{1,200})\)[ \t]+=>[ \t]+(/[^\s`]+)")
_LINK = re.compile(r"(?<![^\s()#>])([^\s()#>]+)[ \t]+->[ \t]+([^\s()`]+)")
# Matched by soname, so that libicudata or other libraries in CUDA's folder do not count.
_CUDA_FAMILY = re.compile(
    r"lib(?:cu(?:da|dnn|blas|fft|rand|solver|sparse|pti|inj|file|tensor|pc|gtc|sbox)|accinj|checkpoint|nv|npp|nccl)"
)


@dataclass(frozen=True, slots=True)
class CachedLibrary(Parsed):
    """A row of the cache; ``abi`` is the text in parentheses (``libc6,x86-64``)."""

    soname: str
    path: str
    abi: str | None = None


@dataclass(frozen=True, slots=True)
class LibraryLink(Parsed):
    """A row of ``ldconfig -v``: a link and the file that it points to."""

    soname: str
    target: str


@dataclass(frozen=True, slots=True)
class Ldconfig(Parsed):
    """Cache rows and links in order; ``cuda_related`` are NVIDIA's sonames of both, sorted, each once."""

    libs: tuple[CachedLibrary, ...]
    links: tuple[LibraryLink, ...]
    cuda_related: tuple[str, ...]
    notes: tuple[str, ...] = ()


def parse_ldconfig(text: str) -> Ldconfig:
    """Parse either form: whole, filtered by grep, commented out, or with joined lines."""
    libs: list[CachedLibrary] = []
    links: list[LibraryLink] = []
    for line in clean_lines(text):
        if "=>" in line:
            libs.extend(CachedLibrary(m[1], m[3], m[2]) for m in _ENTRY.finditer(line))
        elif "->" in line:
            links.extend(LibraryLink(m[1], m[2]) for m in _LINK.finditer(line) if ".so" in m[1])
    sonames = {lib.soname for lib in libs} | {link.soname for link in links}
    return Ldconfig(
        libs=tuple(libs),
        links=tuple(links),
        cuda_related=tuple(sorted(name for name in sonames if _CUDA_FAMILY.match(name))),
        notes=() if libs or links else ("no cache rows and no links",),
    )
