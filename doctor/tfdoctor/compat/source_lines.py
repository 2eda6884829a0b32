"""Source lines from which each release logs: compat/source_lines.json, which scripts read from the wheels.

`gpu_device.cc:1663]` in a log identifies TensorFlow 1.14, because files and their line numbers change between
releases. Wheels for other systems have the same numbers; patched builds and builds between two releases may have
others.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import DataError, Sources, read
from tfdoctor.records import dataclass

__all__ = ["SourceLines", "expand_span", "load_source_lines"]

_MAX_CACHED_RESULTS = 1024
"""Most `find_releases` results that are cached."""


@dataclass(frozen=True, slots=True)
class UnmeasuredBuild:
    """Build that can no longer be measured and that has the lines of another release."""

    NAMED: ClassVar = ("version",)
    version: str
    like: str
    """Release whose lines it has."""
    first: str
    """First date on which it was seen in use."""
    last: str
    """Last date on which it was seen in use."""
    source: str
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Files whose lines differ, with the lines that were seen."""


@dataclass(frozen=True, slots=True)
class UnpublishedBuild:
    """Measured build that is not a release in compat/tensorflow.json."""

    NAMED: ClassVar = ("version",)
    version: str
    """Version, such as `"2.16.0rc0"` or `"2.13.0.570+rocm"`."""
    package: str
    released: str
    source: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """Lines of one source file."""

    lines: str
    """Entries such as `"1640:37 1663:37,52-54=1"`.

    An entry has a line number, the indices in `releases` of the releases that log from it, and after `=` the index
    in `texts` of the message that they log.
    """
    texts: tuple[str, ...] = ()
    """Texts of the messages. For some lines the text is not known."""


@dataclasses.dataclass(frozen=True)
class SourceLines:
    """The whole table."""

    as_of: str
    sources: Sources
    releases: tuple[str, ...]
    """Measured releases, oldest first, including those in `builds`."""
    files: Mapping[str, SourceFile]
    """Files by the path that was passed to the compiler."""
    unpublished: tuple[UnmeasuredBuild, ...] = field(default=(), metadata={"noun": "build"})
    builds: tuple[UnpublishedBuild, ...] = field(default=(), metadata={"noun": "build"})
    """Release candidates, and packages for AMD GPUs."""

    @cached_property
    def _paths_by_name(self) -> dict[str, list[str]]:
        """Paths of each file name."""
        paths: dict[str, list[str]] = {}
        for path in self.files:
            paths.setdefault(path.rpartition("/")[2], []).append(path)
        return paths

    @cached_property
    def _cached_results(self) -> dict[tuple[str, int, str], frozenset[str] | None]:
        """Cache of `find_releases`, because hundreds of processes in one log repeat the same lines."""
        return {}

    @cached_property
    def _parsed_files(self) -> dict[str, "_ParsedFile"]:
        """Parsed files, filled on demand."""
        return {}

    def find_releases(self, path: str, line: int, message: str = "") -> frozenset[str] | None:
        """Return the releases that log from this line.

        The result is empty if there is none, and None if the file is not in the table. A build in `unpublished` is
        included if it has the line.

        `path` is a path in a log: complete, with a build prefix, with backslashes, or only the file's name. If
        `message` matches the text of some releases, those that log another text from this line are left out. So are
        those that log this text from another line.
        """
        key = path, line, message
        if key not in self._cached_results:
            if len(self._cached_results) >= _MAX_CACHED_RESULTS:
                self._cached_results.clear()
            self._cached_results[key] = self._search_releases(path, line, message)
        return self._cached_results[key]

    def _search_releases(self, path: str, line: int, message: str) -> frozenset[str] | None:
        """Return the result of `find_releases` without the cache."""
        normalized = path.replace("\\", "/")
        candidates = self._paths_by_name.get(normalized.rpartition("/")[2], [])
        paths = [item for item in candidates if normalized.endswith(item) or item.endswith(f"/{normalized}")]
        if not paths:
            return None
        matches: dict[str, bool | None] = {}
        for item in paths:
            matches.update(self._match_releases(item, line, message))
        is_text_known = True in matches.values()
        selected = {release for release, fits in matches.items() if fits is not False or not is_text_known}
        for build in self.unpublished:
            known_lines = [number for item in paths for number in build.lines.get(item, ())]
            if line in known_lines or (not known_lines and build.like in selected):
                selected.add(build.version)
        return frozenset(selected)

    def _match_releases(self, path: str, line: int, message: str) -> dict[str, bool | None]:
        """Return the releases with this line, and whether the message has their text.

        The value is None if the text is not known. Raise DataError if the table is invalid.
        """
        source_file = self.files[path]
        matches: dict[str, bool | None] = {}
        try:
            if path not in self._parsed_files:
                self._parsed_files[path] = _ParsedFile(source_file)
            parsed = self._parsed_files[path]
            for part in parsed.lines.get(line, "").split(","):
                indices, _, text = part.partition("=")
                is_match = source_file.texts[int(text)].strip() in message if text else None
                releases = set(expand_span(self.releases, indices) if indices else ())
                if message and is_match is False:
                    releases.difference_update(parsed.find_by_message(message, self.releases))
                matches.update(dict.fromkeys(releases, is_match))
        except (ValueError, IndexError) as error:
            msg = f"compat/source_lines.json: {path}: {error}"
            raise DataError(msg) from error
        return matches


class _ParsedFile:
    """Parsed lines of one file, and the releases that have its texts.

    Raise ValueError if the file is invalid.
    """

    def __init__(self, source_file: SourceFile) -> None:
        self.texts = source_file.texts
        self.lines: dict[int, str] = {}
        """Indices of releases by line."""
        for entry in source_file.lines.split():
            number, _, indices = entry.partition(":")
            self.lines[int(number)] = indices

    @cached_property
    def _releases_by_text(self) -> dict[int, set[str]]:
        """Indices of the releases that log each text from any line."""
        result: dict[int, set[str]] = {}
        for groups in self.lines.values():
            for part in groups.split(","):
                indices, _, text = part.partition("=")
                if text:
                    result.setdefault(int(text), set()).add(indices)
        return result

    def find_by_message(self, message: str, releases: tuple[str, ...]) -> set[str]:
        """Return the releases that log a message with this beginning from any line.

        Only the beginning counts, because a message may quote another one.
        """
        return {
            release
            for number, text in enumerate(self.texts)
            if message.lstrip().startswith(text.strip())
            for indices in self._releases_by_text.get(number, ())
            for release in expand_span(releases, indices)
        }


def expand_span(releases: tuple[str, ...], places: str) -> tuple[str, ...]:
    """Return the releases at an index ("37") or in an index range ("52-54"). Raise ValueError if it is invalid."""
    first, _, last = places.partition("-")
    return releases[int(first) : int(last or first) + 1]


def load_source_lines(folder: Path) -> SourceLines:
    """Load compat/source_lines.json. Raise DataError if it is invalid."""
    return read(SourceLines, folder / "source_lines.json")
