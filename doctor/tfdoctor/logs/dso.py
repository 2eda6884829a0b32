"""Find the libraries that could not be opened, according to the messages in a TensorFlow log.

* 1.14 writes "Could not dlopen library 'X'; dlerror: …" (dso_loader.cc:53).
* 1.15 and later write "Could not load dynamic library 'X'; dlerror: …". After 2.11 they do so only with
  TF_CPP_VMODULE=dso_loader=3.
* A failed import names one library in its ImportError.

Real releases printed all of these messages (tests/lab).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FAILED_OPEN = re.compile(
    r"Could not (?:dlopen|load dynamic) library '([^'\n]{1,200})'; dlerror: ([^\n]{1,2000})"
)
_NOT_FOUND_TEXTS = (
    "cannot open shared object file",
    "Kann die Shared-Object-Datei nicht",
    "无法打开共享对象文件",
)
"""glibc's error texts for a missing file. They are translated if the program sets a locale, as Java programs do."""
_NOT_FOUND_PATTERN = "|".join(_NOT_FOUND_TEXTS)
_MISSING_SONAME = re.compile(rf"(lib[\w.+-]{{1,120}}\.so[.\d]{{0,40}}): (?:{_NOT_FOUND_PATTERN})")
_FAILED_IMPORT = re.compile(
    rf"(?:ImportError|OSError): (lib[\w.+-]{{1,120}}\.so[.\d]{{0,40}}): (?:{_NOT_FOUND_PATTERN})"
)


@dataclass(frozen=True, slots=True)
class FailedOpen:
    """A library that could not be opened."""

    requested_soname: str
    """The library that TensorFlow tried to open."""
    missing_soname: str
    """The library that the loader did not find: the requested library, or one that it depends on."""
    error: str
    """The error text of dlerror, or the whole line of a failed import."""
    line: int
    """Line number in the log, from 1."""


def is_not_found_error(error: str) -> bool:
    """Return whether this is the loader's error for a missing file."""
    return any(text in error for text in _NOT_FOUND_TEXTS)


def find_failed_opens(log: str) -> tuple[FailedOpen, ...]:
    """Return the first failure of each library, in log order."""
    failures: dict[str, FailedOpen] = {}
    for number, line in enumerate(log.splitlines(), 1):
        match = _FAILED_OPEN.search(line[:4000])
        if match:
            requested, text = match.groups()
            error = text.split("; LD_LIBRARY_PATH:")[0].strip()
            missing_match = _MISSING_SONAME.match(error)
            missing = missing_match[1] if missing_match else requested
            failures.setdefault(requested, FailedOpen(requested, missing, error, number))
            continue
        match = _FAILED_IMPORT.search(line[:4000])
        if match:
            soname = match[1]
            failures.setdefault(soname, FailedOpen(soname, soname, line.strip()[:400], number))
    return tuple(failures.values())
