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

__all__ = ["SourceLines", "expand_span", "load_source_lines"]

_MAX_CACHED_ANSWERS = 1024
"""Answers that are remembered."""


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
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The files in which it has others, with those that were seen."""


@dataclass(frozen=True, slots=True)
class UnpublishedBuild:
    """What was measured and is no release of compat/tensorflow.json."""

    NAMED: ClassVar = ("version",)
    version: str
    """`"2.16.0rc0"`, `"2.13.0.570+rocm"`."""
    package: str
    released: str
    source: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The lines of one source file."""

    lines: str
    """`"1640:37 1663:37,52-54=1"`: line, the places of its releases in `releases`, and after `=` that of their text."""
    texts: tuple[str, ...] = ()
    """What a message has that is logged there; of some lines none is known."""


@dataclasses.dataclass(frozen=True)
class SourceLines:
    """The whole table."""

    as_of: str
    sources: Sources
    releases: tuple[str, ...]
    """Those that were measured, oldest first; those of `builds` among them."""
    files: Mapping[str, SourceFile]
    """By path, as the compiler was given it."""
    unpublished: tuple[Unpublished, ...] = field(default=(), metadata={"noun": "build"})
    builds: tuple[UnpublishedBuild, ...] = field(default=(), metadata={"noun": "build"})
    """Candidates, and packages for AMD's cards."""

    @cached_property
    def _map_names(self) -> dict[str, list[str]]:
        """A file's name → the paths that it has had."""
        found: dict[str, list[str]] = {}
        for path in self.files:
            found.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    @cached_property
    def _answers(self) -> dict[tuple[str, int, str], frozenset[str] | None]:
        """What `at` was asked last: hundreds of processes in one log say the same."""
        return {}

    @cached_property
    def _read(self) -> dict[str, "_Read"]:
        """What was read of a file, as far as it was asked for."""
        return {}

    def find_releases(self, path: str, line: int, message: str = "") -> frozenset[str] | None:
        """Return the releases that log from this line; none if no release does.

        None: the file is not in the table.

        A build of `unpublished` is among them where it has the line. `path` as a log has it: whole, with what a build
        puts before it, with backslashes, or only the file's name. `message`, where it is the text of some of these
        releases, leaves those out that log another one there; and those that log it from another line.
        """
        asked = path, line, message
        if asked not in self._answers:
            if len(self._answers) >= _MAX_CACHED_ANSWERS:
                self._answers.clear()
            self._answers[asked] = self._search_releases(path, line, message)
        return self._answers[asked]

    def _search_releases(self, path: str, line: int, message: str) -> frozenset[str] | None:
        shown = path.replace("\\", "/")
        known = self._map_names.get(shown.rpartition("/")[2], [])
        paths = [one for one in known if shown.endswith(one) or one.endswith(f"/{shown}")]
        if not paths:
            return None
        found: dict[str, bool | None] = {}
        for one in paths:
            found.update(self._match_releases(one, line, message))
        said = True in found.values()
        fitting = {release for release, fits in found.items() if fits is not False or not said}
        for build in self.unpublished:
            own = [number for one in paths for number in build.lines.get(one, ())]
            if line in own or (not own and build.like in fitting):
                fitting.add(build.version)
        return frozenset(fitting)

    def _match_releases(self, path: str, line: int, message: str) -> dict[str, bool | None]:
        """Release → whether its text is in the message; None where its text is not known."""
        row = self.files[path]
        found: dict[str, bool | None] = {}
        try:
            if path not in self._read:
                self._read[path] = _Read(row)
            read_ = self._read[path]
            for part in read_.lines.get(line, "").split(","):
                places, _, text = part.partition("=")
                fits = row.texts[int(text)].strip() in message if text else None
                releases = set(expand_span(self.releases, places) if places else ())
                if message and fits is False:
                    releases.difference_update(read_.find_by_message(message, self.releases))
                found.update(dict.fromkeys(releases, fits))
        except (ValueError, IndexError) as error:
            msg = f"compat/source_lines.json: {path}: {error}"
            raise DataError(msg) from error
        return found


class _Read:
    """One file: its lines, and the releases that have its texts. Raises ValueError."""

    def __init__(self, row: SourceFile) -> None:
        self.texts = row.texts
        self.lines: dict[int, str] = {}
        """Line → places."""
        for word in row.lines.split():
            number, _, places = word.partition(":")
            self.lines[int(number)] = places

    @cached_property
    def _having(self) -> dict[int, set[str]]:
        """Text → the places of the releases that log it from any line."""
        found: dict[int, set[str]] = {}
        for groups in self.lines.values():
            for part in groups.split(","):
                places, _, text = part.partition("=")
                if text:
                    found.setdefault(int(text), set()).add(places)
        return found

    def find_by_message(self, message: str, releases: tuple[str, ...]) -> set[str]:
        """Return the releases that log a message that begins like this one, from whatever line: what stands in its
        middle can be another one's, which it tells.
        """
        return {
            release
            for number, text in enumerate(self.texts)
            if message.lstrip().startswith(text.strip())
            for places in self._having.get(number, ())
            for release in expand_span(releases, places)
        }


def expand_span(releases: tuple[str, ...], places: str) -> tuple[str, ...]:
    """Return those at "37", or from "52" to "54": "52-54". Raises ValueError."""
    first, _, last = places.partition("-")
    return releases[int(first) : int(last or first) + 1]


def load_source_lines(folder: Path) -> SourceLines:
    """Load compat/source_lines.json. Raises DataError."""
    return read(SourceLines, folder / "source_lines.json")
