"""Find the distribution that owns a library file, and the version of the library."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import value_of
from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.core.facts import Distribution, Facts, PythonFacts, Resolution


@dataclass(frozen=True, slots=True)
class LibraryVersion:
    """The version of a library that the loader uses."""

    version: str
    package_name: str
    """The name of the wheel's project or of the conda package; "" if the file belongs to neither."""


def iter_relative_paths(distribution: Distribution, path: str, real_path: str = "") -> Iterator[str]:
    """Yield the path relative to the distribution's folder, if it is below the folder.

    Path and folder are compared both as spelled and with their links resolved. `real_path` is the resolved path; "" if
    it is unknown.
    """
    spellings = dict.fromkeys(posixpath.normpath(spelled) for spelled in (path, real_path) if spelled)
    for folder in dict.fromkeys((distribution.location, distribution.real_location)):
        for spelling in spellings:
            if folder and spelling.startswith(f"{posixpath.normpath(folder)}/"):
                yield spelling[len(posixpath.normpath(folder)) + 1 :]


def list_nvidia_owners(python: PythonFacts, path: str, real_path: str = "") -> tuple[Distribution, ...]:
    """Return NVIDIA's distributions that own the file at `path`, according to RECORD or else its folder.

    `real_path` is the path with its links resolved; "" if it is unknown.
    """
    nvidia_distributions = [
        distribution for distribution in python.distributions if distribution.name.startswith("nvidia-")
    ]
    recorded_owners = [
        distribution
        for distribution in nvidia_distributions
        if any(
            relative_path in distribution.files
            for relative_path in iter_relative_paths(distribution, path, real_path)
        )
    ]
    if recorded_owners:
        return tuple(recorded_owners)
    return tuple(
        distribution
        for distribution in nvidia_distributions
        if not distribution.files
        and any(
            _is_project_folder(distribution.name, relative_path)
            for relative_path in iter_relative_paths(distribution, path, real_path)
        )
    )


def is_in_nvidia_wheel(python: PythonFacts, path: str, real_path: str = "") -> bool:
    """Return whether a file is in a folder of NVIDIA's wheels, even if the wheel has no metadata."""
    folders = dict.fromkeys(
        (*python.site_packages, *(distribution.location for distribution in python.distributions))
    )
    spellings = [posixpath.normpath(spelled) for spelled in (path, real_path) if spelled]
    return bool(list_nvidia_owners(python, path, real_path)) or any(
        spelling.startswith(f"{posixpath.normpath(folder)}/nvidia/")
        for spelling in spellings
        for folder in folders
        if folder
    )


def _is_project_folder(project: str, relative_path: str) -> bool:
    """Return whether a relative path, such as "nvidia/cuda_runtime/lib/…", belongs to a project's wheel."""
    match = re.match(r"nvidia/([a-z0-9_]{1,60})/", relative_path)
    folder = match[1].replace("_", "-") if match is not None else ""
    return bool(folder) and re.fullmatch(rf"nvidia-{folder}(-cu\d+)?", project) is not None


def find_current_owner(python: PythonFacts, path: str, real_path: str = "") -> Distribution | None:
    """Return the distribution from which the present file at `path` comes.

    Return None if no distribution owns it, or if several do and it is unknown which of them installed it last.
    """
    candidates = list_nvidia_owners(python, path, real_path)
    if len(candidates) == 1:
        return candidates[0]
    for shared in python.shared:
        for candidate in candidates:
            if (
                candidate.location == shared.location
                and shared.path in iter_relative_paths(candidate, path, real_path)
                and shared.now is not None
            ):
                return next(
                    (owner for owner in candidates if (owner.name, owner.version) == shared.now),
                    None,
                )
    return None


def find_library_version(facts: Facts, resolution: Resolution) -> LibraryVersion | None:
    """Return the version of the library that the loader uses; None if it is unknown.

    The version comes from the first of these sources:

    * the wheel, unless the file was replaced;
    * the conda package, if the library is cuDNN;
    * the loaded file, or a longer name of it in the same folder (libcudnn.so.9.1.0).
    """
    python, path = value_of(facts.python), resolution.path
    if path is None:
        return None
    wheel = find_current_owner(python, path, resolution.real) if python is not None else None
    if wheel is not None and versions.is_version(wheel.version):
        changed_paths = {change.path for change in wheel.changed}
        if not changed_paths.intersection(iter_relative_paths(wheel, path, resolution.real)):
            return LibraryVersion(wheel.version, wheel.name)
    if python is not None and python.conda_prefix and resolution.soname.startswith("libcudnn."):
        is_in_prefix = posixpath.normpath(path).startswith(f"{posixpath.normpath(python.conda_prefix)}/lib/")
        for package in python.conda_packages if is_in_prefix and wheel is None else ():
            if package.name == "cudnn" and versions.is_version(package.version):
                return LibraryVersion(package.version, "cudnn")
    version = resolution.version or _find_version_in_name(facts, path)
    return LibraryVersion(version, "") if version is not None else None


def _find_version_in_name(facts: Facts, path: str) -> str | None:
    """Return the version in a longer name of the library, such as libcudnn.so.8.0.5 for libcudnn.so.8.

    Return None if there is no such file, or if there are several versions.
    """
    loader = value_of(facts.loader)
    folder, _, name = posixpath.normpath(path).rpartition("/")
    stem, _, major_version = name.partition(".so.")
    candidates = [file for file in (loader.found if loader is not None else ()) if file.stem == stem]
    names = [file.name for file in candidates if posixpath.normpath(file.path) == f"{folder}/{file.name}"]
    version_suffixes = {file_name.partition(".so.")[2] for file_name in names}
    matching_versions = [
        version
        for version in version_suffixes
        if version.count(".") >= 2 and version.startswith(f"{major_version}.")
    ]
    return matching_versions[0] if len(matching_versions) == 1 else None


def find_cudnn_version(facts: Facts) -> LibraryVersion | None:
    """Return the version of the cuDNN that TensorFlow loads; None if it is unknown."""
    return _find_loaded_version(facts, "libcudnn.")


def find_cuda_version(facts: Facts) -> str | None:
    """Return the minor version of the CUDA toolkit whose runtime TensorFlow loads; None if it is unknown."""
    runtime = _find_loaded_version(facts, "libcudart.")
    return versions.major_minor(runtime.version) if runtime is not None else None


def _find_loaded_version(facts: Facts, prefix: str) -> LibraryVersion | None:
    """Return the version of the loaded library whose soname has this prefix; None if it is unknown."""
    loader = value_of(facts.loader)
    for resolution in loader.resolutions if loader else ():
        if resolution.soname.startswith(prefix) and resolution.ok:
            return find_library_version(facts, resolution)
    return None
