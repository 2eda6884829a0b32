"""The loader's complaints in a TensorFlow log: which libraries could not be opened.

Formats: 1.14 "Could not dlopen library 'X'; dlerror: …" (dso_loader.cc:53); from 1.15 on "Could not load dynamic
library 'X'; dlerror: …", by default up to 2.11, after that only with TF_CPP_VMODULE=dso_loader=3. All were printed
by real releases (tests/lab). An import that fails names one library in the ImportError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FAILED = re.compile(r"Could not (?:dlopen|load dynamic) library '([^'\n]{1,200})'; dlerror: ([^\n]{1,2000})")
_NOT_OPENED = ("cannot open shared object file", "Kann die Shared-Object-Datei nicht", "无法打开共享对象文件")
"""glibc's words where a file is not there; in the language of programs that set one, as those in Java do."""
_ANY = "|".join(_NOT_OPENED)
_BARE = re.compile(rf"(lib[\w.+-]{{1,120}}\.so[.\d]{{0,40}}): (?:{_ANY})")
_IMPORT = re.compile(rf"(?:ImportError|OSError): (lib[\w.+-]{{1,120}}\.so[.\d]{{0,40}}): (?:{_ANY})")


@dataclass(frozen=True, slots=True)
class FailedOpen:
    """One library that could not be opened."""

    opened: str
    """What TensorFlow asked for."""
    really_missing: str
    """What the loader did not find: the same, or something that it needs."""
    error: str
    """dlerror's text."""
    line: int
    """The line in the log, from 1."""


def is_not_found(error: str) -> bool:
    """Return whether the loader says that it did not find a file."""
    return any(words in error for words in _NOT_OPENED)


def find_failed_opens(log: str) -> tuple[FailedOpen, ...]:
    """Return every failure in the log, each library once, in their order."""
    found: dict[str, FailedOpen] = {}
    for number, line in enumerate(log.splitlines(), 1):
        match = _FAILED.search(line[:4000])
        if match:
            error = match[2].split("; LD_LIBRARY_PATH:")[0].strip()
            bare = _BARE.match(error)
            found.setdefault(match[1], FailedOpen(match[1], bare[1] if bare else match[1], error, number))
            continue
        match = _IMPORT.search(line[:4000])
        if match:
            found.setdefault(match[1], FailedOpen(match[1], match[1], line.strip()[:400], number))
    return tuple(found.values())
