"""Which releases log from which line of their source: compat/source_lines.json, read from the wheels by scripts.

`gpu_device.cc:1663]` in a log is a line of TensorFlow 1.14 alone: files change between releases, and a message's number
with them. Wheels for other systems are of the same source and have the same numbers; who builds it with patches, or
from between two releases, may have others.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import DataError, Sources, read
from tfdoctor.records import dataclass

__all__ = ["SourceLines", "load_source_lines", "spanned"]


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A build that cannot be measured any more, and has the lines of another release."""

    NAMED: ClassVar = ("version",)
    version: str
    like: str
    """The release whose lines it has."""
    first: str
    last: str
    """The dates between which people ran it."""
    source: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The lines of one source file."""

    lines: str
    """`"1640:37 1663:37,52-54=1"`: line, the places of its releases in `releases`, and after `=` that of their text."""
    texts: tuple[str, ...] = ()
    """What a message has of which other releases log another one from the same line."""


@dataclasses.dataclass(frozen=True)
class SourceLines:
    """The whole table."""

    as_of: str
    sources: Sources
    releases: tuple[str, ...]
    """Those that were measured, oldest first."""
    files: Mapping[str, SourceFile]
    """By path, as the compiler was given it."""
    unpublished: tuple[Unpublished, ...] = field(default=(), metadata={"noun": "build"})

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        """A file's name → the paths that it has had."""
        found: dict[str, list[str]] = {}
        for path in self.files:
            found.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    @cached_property
    def _read(self) -> dict[str, dict[int, str]]:
        """Path → line → places, as far as it was asked for."""
        return {}

    def at(self, path: str, line: int, message: str = "") -> frozenset[str] | None:
        """The releases that log from this line; none where no release does. None: the file is not in the table.

        `path` as a log has it: whole, with what a build puts before it, with backslashes, or only the file's name.
        `message`, where it is the text of some of these releases, leaves those out that log another one there.
        """
        shown = path.replace("\\", "/")
        known = self._by_name.get(shown.rpartition("/")[2], [])
        paths = [one for one in known if shown.endswith(one) or one.endswith(f"/{shown}")]
        if not paths:
            return None
        found: dict[str, bool | None] = {}
        for one in paths:
            found.update(self._of(one, line, message))
        said = True in found.values()
        return frozenset(release for release, fits in found.items() if fits is not False or not said)

    def _of(self, path: str, line: int, message: str) -> dict[str, bool | None]:
        """Release → whether its text is in the message; None where its text is not known."""
        row = self.files[path]
        found: dict[str, bool | None] = {}
        try:
            if path not in self._read:
                words = (word.partition(":") for word in row.lines.split())
                self._read[path] = {int(number): places for number, _, places in words}
            for part in self._read[path].get(line, "").split(","):
                places, _, text = part.partition("=")
                fits = row.texts[int(text)].strip() in message if text else None
                releases = spanned(self.releases, places) if places else ()
                found.update(dict.fromkeys(releases, fits))
        except (ValueError, IndexError) as error:
            msg = f"compat/source_lines.json: {path}: {error}"
            raise DataError(msg) from error
        return found


def spanned(releases: tuple[str, ...], places: str) -> tuple[str, ...]:
    """Those at "37", or from "52" to "54": "52-54". Raises ValueError."""
    first, _, last = places.partition("-")
    return releases[int(first) : int(last or first) + 1]


def load_source_lines(folder: Path) -> SourceLines:
    """compat/source_lines.json. Raises DataError."""
    return read(SourceLines, folder / "source_lines.json")
