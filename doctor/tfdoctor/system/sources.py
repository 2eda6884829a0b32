"""Source files named by the user: find them below folders and read them. Links to folders are not followed."""

from __future__ import annotations

import fnmatch
import io
import os
import stat
import tokenize
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.parse.edits import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["first_line", "load_source", "read_source", "real_path", "walk_files"]

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Files with more bytes are rejected."""
_BYTE_ORDER_MARKS = {BOM_UTF8: "utf-8", BOM_UTF16_LE: "utf-16-le", BOM_UTF16_BE: "utf-16-be"}


def walk_files(
    folder: Path, skipped_patterns: Sequence[str], is_excluded: Callable[[Path], bool]
) -> Iterator[Path]:
    """Yield the files below a folder, in order, except those that `is_excluded` accepts.

    Folders whose name matches a pattern of `skipped_patterns` are not entered.
    """
    for root, folders, files in os.walk(folder, followlinks=False):
        parent = Path(root)
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


def real_path(path: Path) -> Path:
    """Return the absolute path without links. A link to itself is returned unchanged, unlike Path.resolve."""
    return Path(os.path.realpath(path))


def first_line(path: Path) -> str:
    """Return the first line of a file (at most 200 bytes); "" if it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
        with path.open("rb") as file:
            return file.read(200).partition(b"\n")[0].decode("utf-8", "replace")
    except OSError:
        return ""


def read_source(path: Path, *, python: bool) -> str:
    """Return the text of a file. Raises ValueError as `load_source` does."""
    return load_source(path, python=python).text


def load_source(path: Path, *, python: bool) -> Source:
    """Read a text file, in the encoding that a Python file declares. Raises ValueError with the reason if it cannot."""
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
    for mark, codec in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return _decode(data, codec, mark)
    if b"\0" in data:
        raise ValueError("it is not text")
    codec = "utf-8"
    if python:
        try:
            codec, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except SyntaxError:
            codec = "latin-1"
    return _decode(data, codec, b"")


def _decode(data: bytes, codec: str, mark: bytes) -> Source:
    """Decode a file without its byte-order mark; use Latin-1 if the encoding is unknown or does not fit."""
    try:
        return Source(data, data[len(mark) :].decode(codec), codec, mark)
    except (UnicodeDecodeError, LookupError):
        return Source(data, data.decode("latin-1"), "latin-1")
