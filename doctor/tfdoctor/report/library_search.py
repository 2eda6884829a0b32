"""How the loader looked for each library of TensorFlow: what it opened, what it could not use, what is on the machine
and was not considered. Pure."""

from __future__ import annotations

import enum
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.compat import split_soname
from tfdoctor.facts import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.facts import Facts
    from tfdoctor.facts.loading import FoundElsewhere, LoaderFacts, Resolution

__all__ = ["Fate", "File", "Search", "list_search_folders", "list_searches"]


class Fate(str, enum.Enum):
    """What became of one file."""

    OPENED = "opened"
    UNUSABLE = "cannot be used"
    """The loader came to it, and could not take it."""
    HIDDEN = "hidden"
    """The loader would take it, were another one not before it."""
    NOT_CONSIDERED = "not considered"
    """It is the library that is wanted, in a folder where the loader does not look."""
    OTHER_VERSION = "different version"
    """Of the same family; its name is not the one that is asked for."""


@dataclass(frozen=True, slots=True)
class File:
    """One file on the way."""

    path: str
    fate: Fate
    note: str
    """Why, or which way the loader came to it."""


@dataclass(frozen=True, slots=True)
class Search:
    """One library that TensorFlow opens."""

    soname: str
    found: bool
    text: str
    """What became of it, in a sentence."""
    files: tuple[File, ...]


def list_search_folders(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Return the existing folders in which the loader searches for TensorFlow: (folder, by what)."""
    loader = value_of(facts.loader)
    if loader is None:
        return ()
    return (
        *((folder, "RUNPATH of TensorFlow") for folder in loader.runpath_folders),
        *((folder, "LD_LIBRARY_PATH") for folder in loader.library_path),
    )


def list_searches(facts: Facts) -> tuple[Search, ...]:
    """Return each library once, in TensorFlow's order; those of its import that fail come first."""
    loader = value_of(facts.loader)
    if loader is None:
        return ()
    every = {one.soname: one for one in (*loader.import_needs, *loader.resolutions, *loader.plugins)}
    return tuple(_search(loader, one) for one in every.values())


def _search(loader: LoaderFacts, resolution: Resolution) -> Search:
    files = [
        File(one.path, Fate.UNUSABLE if one.problem else Fate.OPENED, one.problem or one.via)
        for one in resolution.tried
    ]
    if resolution.path is not None and not any(one.path == resolution.path for one in files):
        files.append(File(resolution.path, Fate.OPENED if resolution.ok else Fate.UNUSABLE, resolution.via))
    files += _find_hidden(loader, resolution)
    known = {posixpath.normpath(one.path) for one in files} | {resolution.real}
    for one in loader.found:
        if posixpath.normpath(one.path) in known or not _is_same_family(one, resolution.soname):
            continue
        files.append(_elsewhere(one, resolution))
    return Search(resolution.soname, resolution.ok, _describe_result(loader, resolution), tuple(files))


def _find_hidden(loader: LoaderFacts, resolution: Resolution) -> Iterator[File]:
    """Yield what a variable's entries stand before; each file once."""
    seen: set[str] = set()
    for without in loader.without:
        for one in without.instead:
            if one.soname == resolution.soname and one.other is not None and one.other not in seen:
                seen.add(one.other)
                yield File(one.other, Fate.HIDDEN, f"{one.path} comes before it, by {without.variable}")


def _is_same_family(found: FoundElsewhere, soname: str) -> bool:
    parts = split_soname(soname)
    return parts is not None and found.stem == f"lib{parts[0]}"


def _elsewhere(found: FoundElsewhere, resolution: Resolution) -> File:
    of = f"of {found.package}" if found.package else ""
    if found.name != resolution.soname and not found.name.startswith(f"{resolution.soname}."):
        return File(found.path, Fate.OTHER_VERSION, f"{resolution.soname} is wanted")
    if resolution.ok:
        return File(found.path, Fate.NOT_CONSIDERED, f"a second copy {of}".strip())
    return File(found.path, Fate.NOT_CONSIDERED, of)


def _describe_result(loader: LoaderFacts, resolution: Resolution) -> str:
    if resolution.ok:
        version = f" (version {resolution.version})" if resolution.version else ""
        if resolution.via == "already in the process":
            return f"opened: already in the process{version}"
        return f"opened, by {resolution.via}{version}" if resolution.via else f"opened{version}"
    if resolution.tried or resolution.path:
        return resolution.error
    ways = [
        f"{len(folders)} folder{'s' * (len(folders) != 1)} of {name}"
        for name, folders in (("RUNPATH", loader.runpath_folders), ("LD_LIBRARY_PATH", loader.library_path))
        if folders
    ]
    return f"not found: looked in {', '.join([*ways, 'the cache of ld.so'])} and the default folders"
