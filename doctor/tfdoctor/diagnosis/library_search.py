"""List the files that the loader opened, rejected or did not find for each of TensorFlow's libraries."""

from __future__ import annotations

import enum
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.compat import split_soname
from tfdoctor.core.facts import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.core.facts import Facts
    from tfdoctor.core.facts.loading import FoundElsewhere, LoaderFacts, Resolution

__all__ = ["FileOutcome", "LibraryFile", "LibrarySearch", "list_library_searches", "list_search_folders"]


class FileOutcome(str, enum.Enum):
    """The outcome for one file in the search for a library."""

    OPENED = "opened"
    UNUSABLE = "cannot be used"
    """The loader found the file but could not load it."""
    HIDDEN = "hidden"
    """The loader would load the file if another file did not come before it."""
    NOT_CONSIDERED = "not considered"
    """The file is the required library, but in a folder that the loader does not search."""
    OTHER_VERSION = "different version"
    """The file is the same library with a different soname, such as libcudnn.so.8 instead of libcudnn.so.9."""


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """A file that is a candidate for the library."""

    path: str
    outcome: FileOutcome
    note: str
    """The reason for the outcome, or how the loader found the file."""


@dataclass(frozen=True, slots=True)
class LibrarySearch:
    """The search for a library that TensorFlow opens."""

    soname: str
    is_resolved: bool
    description: str
    """A description of the result."""
    files: tuple[LibraryFile, ...]


def list_search_folders(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Return (folder, origin) for each existing RUNPATH folder and each entry of LD_LIBRARY_PATH."""
    loader = value_of(facts.loader)
    if loader is None:
        return ()
    return (
        *((folder, "RUNPATH of TensorFlow") for folder in loader.runpath_folders),
        *((folder, "LD_LIBRARY_PATH") for folder in loader.library_path),
    )


def list_library_searches(facts: Facts) -> tuple[LibrarySearch, ...]:
    """Return a search for each library, in the order in which TensorFlow opens them.

    Libraries without which the import fails come first.
    """
    loader = value_of(facts.loader)
    if loader is None:
        return ()
    resolutions = {
        resolution.soname: resolution
        for resolution in (*loader.import_needs, *loader.resolutions, *loader.plugins)
    }
    return tuple(_make_search(loader, resolution) for resolution in resolutions.values())


def _make_search(loader: LoaderFacts, resolution: Resolution) -> LibrarySearch:
    """Return the search for a library, with the files that the loader tried and with other candidates."""
    files = [
        LibraryFile(
            candidate.path,
            FileOutcome.UNUSABLE if candidate.problem else FileOutcome.OPENED,
            candidate.problem or candidate.via,
        )
        for candidate in resolution.tried
    ]
    if resolution.path is not None and not any(file.path == resolution.path for file in files):
        files.append(
            LibraryFile(
                resolution.path, FileOutcome.OPENED if resolution.ok else FileOutcome.UNUSABLE, resolution.via
            )
        )
    files += _find_hidden_files(loader, resolution)
    listed_paths = {posixpath.normpath(file.path) for file in files} | {resolution.real}
    for library in loader.found:
        if posixpath.normpath(library.path) in listed_paths or not _is_same_family(
            library, resolution.soname
        ):
            continue
        files.append(_make_unsearched_file(library, resolution))
    return LibrarySearch(
        soname=resolution.soname,
        is_resolved=resolution.ok,
        description=_describe_result(loader, resolution),
        files=tuple(files),
    )


def _find_hidden_files(loader: LoaderFacts, resolution: Resolution) -> Iterator[LibraryFile]:
    """Yield each file that is hidden because an environment variable puts another one before it."""
    seen_paths: set[str] = set()
    for change in loader.without:
        for replacement in change.instead:
            if (
                replacement.soname == resolution.soname
                and replacement.other is not None
                and replacement.other not in seen_paths
            ):
                seen_paths.add(replacement.other)
                yield LibraryFile(
                    replacement.other,
                    FileOutcome.HIDDEN,
                    f"{replacement.path} comes before it, by {change.variable}",
                )


def _is_same_family(library: FoundElsewhere, soname: str) -> bool:
    """Return whether the library is the required one, perhaps in another version."""
    parts = split_soname(soname)
    return parts is not None and library.stem == f"lib{parts[0]}"


def _make_unsearched_file(library: FoundElsewhere, resolution: Resolution) -> LibraryFile:
    """Return the entry for a library in a folder that the loader does not search."""
    origin = f"of {library.package}" if library.package else ""
    if library.name != resolution.soname and not library.name.startswith(f"{resolution.soname}."):
        return LibraryFile(library.path, FileOutcome.OTHER_VERSION, f"{resolution.soname} is wanted")
    if resolution.ok:
        return LibraryFile(library.path, FileOutcome.NOT_CONSIDERED, f"a second copy {origin}".strip())
    return LibraryFile(library.path, FileOutcome.NOT_CONSIDERED, origin)


def _describe_result(loader: LoaderFacts, resolution: Resolution) -> str:
    """Return a phrase on the result of a search, such as "opened, by RUNPATH"."""
    if resolution.ok:
        version = f" (version {resolution.version})" if resolution.version else ""
        if resolution.via == "already in the process":
            return f"opened: already in the process{version}"
        return f"opened, by {resolution.via}{version}" if resolution.via else f"opened{version}"
    if resolution.tried or resolution.path:
        return resolution.error
    searched = [
        f"{len(folders)} folder{'s' * (len(folders) != 1)} of {name}"
        for name, folders in (("RUNPATH", loader.runpath_folders), ("LD_LIBRARY_PATH", loader.library_path))
        if folders
    ]
    return f"not found: looked in {', '.join([*searched, 'the cache of ld.so'])} and the default folders"
