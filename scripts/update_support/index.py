"""The package index: files with upload times, and the requirements of each file.

The simple index has the files and their hashes; the JSON pages have upload times and sizes. Requirements are read
from wheels by byte ranges and from complete source archives. All data is cached, because different locks need the
same.
"""

from __future__ import annotations

import email
import io
import json
import re
import tarfile
import time
import zipfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from update_support.files import write_file
from update_support.remote_zip import Web, extract, load_central_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from packaging.tags import Tag

__all__ = ["File", "Index"]

FORMAT = 2
"""Format version of the cache."""


@dataclass(frozen=True)
class File:
    """One file of a project."""

    project: str
    """The normalized name."""
    filename: str
    url: str
    sha256: str
    size: int
    """Bytes; 0 if the index does not say."""
    uploaded: str
    """ISO 8601, UTC; empty if the index does not say."""
    requires_python: str
    yanked: bool

    @property
    def is_wheel(self) -> bool:
        return self.filename.endswith(".whl")

    @property
    def version(self) -> Version:
        """The version. Raises InvalidVersion for a name of neither a wheel nor a source archive."""
        if self.is_wheel:
            return parse_wheel_filename(self.filename)[1]
        # Split after the project's name, because a version may have a hyphen: functools32-3.2.3-2.tar.gz
        stem = re.sub(r"\.(?:tar\.gz|zip)$", "", self.filename)
        length = len(self.project)
        if stem == self.filename or canonicalize_name(stem[:length]) != self.project:
            raise InvalidVersion(self.filename)
        return Version(stem[length + 1 :])

    @property
    def tags(self) -> frozenset[Tag]:
        """The tags of a wheel; empty for a source archive."""
        return parse_wheel_filename(self.filename)[3] if self.is_wheel else frozenset()


def _has_valid_name(file: File) -> bool:
    """Return whether the name is that of a wheel or a source archive; old uploads have others."""
    try:
        return bool(file.version)
    except (InvalidWheelFilename, InvalidVersion):
        return False


class Index:
    """The index at the default address of `pypi_simple`, with a cache."""

    def __init__(self, cache: Path, *, fresh: float = 86400) -> None:
        """Create the cache; `fresh` is the maximum age of a cached project page in seconds. Files never change."""
        from pypi_simple import PyPISimple  # imported here so that tests of the pure parts do not need it

        self.cache = cache
        self.fresh = fresh
        self.client = PyPISimple()
        self.web = Web()
        self._files: dict[str, list[File]] = {}
        for folder in ("pages", "requires"):
            (cache / folder).mkdir(parents=True, exist_ok=True)

    def files(self, project: str) -> list[File]:
        """Return every wheel and source archive of a project, in the order of the index."""
        name = canonicalize_name(project)
        if name not in self._files:
            path = self.cache / "pages" / f"{name}.json"
            files = self._get_page(path)
            if files is None:
                files = self._fetch(name)
                write_file(path, json.dumps({"format": FORMAT, "files": [asdict(file) for file in files]}))
            self._files[name] = files
        return self._files[name]

    def _get_page(self, path: Path) -> list[File] | None:
        if not path.exists() or time.time() - path.stat().st_mtime > self.fresh:
            return None
        raw = json.loads(path.read_text(encoding="utf-8"))
        return [File(**row) for row in raw["files"]] if raw.get("format") == FORMAT else None

    def _fetch(self, name: str) -> list[File]:
        times = self._fetch_times(name)
        result = []
        for package in self.client.get_project_page(name).packages:
            uploaded, size = times.get(package.filename, ("", 0))
            file = File(
                project=name,
                filename=package.filename,
                url=package.url,
                sha256=package.digests.get("sha256", ""),
                size=size or package.size or 0,
                uploaded=uploaded,
                requires_python=package.requires_python or "",
                yanked=bool(package.is_yanked),
            )
            if _has_valid_name(file):
                result.append(file)
        return result

    def _fetch_times(self, name: str) -> dict[str, tuple[str, int]]:
        """Return the upload time and the bytes of each file.

        They are in the JSON pages, because not every simple index has them.
        """
        page = urljoin(self.client.endpoint, f"../pypi/{name}/json")
        response = self.client.s.get(page, timeout=120)
        response.raise_for_status()
        return {
            row["filename"]: (row["upload_time_iso_8601"], int(row["size"]))
            for rows in response.json()["releases"].values()
            for row in rows
        }

    def requirements(self, file: File) -> list[str]:
        """Return the requirements of a file, unchanged and in order."""
        path = self.cache / "requires" / f"{file.sha256}.json"
        if path.exists():
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw.get("format") == FORMAT:
                return list(raw["requires"])
        requires = self._load_wheel(file) if file.is_wheel else self._load_sdist(file)
        write_file(path, json.dumps({"format": FORMAT, "file": file.filename, "requires": requires}))
        return requires

    def _load_wheel(self, file: File) -> list[str]:
        members, total = load_central_directory(self.web, file.url)
        metadata_members = [
            member for member in members if re.fullmatch(r"[^/]+\.dist-info/METADATA", member.name)
        ]
        text: list[bytes] = []

        def keep(_: object, pieces: Iterator[bytes]) -> None:
            text.append(b"".join(pieces))

        extract(self.web, file.url, metadata_members[:1], total, keep)
        return _parse_requires_dist(text[0].decode("utf-8", "replace"))

    def _load_sdist(self, file: File) -> list[str]:
        response = self.client.s.get(file.url, timeout=120)
        response.raise_for_status()
        members = dict(_load_metadata_files(file.filename, response.content))
        for name, text in sorted(members.items(), key=lambda item: item[0].count("/")):
            if name.endswith("PKG-INFO") and "\nRequires-Dist:" in text:
                return _parse_requires_dist(text)
        for name, text in sorted(members.items()):
            if name.endswith(".egg-info/requires.txt"):
                return parse_requires_txt(text)
        return []


def _parse_requires_dist(metadata: str) -> list[str]:
    return [str(line) for line in email.message_from_string(metadata).get_all("Requires-Dist") or []]


def _load_metadata_files(filename: str, content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of the members of a source archive that have requirements."""
    pattern = re.compile(r"(?:^[^/]+/PKG-INFO|\.egg-info/(?:PKG-INFO|requires\.txt))$")
    if filename.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                if pattern.search(name):
                    yield name, archive.read(name).decode("utf-8", "replace")
        return
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member) if pattern.search(member.name) else None
            if file is not None:
                yield member.name, file.read().decode("utf-8", "replace")


def parse_requires_txt(text: str) -> list[str]:
    """Return the requirements in setuptools' requires.txt; `[extra:marker]` headings become markers."""
    requirements = []
    marker = ""
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("["):
            extra, _, condition = line.strip("[]").partition(":")
            parts = [f"({condition})"] if condition else []
            parts += [f'extra == "{extra}"'] if extra else []
            marker = " and ".join(parts)
        elif line:
            requirements.append(f"{line}; {marker}" if marker else line)
    return requirements
