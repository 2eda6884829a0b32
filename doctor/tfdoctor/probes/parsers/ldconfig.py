"""Parse ``ldconfig -p`` (the loader's cache) and ``ldconfig -v`` (the links that ldconfig creates)."""

from __future__ import annotations

import re

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean_lines

# The look-behind prevents a match at every offset of a long word.
_CACHE_ENTRY = re.compile(r"(?<![^\s()#>])([^\s()#>]+)[ \t]+\(([^()\n]{1,200})\)[ \t]+=>[ \t]+(/[^\s`]+)")
_LINK = re.compile(r"(?<![^\s()#>])([^\s()#>]+)[ \t]+->[ \t]+([^\s()`]+)")
# It is matched at the beginning of the soname, so that libicudata or other libraries in the CUDA folder do not count.
_CUDA_SONAME = re.compile(
    r"lib(?:cu(?:da|dnn|blas|fft|rand|solver|sparse|pti|inj|file|tensor|pc|gtc|sbox)|accinj|checkpoint|nv|npp|nccl)"
)


@dataclass(frozen=True, slots=True)
class CachedLibrary(Parsed):
    """An entry of the cache. ``abi`` is the text in parentheses, such as ``libc6,x86-64``."""

    soname: str
    path: str
    abi: str | None = None


@dataclass(frozen=True, slots=True)
class LibraryLink(Parsed):
    """A link in ``ldconfig -v``, and the file that it points to."""

    soname: str
    target: str


@dataclass(frozen=True, slots=True)
class LdconfigListing(Parsed):
    """The cache entries and the links, in order.

    ``cuda_related`` are the sonames of NVIDIA libraries in either, sorted and without duplicates.
    """

    libs: tuple[CachedLibrary, ...]
    links: tuple[LibraryLink, ...]
    cuda_related: tuple[str, ...]
    notes: tuple[str, ...] = ()


def parse_ldconfig(text: str) -> LdconfigListing:
    """Parse either output, even if it was filtered by grep or commented out, or if lines were joined."""
    libs: list[CachedLibrary] = []
    links: list[LibraryLink] = []
    for line in clean_lines(text):
        if "=>" in line:
            entries = (match.groups() for match in _CACHE_ENTRY.finditer(line))
            libs.extend(CachedLibrary(soname, path, abi) for soname, abi, path in entries)
        elif "->" in line:
            pairs = (match.groups() for match in _LINK.finditer(line))
            links.extend(LibraryLink(soname, target) for soname, target in pairs if ".so" in soname)
    sonames = {lib.soname for lib in libs} | {link.soname for link in links}
    return LdconfigListing(
        libs=tuple(libs),
        links=tuple(links),
        cuda_related=tuple(sorted(name for name in sonames if _CUDA_SONAME.match(name))),
        notes=() if libs or links else ("no cache rows and no links",),
    )
