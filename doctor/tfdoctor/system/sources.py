"""Files of code that somebody names: found below folders, and read. Never follows a link to a folder."""

from __future__ import annotations

import fnmatch
import io
import os
import stat
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["below", "first_line", "read_source"]

LARGEST = 4 * 1024 * 1024
"""Bytes of a file that are taken."""


def below(folder: Path, skipped: Sequence[str], left_out: Callable[[Path], bool]) -> Iterator[Path]:
    """Regular files below a folder, in order; folders whose name fits `skipped` are not entered."""
    for root, folders, files in os.walk(folder, followlinks=False):
        place = Path(root)
        folders[:] = sorted(
            name
            for name in folders
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in skipped)
            and not left_out(place / name)
        )
        for name in sorted(files):
            path = place / name
            if not left_out(path):
                yield path


def first_line(path: Path) -> str:
    """The first line of a file that may be a program; "" where it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
        with path.open("rb") as file:
            return file.read(200).partition(b"\n")[0].decode("utf-8", "replace")
    except OSError:
        return ""


def read_source(path: Path, *, python: bool) -> str:
    """The text of a file, in the encoding that a Python file names. Raises ValueError with why it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a regular file")
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(data) > LARGEST:
        msg = f"it is larger than {LARGEST // 1024 // 1024} MiB"
        raise ValueError(msg)
    if b"\0" in data and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError("it is not text")
    encoding = "utf-8"
    if python:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except SyntaxError:
            encoding = "latin-1"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return data.decode("latin-1")
