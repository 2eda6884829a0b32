"""Predict whether the loader can load the CUDA libraries, and find the causes if it cannot."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor.core.facts import (
    FOLDER_DENIED,
    NOEXEC_ERROR,
    PERMISSION_DENIED,
    LoadAttempt,
    Resolution,
    value_of,
)
from tfdoctor.core.findings import Cause
from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts import Facts, FoundElsewhere
    from tfdoctor.prediction.build import Build

MIN_PROCESS_BYTES = 120 << 20
"""The least address space that TensorFlow's process takes beside its mapped files.

Measured on two processors: 124 to 270 MiB for TensorFlow 2.10.1, 2.13.1, 2.15.1, 2.18.1 and 2.20.0.
"""
WHEEL_FOLDERS = {"libcudart": "cuda_runtime", "libcupti": "cuda_cupti", "libnvrtc": "cuda_nvrtc"}
"""Folders of NVIDIA's wheels whose name cannot be derived from the library's name, by library."""


def list_missing_libraries(facts: Facts, build: Build) -> tuple[str, ...]:
    """Return the sonames that the build needs and the loader cannot find, dependencies included, sorted."""
    loader = value_of(facts.loader)
    if loader is None:
        return ()
    missing: set[str] = set()
    for resolution in loader.resolutions:
        if not resolution.ok and resolution.soname in (*build.required_libraries, *build.driver_libraries):
            missing.update(resolution.really_missing or (resolution.soname,))
    for unloadable_object in loader.import_needs:
        missing.update(name for name in unloadable_object.really_missing if "/" not in name)
    return tuple(sorted(missing))


def compute_needed_address_space(facts: Facts, *, is_import: bool) -> int | None:
    """Return the address space in bytes without which TensorFlow's import, or opening its libraries, surely fails.

    Return None if there is no limit, or if the limit is not lower. Files are mapped in their whole size.
    """
    loader, limit = value_of(facts.loader), facts.machine.address_limit
    if loader is None or limit is None or not loader.import_bytes:
        return None
    needed = (loader.import_bytes if is_import else loader.mapped_bytes) + MIN_PROCESS_BYTES
    return needed if limit < needed else None


@dataclass(frozen=True, slots=True)
class MissingLibrary:
    """A library that the loader cannot load, and the cause."""

    soname: str
    cause: Cause
    resolution: Resolution
    usable_files: tuple[FoundElsewhere, ...]
    """Usable files with this soname in folders that the loader does not search."""
    other_versions: tuple[FoundElsewhere, ...]
    """Files of the same library with another soname, or of another CUDA version."""
    link_target: str = ""
    """The file of another version to which the file with this soname is a link; "" if it is none."""
    file_problem: str = ""
    """The problem of the file at which the loader stops; "" if it stops at none."""


def explain_missing_libraries(facts: Facts, build: Build) -> tuple[MissingLibrary, ...]:
    """Return each missing CUDA library with its cause, in the order in which TensorFlow opens them."""
    loader = value_of(facts.loader)
    if loader is None:
        return ()
    failed_resolutions = [
        result for result in loader.resolutions if not result.ok and result.soname in build.required_libraries
    ]
    unusable_paths = frozenset(
        posixpath.normpath(tried.path)
        for failure in failed_resolutions
        for tried in list_unusable_files(failure)
    )
    root_failures = [
        failure
        for failure in failed_resolutions
        if not _is_damaged_dependency(failure, loader.found, unusable_paths)
    ]
    not_found_sonames = {result.soname for result in root_failures if result.path is None}
    other_installations = list_other_cuda_installations(loader.found, build.required_libraries)
    used_folders = frozenset(
        posixpath.dirname(posixpath.normpath(result.path))
        for result in loader.resolutions
        if result.ok and result.path
    )
    return tuple(
        _explain_library(resolution, loader.found, other_installations, used_folders)
        for resolution in root_failures
        # Omit libraries that fail only because of a dependency that is in the list itself.
        if resolution.path is None
        or not resolution.really_missing
        or not set(resolution.really_missing) <= not_found_sonames
    )


def list_unusable_files(resolution: Resolution) -> list[LoadAttempt]:
    """Return the files that the loader found for the library but could not use.

    Files that it may not access are omitted.
    """
    return [
        tried
        for tried in resolution.tried
        if tried.problem and tried.problem not in (FOLDER_DENIED, PERMISSION_DENIED)
    ]


def _is_damaged_dependency(
    resolution: Resolution, found_files: Sequence[FoundElsewhere], unusable_paths: frozenset[str]
) -> bool:
    """Return whether the library exists only as a damaged file that explains another library's failure.

    If the loader's cache was rebuilt, it omits a damaged file, so that the library itself is not found. However,
    the RUNPATH of another library in the same folder still leads to the file.
    """
    paths = [posixpath.normpath(file.path) for file in found_files if file.name == resolution.soname]
    return not list_unusable_files(resolution) and bool(paths) and unusable_paths.issuperset(paths)


def _explain_library(
    resolution: Resolution,
    found_files: Sequence[FoundElsewhere],
    other_installations: frozenset[str],
    used_folders: frozenset[str],
) -> MissingLibrary:
    """Return a missing library with its cause.

    `other_installations` are installations of another CUDA version, and `used_folders` are the folders from which
    the loader loads other libraries.
    """
    unusable_files = list_unusable_files(resolution)
    name = resolution.soname
    if resolution.path is not None:  # found, but one of its dependencies cannot be loaded
        unusable_names = (posixpath.basename(tried.path) for tried in unusable_files)
        name = next(
            (dependency for dependency in unusable_names if dependency in resolution.really_missing), name
        )
    stem = name.split(".so")[0]
    problem = unusable_files[0].problem if unusable_files else ""
    unusable_paths = {
        posixpath.normpath(tried.path) for tried in unusable_files
    }  # a RUNPATH can contain ".."
    same_name_files = tuple(
        file
        for file in found_files
        if file.name == name and posixpath.normpath(file.path) not in unusable_paths
    )
    usable_files = tuple(
        file for file in same_name_files if get_installation_folder(file.path) not in other_installations
    )
    other_versions = tuple(
        file for file in found_files if file.stem == stem and not _is_same_major(file.name, name)
    )
    # After a file of another class or machine, the loader continues in the next folder.
    was_skipped = bool(unusable_files) and all(
        "class" in tried.problem or "machine" in tried.problem for tried in unusable_files
    )
    if any("/nvidia/" in path or posixpath.dirname(path) in used_folders for path in unusable_paths):
        was_skipped = False  # such a folder has no libraries for other machines, so the file is damaged
    link_target = find_foreign_link_target(resolution)
    if list_forbidden_files(resolution, is_elsewhere=bool(usable_files or other_versions)):
        cause = Cause.NOT_PERMITTED
    elif link_target:
        cause = Cause.CUDNN_VERSION_MISMATCH if stem == "libcudnn" else Cause.LIBS_WRONG_VERSION
    elif resolution.path is not None and (name == resolution.soname or was_skipped):
        cause = Cause.LIBS_TRANSITIVE
    elif problem and not was_skipped:
        # "ermission" matches "Permission denied" and "permission".
        cause = Cause.LIBS_NOT_INSTALLED if "ermission" in problem else Cause.DAMAGED_FILE
    elif usable_files:
        cause = Cause.LIBS_NOT_ON_PATH
    elif other_versions or same_name_files or was_skipped:
        cause = Cause.CUDNN_VERSION_MISMATCH if stem == "libcudnn" else Cause.LIBS_WRONG_VERSION
    else:
        cause = Cause.CUDNN_MISSING if stem == "libcudnn" else Cause.LIBS_NOT_INSTALLED
    return MissingLibrary(
        soname=resolution.soname,
        cause=cause,
        resolution=resolution,
        usable_files=usable_files,
        other_versions=other_versions or tuple(file for file in same_name_files if file not in usable_files),
        link_target=link_target,
        file_problem=problem,
    )


def find_foreign_link_target(resolution: Resolution) -> str:
    """Return the file of the same library with another soname to which the found file is a link; "" if it is none."""
    stem, target_name = resolution.soname.split(".so")[0], posixpath.basename(resolution.real)
    is_same_library = re.match(rf"{re.escape(stem)}\.so\.\d", target_name) is not None
    return resolution.real if is_same_library and not _is_same_major(target_name, resolution.soname) else ""


def list_forbidden_files(resolution: Resolution, *, is_elsewhere: bool = False) -> tuple[LoadAttempt, ...]:
    """Return the files of a library that exist but cannot be used because of their permissions.

    A file in an unreadable folder counts if the folder is that of the library's wheel. If the folder belongs to no
    wheel, the file counts unless `is_elsewhere` is true, which means that the library was found in another folder.
    """
    missing = {name.rpartition("/")[2] for name in (*resolution.really_missing, resolution.soname)}
    return tuple(
        tried
        for tried in resolution.tried
        if tried.path.rpartition("/")[2] in missing
        and (
            tried.problem in (PERMISSION_DENIED, NOEXEC_ERROR)
            or (tried.problem == FOLDER_DENIED and _can_contain(tried.path, is_elsewhere))
        )
    )


def _can_contain(path: str, elsewhere: bool) -> bool:
    """Return whether an unreadable folder may contain the library at `path`."""
    stem = path.rpartition("/")[2].split(".so")[0]
    wheel = path.partition("/nvidia/")[2].partition("/")[0]
    # The wheels for CUDA 13 share the folder nvidia/cu13, except for cuDNN.
    expected_wheel = WHEEL_FOLDERS.get(
        stem, stem.removeprefix("lib").removesuffix("Lt").partition("_")[0].lower()
    )
    return (
        wheel == expected_wheel
        or (wheel.startswith("cu1") and expected_wheel != "cudnn")
        or not (wheel or elsewhere)
    )


def get_installation_folder(path: str) -> str:
    """Return the folder of a library's installation, which all of NVIDIA's wheels in a folder share."""
    path = posixpath.normpath(path)
    parent, separator, _ = path.partition("/nvidia/")
    return f"{parent}/nvidia" if separator else path.rpartition("/")[0]


def list_other_cuda_installations(
    found_files: Sequence[FoundElsewhere], required: Sequence[str]
) -> frozenset[str]:
    """Return the installations with another CUDA version.

    cuSOLVER and cuRAND have the same soname in CUDA 11 and 12, so a file with the right name can have the wrong
    version.
    """
    folders: set[str] = set()
    installations = {get_installation_folder(file.path) for file in found_files}
    for installation in installations:
        files = [file for file in found_files if get_installation_folder(file.path) == installation]
        for soname in required:
            stem = soname.split(".so")[0]
            same_library_files = [file for file in files if file.stem == stem]
            if (
                stem != "libcudnn"
                and same_library_files
                and not any(_is_same_major(file.name, soname) for file in same_library_files)
            ):
                folders.add(installation)
    return frozenset(folders)


def _is_same_major(name: str, soname: str) -> bool:
    """Return whether a file name matches a soname, as libcudart.so.12.4.127 matches libcudart.so.12."""
    return name == soname or name.startswith(f"{soname}.")


def choose_libraries_cause(facts: Facts, build: Build) -> Cause:
    """Return the most frequent cause of the missing libraries. Missing permissions take precedence.

    A cause that only cuDNN can have is counted as the corresponding general cause. It is returned only if no
    other library has the general cause.
    """
    causes = [missing.cause for missing in explain_missing_libraries(facts, build)]
    if not causes:
        return Cause.LIBS_NOT_INSTALLED
    general_causes = {
        Cause.CUDNN_MISSING: Cause.LIBS_NOT_INSTALLED,
        Cause.CUDNN_VERSION_MISMATCH: Cause.LIBS_WRONG_VERSION,
    }
    merged_causes = [general_causes.get(cause, cause) for cause in causes]
    if Cause.NOT_PERMITTED in causes:
        return Cause.NOT_PERMITTED
    # Of equally frequent causes, the first one in this order is returned.
    precedence = (
        Cause.LIBS_WRONG_VERSION,
        Cause.LIBS_NOT_ON_PATH,
        Cause.LIBS_TRANSITIVE,
        Cause.DAMAGED_FILE,
        Cause.LIBS_NOT_INSTALLED,
    )
    chosen_cause = max(precedence, key=lambda cause: (merged_causes.count(cause), -precedence.index(cause)))
    return (
        chosen_cause
        if chosen_cause in causes
        else next(specific for specific in causes if general_causes.get(specific) is chosen_cause)
    )
