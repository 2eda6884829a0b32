"""Find and read the source files that the user names. Links to folders are not followed."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import re
import stat
import tokenize
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.edits import SourceText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "OUTWARD_LINK",
    "is_inside",
    "iter_uppercase_words",
    "load_source",
    "read_first_line",
    "read_source_text",
    "resolve_path",
    "walk_files",
]

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Limit for the size of a source file."""
OUTWARD_LINK = "it is a link that leads out of the folder"
"""The reason why a file or folder below the given one is left alone."""
_BLOCK_BYTES = 1 << 20
_MAX_WORD_BYTES = 60
_CAPITAL_WORD = re.compile(rb"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]{4,59}(?![A-Za-z0-9_])")
_BYTE_ORDER_MARKS = {BOM_UTF8: "utf-8", BOM_UTF16_LE: "utf-16-le", BOM_UTF16_BE: "utf-16-be"}


def walk_files(
    folder: Path,
    skipped_patterns: Sequence[str],
    is_excluded: Callable[[Path], bool],
    on_error: Callable[[OSError], None],
) -> Iterator[Path]:
    """Yield the files below a folder, sorted within each folder.

    Files and folders for which `is_excluded` returns true are omitted, and so are folders whose name matches a
    pattern in `skipped_patterns`. `on_error` is called with the error of each folder that cannot be listed, and with one
    for each link to a folder outside.
    """
    for root, folders, files in os.walk(folder, onerror=on_error, followlinks=False):
        parent = Path(root)
        for name in folders:
            path = parent / name
            if path.is_symlink() and not is_inside(path, folder) and not is_excluded(path):
                on_error(OSError(errno.ELOOP, OUTWARD_LINK, str(path)))
        folders[:] = sorted(
            name
            for name in folders
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in skipped_patterns)
            and not is_excluded(parent / name)
        )
        for name in sorted(files):
            path = parent / name
            if not is_excluded(path):
                yield path


def resolve_path(path: Path) -> Path:
    """Return the absolute path without symbolic links.

    Unlike Path.resolve, this returns a link to itself unchanged instead of raising an exception.
    """
    return Path(os.path.realpath(path))


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path is in or below a folder after symbolic links have been resolved."""
    return resolve_path(path).is_relative_to(resolve_path(folder))


def read_first_line(path: Path) -> str:
    """Return the first line of a regular file, at most 200 bytes; "" if it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
        with path.open("rb") as file:
            return file.read(200).partition(b"\n")[0].decode("utf-8", "replace")
    except OSError:
        return ""


def read_source_text(path: Path, *, is_python: bool) -> str:
    """Return a file's text, as `load_source` decodes it. Raise ValueError if it cannot be read as text."""
    return load_source(path, is_python=is_python).text


def load_source(path: Path, *, is_python: bool) -> SourceText:
    """Return the decoded content of a text file.

    If `is_python` is true, the file can declare its encoding, as Python source does. Raise ValueError with the reason
    if the file cannot be read, is larger than MAX_FILE_BYTES or is not text.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(data) > MAX_FILE_BYTES:
        msg = f"it is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB"
        raise ValueError(msg)
    for byte_order_mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(byte_order_mark):
            return _decode(data, encoding, byte_order_mark)
    if b"\0" in data:
        raise ValueError("it is not text")
    encoding = "utf-8"
    if is_python:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except SyntaxError:  # an unknown encoding is declared, or the first lines are not UTF-8
            encoding = "latin-1"
    return _decode(data, encoding, b"")


def iter_uppercase_words(path: Path) -> Iterator[str]:
    """Yield the words of capital letters in a file, such as names of environment variables.

    The file can have any size and encoding, and can be binary. Raise OSError if it cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        return
    previous_tail = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            data = previous_tail + block.replace(
                b"\0", b""
            )  # UTF-16 and UTF-32 have a zero beside each letter
            yield from (word.decode("ascii") for word in _CAPITAL_WORD.findall(data))
            previous_tail = data[-_MAX_WORD_BYTES:]  # a word can extend into the next block


def _decode(data: bytes, encoding: str, byte_order_mark: bytes) -> SourceText:
    """Decode a file without its byte order mark `byte_order_mark`.

    Latin-1 is used if the encoding is unknown or the data is invalid in it.
    """
    try:
        return SourceText(data, data[len(byte_order_mark) :].decode(encoding), encoding, byte_order_mark)
    except (UnicodeDecodeError, LookupError):
        return SourceText(data, data.decode("latin-1"), "latin-1")
