"""The source lines that each release logs from: compat/source_lines.json, measured in the wheels.

`gpu_device.cc:1663]` in a log identifies TensorFlow 1.14, because files and their line numbers change between releases.
Wheels for other systems have the same numbers. Patched builds, and builds between two releases, may differ.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import DataError, Sources, read_table
from tfdoctor.core.records import dataclass

__all__ = ["SourceLines", "expand_span", "load_source_lines"]

_MAX_CACHED_RESULTS = 1024
"""The largest number of `find_releases` results that are cached."""


@dataclass(frozen=True, slots=True)
class UnmeasuredBuild:
    """A build that can no longer be measured, but that has the source lines of another release."""

    NAMED: ClassVar = ("version",)
    version: str
    base_release: str = field(metadata={"key": "like"})
    """The release whose lines it has."""
    first_date: str = field(metadata={"key": "first"})
    """The first date on which it was in use."""
    last_date: str = field(metadata={"key": "last"})
    """The last date on which it was in use."""
    source: str
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The files whose lines differ from those of `like`, with the lines that logs show."""


@dataclass(frozen=True, slots=True)
class UnpublishedBuild:
    """A measured build that is not a release in compat/tensorflow.json."""

    NAMED: ClassVar = ("version",)
    version: str
    """Version, such as `"2.16.0rc0"` or `"2.13.0.570+rocm"`."""
    package: str
    released: str
    source: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The lines of a source file that log messages."""

    lines: str
    """Entries such as `"1640:37 1663:37,52-54=1"`.

    An entry has a line number, the indices in `releases` of the releases that log from it, and after `=` the index
    in `texts` of the message, if it is known.
    """
    texts: tuple[str, ...] = ()
    """The beginnings of the messages."""


@dataclasses.dataclass(frozen=True)
class SourceLines:
    """The source lines of all measured releases."""

    as_of: str
    sources: Sources
    releases: tuple[str, ...]
    """Measured releases, oldest first, including those in `builds`."""
    files: Mapping[str, SourceFile]
    """Files by the path that was passed to the compiler."""
    unmeasured_builds: tuple[UnmeasuredBuild, ...] = field(
        default=(), metadata={"key": "unpublished", "noun": "build"}
    )
    unpublished_builds: tuple[UnpublishedBuild, ...] = field(
        default=(), metadata={"key": "builds", "noun": "build"}
    )
    """Release candidates, and packages for AMD GPUs."""

    @cached_property
    def _paths_by_name(self) -> dict[str, list[str]]:
        """The paths by file name."""
        paths: dict[str, list[str]] = {}
        for path in self.files:
            paths.setdefault(path.rpartition("/")[2], []).append(path)
        return paths

    @cached_property
    def _cached_results(self) -> dict[tuple[str, int, str], frozenset[str] | None]:
        """The cached results of `find_releases`: hundreds of processes in a log may repeat the same lines."""
        return {}

    @cached_property
    def _parsed_files(self) -> dict[str, "_ParsedFile"]:
        """The parsed files by path, filled on demand."""
        return {}

    def find_releases(self, path: str, line: int, message: str = "") -> frozenset[str] | None:
        """Return the releases that log from a source line; None if the file is not in the table.

        Builds in `unpublished` are included. `path` is a path in a log: complete, with a build prefix, with backslashes,
        or only the file's name. If `message` matches the text of some releases at this line, releases with another text at
        this line are excluded. Releases that log this text from another line are excluded as well.
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
        paths = [
            candidate
            for candidate in candidates
            if normalized.endswith(candidate) or candidate.endswith(f"/{normalized}")
        ]
        if not paths:
            return None
        matches: dict[str, bool | None] = {}
        for candidate in paths:
            matches.update(self._match_line(candidate, line, message))
        is_text_known = True in matches.values()
        selected = {name for name, is_match in matches.items() if is_match is not False or not is_text_known}
        for build in self.unmeasured_builds:
            known_lines = [number for candidate in paths for number in build.lines.get(candidate, ())]
            if line in known_lines or (not known_lines and build.base_release in selected):
                selected.add(build.version)
        return frozenset(selected)

    def _match_line(self, path: str, line: int, message: str) -> dict[str, bool | None]:
        """Return the releases that log from a line, and whether the message has their text (None: unknown).

        Raise DataError if the table is invalid.
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
    """The parsed lines of a source file. The methods raise ValueError if they are invalid."""

    def __init__(self, source_file: SourceFile) -> None:
        self.texts = source_file.texts
        self.lines: dict[int, str] = {}
        """The indices of releases, with the indices of texts, by line number."""
        for entry in source_file.lines.split():
            number, _, indices = entry.partition(":")
            self.lines[int(number)] = indices

    @cached_property
    def _releases_by_text(self) -> dict[int, set[str]]:
        """The indices of the releases that log each text from any line, by index of the text."""
        result: dict[int, set[str]] = {}
        for groups in self.lines.values():
            for part in groups.split(","):
                indices, _, text = part.partition("=")
                if text:
                    result.setdefault(int(text), set()).add(indices)
        return result

    def find_by_message(self, message: str, releases: tuple[str, ...]) -> set[str]:
        """Return the releases that log a text with which the message begins, from any line.

        Only the beginning is compared, because a message may quote another one.
        """
        return {
            release
            for number, text in enumerate(self.texts)
            if message.lstrip().startswith(text.strip())
            for indices in self._releases_by_text.get(number, ())
            for release in expand_span(releases, indices)
        }


def expand_span(releases: tuple[str, ...], span: str) -> tuple[str, ...]:
    """Return the releases at an index ("37") or in a range ("52-54"). Raise ValueError if it is invalid."""
    first, _, last = span.partition("-")
    return releases[int(first) : int(last or first) + 1]


def load_source_lines(folder: Path) -> SourceLines:
    """Load compat/source_lines.json. Raise DataError if it is invalid."""
    return read_table(SourceLines, folder / "source_lines.json")
