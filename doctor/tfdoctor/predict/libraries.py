"""The gate of the CUDA libraries: which the loader cannot give, and why each is missing."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.facts import CLOSED, DENIED, NOEXEC, Resolution, Tried, value_of
from tfdoctor.findings import Cause
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import Facts, FoundElsewhere
    from tfdoctor.predict.build import Build


def list_missing_libraries(facts: Facts, build: Build) -> tuple[str, ...]:
    """Sorted sonames that registration needs and the loader cannot give, down to the one really missing."""
    loader = value_of(facts.loader)
    if loader is None:
        return ()
    missing: set[str] = set()
    for resolution in loader.resolutions:
        if not resolution.ok and resolution.soname in (*build.required, *build.driver_libraries):
            missing.update(resolution.really_missing or (resolution.soname,))
    for failed in loader.import_needs:
        missing.update(name for name in failed.really_missing if "/" not in name)
    return tuple(sorted(missing))


@dataclass(frozen=True, slots=True)
class MissingLibrary:
    """One soname that the loader cannot give, and why."""

    soname: str
    cause: Cause
    resolution: Resolution
    elsewhere: tuple[FoundElsewhere, ...]
    """This very soname, where the loader does not look."""
    other_versions: tuple[FoundElsewhere, ...]
    damaged: str = ""
    """What is wrong with the file that the loader stops at."""


def explain_missing(facts: Facts, build: Build) -> tuple[MissingLibrary, ...]:
    """Return why each missing CUDA library is missing, in TensorFlow's order. Not the driver's."""
    loader = value_of(facts.loader)
    if loader is None:
        return ()
    lost = [r for r in loader.resolutions if not r.ok and r.soname in build.required]
    bad = frozenset(posixpath.normpath(tried.path) for one in lost for tried in list_unusable_files(one))
    resolutions = [one for one in lost if not _met_by_others(one, loader.found, bad)]
    own_fault = {r.soname for r in resolutions if r.path is None}
    foreign = find_other_installations(loader.found, build.required)
    opened = frozenset(
        posixpath.dirname(posixpath.normpath(r.path)) for r in loader.resolutions if r.ok and r.path
    )
    return tuple(
        _explain(resolution, loader.found, foreign, opened)
        for resolution in resolutions
        # the others only wait for another one of the list
        if resolution.path is None
        or not resolution.really_missing
        or not set(resolution.really_missing) <= own_fault
    )


def list_unusable_files(resolution: Resolution) -> list[Tried]:
    """Return the files that the loader took for the library and could not use.

    Not those that it may not look at.
    """
    return [t for t in resolution.tried if t.problem and t.problem not in (CLOSED, DENIED)]


def _met_by_others(resolution: Resolution, found: Sequence[FoundElsewhere], bad: frozenset[str]) -> bool:
    """Return whether a library is nowhere but in a file that the loader stops at on its way to another one.

    The cache of the loader has no damaged file, where it was made since, and the RUNPATH of a neighbour leads there.
    """
    same = [posixpath.normpath(f.path) for f in found if f.name == resolution.soname]
    return not list_unusable_files(resolution) and bool(same) and bad.issuperset(same)


def _explain(
    resolution: Resolution,
    found: Sequence[FoundElsewhere],
    foreign: frozenset[str],
    opened: frozenset[str],
) -> MissingLibrary:
    """Return `opened`: folders of which the loader takes other libraries."""
    stopped = list_unusable_files(resolution)
    name = resolution.soname
    if resolution.path is not None:  # it is there: the loader stopped at something that it needs
        names = (posixpath.basename(t.path) for t in stopped)
        name = next((need for need in names if need in resolution.really_missing), name)
    stem = name.split(".so")[0]
    damaged = stopped[0].problem if stopped else ""
    bad = {posixpath.normpath(t.path) for t in stopped}  # a RUNPATH leads there with ".." in it
    same = tuple(f for f in found if f.name == name and posixpath.normpath(f.path) not in bad)
    fitting = tuple(f for f in same if installation_of(f.path) not in foreign)
    others = tuple(f for f in found if f.stem == stem and not _is_same_major(f.name, name))
    passed_over = bool(stopped) and all("class" in t.problem or "machine" in t.problem for t in stopped)
    if any("/nvidia/" in path or posixpath.dirname(path) in opened for path in bad):
        passed_over = (
            False  # a wheel, or a folder whose others are right, has none for another machine: it is damaged
        )
    if list_forbidden_files(resolution, elsewhere=bool(fitting or others)):
        cause = Cause.NOT_PERMITTED
    elif resolution.path is not None and (name == resolution.soname or passed_over):
        cause = Cause.LIBS_TRANSITIVE
    elif damaged and not passed_over:
        cause = Cause.LIBS_NOT_INSTALLED if "ermission" in damaged else Cause.DAMAGED_FILE
    elif fitting:
        cause = Cause.LIBS_NOT_ON_PATH
    elif others or same or passed_over:
        cause = Cause.CUDNN_VERSION_MISMATCH if stem == "libcudnn" else Cause.LIBS_WRONG_VERSION
    else:
        cause = Cause.CUDNN_MISSING if stem == "libcudnn" else Cause.LIBS_NOT_INSTALLED
    return MissingLibrary(
        resolution.soname,
        cause,
        resolution,
        fitting,
        others or tuple(f for f in same if f not in fitting),
        damaged,
    )


FOLDERS = {"libcudart": "cuda_runtime", "libcupti": "cuda_cupti", "libnvrtc": "cuda_nvrtc"}
"""Libraries whose folder among NVIDIA's wheels is not called as they are."""


