"""Whose a library is, and of which version: the one place that matches a path with a distribution. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import value_of
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.facts import Distribution, Facts, PythonFacts, Resolution


@dataclass(frozen=True, slots=True)
class LibraryVersion:
    """The version of a file that the loader maps."""

    version: str
    project: str
    """The wheel's project, or conda's package; empty where it belongs to none."""


def places(distribution: Distribution, path: str, real: str = "") -> Iterator[str]:
    """Yield the path below a distribution's folder, once for each way to say it: as found, and with links resolved."""
    spellings = dict.fromkeys(posixpath.normpath(one) for one in (path, real) if one)
    for folder in dict.fromkeys((distribution.location, distribution.real_location)):
        for spelling in spellings:
            if folder and spelling.startswith(f"{posixpath.normpath(folder)}/"):
                yield spelling[len(posixpath.normpath(folder)) + 1 :]


def owners(python: PythonFacts, path: str, real: str = "") -> tuple[Distribution, ...]:
    """Return the distributions that own the file at `path`: by their RECORD, else by the name of NVIDIA's folder.

    `real`: the path with its links resolved, where it is known.
    """
    wheels = [d for d in python.distributions if d.name.startswith("nvidia-")]
    listed = [d for d in wheels if any(one in d.files for one in places(d, path, real))]
    if listed:
        return tuple(listed)
    return tuple(
        d for d in wheels if not d.files and any(_folder_is_of(d.name, one) for one in places(d, path, real))
    )


def is_in_wheels(python: PythonFacts, path: str, real: str = "") -> bool:
    """Return whether the file at `path` lies where NVIDIA's wheels put theirs, registered or not."""
    folders = dict.fromkeys((*python.site_packages, *(d.location for d in python.distributions)))
    spellings = [posixpath.normpath(one) for one in (path, real) if one]
    return bool(owners(python, path, real)) or any(
        spelling.startswith(f"{posixpath.normpath(folder)}/nvidia/")
        for spelling in spellings
        for folder in folders
        if folder
    )


def _folder_is_of(project: str, inside: str) -> bool:
    """Return whether "nvidia/cuda_runtime/lib/…" is where this project's wheel puts its files."""
    match = re.match(r"nvidia/([a-z0-9_]{1,60})/", inside)
    folder = match[1].replace("_", "-") if match is not None else ""
    return bool(folder) and re.fullmatch(rf"nvidia-{folder}(-cu\d+)?", project) is not None


def owner(python: PythonFacts, path: str, real: str = "") -> Distribution | None:
    """Return the one distribution whose file is there now.

    None if there is none, or where that could not be told.
    """
    found = owners(python, path, real)
    if len(found) == 1:
        return found[0]
    for one in python.shared:
        for d in found:
            if d.location == one.location and one.path in places(d, path, real) and one.now is not None:
                return next((d for d in found if (d.name, d.version) == one.now), None)
    return None


def library_version(facts: Facts, resolution: Resolution) -> LibraryVersion | None:
    """Return the version of the library that the loader gives; None if nothing tells it.

    A wheel's own, unless the file is no longer the wheel's; conda's package; what the file itself says: its full name
    (libcudnn.so.9.1.0), the header beside it.
    """
    python, path = value_of(facts.python), resolution.path
    if path is None:
        return None
    own = owner(python, path, resolution.real) if python is not None else None
    if own is not None and versions.is_version(own.version):
        changed = {one.path for one in own.changed}
        if not changed.intersection(places(own, path, resolution.real)):
            return LibraryVersion(own.version, own.name)
    if python is not None and python.conda_prefix and resolution.soname.startswith("libcudnn."):
        inside = posixpath.normpath(path).startswith(f"{posixpath.normpath(python.conda_prefix)}/lib/")
        for package in python.conda_packages if inside and own is None else ():
            if package.name == "cudnn" and versions.is_version(package.version):
                return LibraryVersion(package.version, "cudnn")
    told = resolution.version or _find_version_beside(facts, path)
    return LibraryVersion(told, "") if told is not None else None


def _find_version_beside(facts: Facts, path: str) -> str | None:
    """Return the version in the longer name of the same library in its folder: libcudnn.so.8.0.5 beside
    libcudnn.so.8.
    """
    loader = value_of(facts.loader)
    folder, _, name = posixpath.normpath(path).rpartition("/")
    stem, _, wanted = name.partition(".so.")
    found = [f for f in (loader.found if loader is not None else ()) if f.stem == stem]
    names = [f.name for f in found if posixpath.normpath(f.path) == f"{folder}/{f.name}"]
    full = {one.partition(".so.")[2] for one in names}
    matching = [v for v in full if v.count(".") >= 2 and v.startswith(f"{wanted}.")]
    return matching[0] if len(matching) == 1 else None


def cudnn_version(facts: Facts) -> LibraryVersion | None:
    """Return the version of the cuDNN that the loader gives TensorFlow."""
    loader = value_of(facts.loader)
    used = next((r for r in (loader.resolutions if loader else ()) if r.soname.startswith("libcudnn.")), None)
    return library_version(facts, used) if used is not None and used.ok else None