def list_forbidden_files(resolution: Resolution, *, elsewhere: bool = False) -> tuple[Tried, ...]:
    """Return the files for whose sake a library cannot be had although they are there: they may not be used.

    Into a closed folder nobody could look: it counts where it is this library's own among NVIDIA's wheels, or where
    there is nothing of the library to be seen `elsewhere`.
    """
    lost = {name.rpartition("/")[2] for name in (*resolution.really_missing, resolution.soname)}
    return tuple(
        tried
        for tried in resolution.tried
        if tried.path.rpartition("/")[2] in lost
        and (tried.problem in (DENIED, NOEXEC) or (tried.problem == CLOSED and _holds(tried.path, elsewhere)))
    )


def _holds(path: str, elsewhere: bool) -> bool:
    """Return whether a folder that nobody can look into is where this library would be."""
    stem = path.rpartition("/")[2].split(".so")[0]
    wheel = path.partition("/nvidia/")[2].partition("/")[0]
    own = FOLDERS.get(stem, stem.removeprefix("lib").removesuffix("Lt").partition("_")[0].lower())
    return wheel == own or (wheel.startswith("cu1") and own != "cudnn") or not (wheel or elsewhere)


def installation_of(path: str) -> str:
    """Return what comes and goes together with a library: its folder, or all of NVIDIA's wheels."""
    path = posixpath.normpath(path)
    site, inside, _ = path.partition("/nvidia/")
    return f"{site}/nvidia" if inside else path.rpartition("/")[0]


def find_other_installations(found: Sequence[FoundElsewhere], required: Sequence[str]) -> frozenset[str]:
    """Return folders with a CUDA of another version.

    cuSOLVER and cuRAND keep their soname from CUDA 11 to 12: the right name there is still the wrong library.
    """
    wrong: set[str] = set()
    places = {installation_of(f.path) for f in found}
    for place in places:
        here = [f for f in found if installation_of(f.path) == place]
        for soname in required:
            stem = soname.split(".so")[0]
            family = [f for f in here if f.stem == stem]
            if stem != "libcudnn" and family and not any(_is_same_major(f.name, soname) for f in family):
                wrong.add(place)
    return frozenset(wrong)


def _is_same_major(name: str, soname: str) -> bool:
    """libcudart.so.12.4.127 is of soname libcudart.so.12."""
    return name == soname or name.startswith(f"{soname}.")


def libraries_cause(facts: Facts, build: Build) -> Cause:
    """Return the one cause of several missing libraries: the commonest.

    CuDNN's own where only it has that.
    """
    causes = [missing.cause for missing in explain_missing(facts, build)]
    if not causes:
        return Cause.LIBS_NOT_INSTALLED
    general = {
        Cause.CUDNN_MISSING: Cause.LIBS_NOT_INSTALLED,
        Cause.CUDNN_VERSION_MISMATCH: Cause.LIBS_WRONG_VERSION,
    }
    merged = [general.get(cause, cause) for cause in causes]
    if Cause.NOT_PERMITTED in causes:
        return Cause.NOT_PERMITTED
    order = (
        Cause.LIBS_WRONG_VERSION,
        Cause.LIBS_NOT_ON_PATH,
        Cause.LIBS_TRANSITIVE,
        Cause.DAMAGED_FILE,
        Cause.LIBS_NOT_INSTALLED,
    )
    chosen = max(order, key=lambda cause: (merged.count(cause), -order.index(cause)))
    return chosen if chosen in causes else next(c for c in causes if general.get(c) is chosen)
