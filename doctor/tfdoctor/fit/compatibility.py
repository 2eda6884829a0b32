"""Whether a release serves a machine in an environment of its own, and which release does it best. Pure.

`recommend` and the remedies of `check` both ask here, so that they name the same release.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from tfdoctor import versions
from tfdoctor.compat import split_soname
from tfdoctor.compat.locks import lock_name
from tfdoctor.findings import Cause
from tfdoctor.fit import constraints
from tfdoctor.fit.constraints import Judgement
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.wheels import CudaSet
    from tfdoctor.fit.models import Caveat, Host, Reason

__all__ = [
    "Fit",
    "can_serve",
    "choose_preferred",
    "find_best_fit",
    "find_card_reasons",
    "fit_environment",
    "list_candidates",
]

_CONSIDERED = 400
"""Releases that are looked at for one request; there are fewer."""


@dataclass(frozen=True, slots=True)
class Fit:
    """One release on one machine, in an environment of its own."""

    release: Release
    python: str | None
    """The Python that it is for, `"3.11"`; None: there is none."""
    cuda: CudaSet | None
    """NVIDIA's wheels that go with it; None: its CUDA comes from somewhere else."""
    reasons: tuple[Reason, ...]
    """What speaks against it; empty: it serves."""
    caveats: tuple[Caveat, ...]

    @property
    def serious(self) -> int:
        """Count the caveats that speak against it."""
        return sum(caveat.serious for caveat in self.caveats)


class _Weighed(Protocol):
    @property
    def serious(self) -> int: ...


_Choice = TypeVar("_Choice", bound=_Weighed)


def choose_preferred(choices: Iterable[_Choice]) -> _Choice | None:
    """Return the first choice without a serious caveat, else the one with the fewest."""
    found: _Choice | None = None
    for choice in choices:
        if found is None or choice.serious < found.serious:
            found = choice
        if not found.serious:
            break
    return found


def list_candidates(compat: Compat, spec: str | None = None) -> Iterator[Release]:
    """Yield the releases with GPU code that are meant, newest first, one a version; None means all final ones.

    Raises UnknownReleaseError if the specification fits no release, versions.VersionSyntaxError if it is none.
    """
    yield from _candidates(compat, spec)


@lru_cache(maxsize=128)
def _candidates(compat: Compat, spec: str | None) -> tuple[Release, ...]:
    rows: Sequence[Release]
    if spec is None:
        rows = sorted(
            (row for row in compat.releases if not row.is_prerelease and not row.yanked),
            key=lambda row: (row.parsed, row.package == "tensorflow"),
            reverse=True,
        )
    else:
        rows = _select_meant(compat, spec)
    found: dict[str, Release] = {}
    for release in rows:
        if not release.gpu or len(found) >= _CONSIDERED:
            continue
        known = found.get(release.version)
        if known is None or (not _is_pinned(compat, known) and _is_pinned(compat, release)):
            found[release.version] = release
    return tuple(found.values())


def _select_meant(compat: Compat, spec: str) -> Sequence[Release]:
    """Select what `versions.Spec` means; of a prefix (`2.17`) every final release, since the newest may not fit."""
    rows = compat.select(spec)
    if not versions.is_prefix(spec) or rows[0].is_prerelease:
        return rows
    every = [
        row
        for row in compat.releases
        if versions.has_prefix(row.version.partition(".post")[0], spec.strip())
        and not row.is_prerelease
        and (not row.yanked or row in rows)
    ]
    return sorted(every, key=lambda row: (row.parsed, row.package == "tensorflow"), reverse=True)


@lru_cache(maxsize=64)
def find_best_fit(
    compat: Compat, host: Host, *, python: str | None = None, spec: str | None = None
) -> Fit | None:
    """Return the release that serves this machine best, and how; None if none does.

    `python`: the Python that it has to be for (`"3.11"`, `"3.11.7"`); `spec`: a specification of releases.
    NVIDIA's
    wheels come first; a release whose CUDA none of them has is taken if there is no other.
    """
    wanted = versions.major_minor(python) if python is not None else None
    releases = [one for one in list_candidates(compat, spec) if wanted is None or wanted in one.linux_pythons]
    for wheels in (True, False):
        tried = (fit_environment(compat, one, host, wanted, wheels=wheels) for one in releases)
        found = choose_preferred(fit for fit in tried if not fit.reasons)
        if found is not None:
            return found
    return None


def can_serve(compat: Compat, release: Release, host: Host, python: str | None = None) -> bool:
    """Return whether a release can serve this machine in an environment, wherever its CUDA comes from."""
    wanted = versions.major_minor(python) if python is not None else None
    return any(
        not fit_environment(compat, release, host, wanted, wheels=wheels).reasons for wheels in (True, False)
    )


def find_card_reasons(compat: Compat, release: Release, host: Host) -> tuple[Reason, ...]:
    """Return the reasons of the machine's cards and driver against a release; empty if it serves them."""
    chosen, found = compat.cuda_set(release.version), Judgement()
    if chosen is not None:
        constraints.check_cards(found, compat, release, host, chosen.cuda, chosen.cudnn)
        constraints.check_driver(found, compat, release, host, chosen.cuda)
        if not found.reasons:
            return ()
    own = Judgement()
    if release.cuda is not None:
        constraints.check_cards(own, compat, release, host, release.cuda, release.cudnn)
        constraints.check_driver(own, compat, release, host, release.cuda)
    return tuple(found.reasons if own.reasons and chosen is not None else own.reasons)


def fit_environment(
    compat: Compat, release: Release, host: Host, python: str | None = None, *, wheels: bool = True
) -> Fit:
    """Check a release in a virtual environment on this machine.

    `wheels`: its CUDA comes from NVIDIA's wheels; else it may come from anywhere, in the version it was built
    with.
    """
    found = Judgement()
    constraints.check_machine(found, release, host, container=False)
    python = python or _choose_python(compat, release, host)
    check_python(found, compat, release, python, locked=wheels)
    if not wheels:
        if release.cuda is not None:
            constraints.check_cards(found, compat, release, host, release.cuda, release.cudnn)
            constraints.check_driver(found, compat, release, host, release.cuda)
        return _answer(found, release, python, None)
    chosen = check_wheels(found, compat, release, host)
    cudnn = compat.cudnn_range(chosen.cudnn) if chosen is not None else None
    if cudnn is not None and cudnn.glibc and host.lacks_glibc(cudnn.glibc):
        found.refuse(
            Cause.GLIBC_TOO_OLD,
            f"the wheels of cuDNN {chosen.cudnn if chosen else ''} need glibc {cudnn.glibc}; here is {host.glibc}",
            f"cudnn.toml: [[range]] {cudnn.first}",
        )
    return _answer(found, release, python, chosen)


def _answer(found: Judgement, release: Release, python: str | None, chosen: CudaSet | None) -> Fit:
    caveats = (*found.caveats, *constraints.check_release(release))
    return Fit(release, python, chosen, tuple(found.reasons), caveats)


# ---------------------------------------------------------------- the Python


def _choose_python(compat: Compat, release: Release, host: Host) -> str | None:
    """Return the examined Python if it serves, else the newest that is available."""
    own = host.python
    if own is not None and own in release.linux_pythons and is_locked(compat, release, own):
        return own
    return find_newest_python(
        release, lambda one: bool(compat.python_builds(one)) and is_locked(compat, release, one)
    )


def find_newest_python(release: Release, usable: Callable[[str], bool]) -> str | None:
    """Return the newest usable Python that the release has a wheel for."""
    return next((python for python in reversed(release.linux_pythons) if usable(python)), None)


def is_locked(compat: Compat, release: Release, python: str) -> bool:
    """Return whether a tested lock exists for this release on this Python."""
    return lock_name(release.package, release.version, python) in _list_locks(compat.locks.folder)


def _is_pinned(compat: Compat, release: Release) -> bool:
    """Return whether a tested lock exists for this distribution on any Python.

    Of 1.15.0 it is `tensorflow-gpu`, though `tensorflow` has the same code.
    """
    return any(is_locked(compat, release, python) for python in release.linux_pythons)


@lru_cache(maxsize=4)
def _list_locks(folder: Path) -> frozenset[str]:
    """Return the names of all locks, cached: there are hundreds, and each question meets many."""
    return frozenset(path.name for path in folder.iterdir())


def check_python(
    found: Judgement, compat: Compat, release: Release, python: str | None, *, locked: bool = True
) -> None:
    """Check whether a wheel exists for the Python, and (`locked`) whether it was tested."""
    if python is None or python not in release.linux_pythons:
        have = ", ".join(release.linux_pythons) or "none"
        asked = f"Python {python}" if python is not None else "any Python that is available"
        found.refuse(
            Cause.NO_MATCHING_WHEEL,
            f"TensorFlow {release.version} has no wheel for {asked} (it has them for {have})",
            constraints.format_row(release),
        )
    elif locked and not is_locked(compat, release, python):
        found.refuse(
            Cause.NO_MATCHING_WHEEL,
            f"no pinned and tested packages exist for TensorFlow {release.version} on Python {python}",
            f"locks: {release.package}-{release.version}",
        )


# ---------------------------------------------------------------- CUDA from wheels


def check_wheels(found: Judgement, compat: Compat, release: Release, host: Host) -> CudaSet | None:
    """Check NVIDIA's wheels for a release against the machine's cards and driver."""
    chosen = compat.cuda_set(release.version)
    if chosen is None:
        needs = _list_missing_wheels(compat, release)
        found.refuse(
            Cause.LIBS_NOT_INSTALLED,
            f"TensorFlow {release.version} opens libraries of CUDA {release.cuda or 'unknown'}, which "
            f"no NVIDIA wheel "
            f"has{': ' if needs else ''}{needs}",
            constraints.format_row(release),
        )
        return None
    constraints.check_cards(found, compat, release, host, chosen.cuda, chosen.cudnn)
    constraints.check_driver(found, compat, release, host, chosen.cuda)
    return chosen


@lru_cache(maxsize=512)
def _list_missing_wheels(compat: Compat, release: Release) -> str:
    """Return the libraries that a release opens and no NVIDIA wheel has, as a list in words."""
    return ", ".join(name for name in release.required_libraries if not _has_wheel(compat, name))


def _has_wheel(compat: Compat, soname: str) -> bool:
    """Return whether NVIDIA's wheels of some CUDA major have a library of this very soname."""
    parts, family = split_soname(soname), compat.library(soname)
    if parts is None or family is None:
        return False
    if parts[0] == "cudnn":
        return parts[1] in ("8", "9")
    return any(
        compat.soname_for(parts[0], cuda) == soname
        for major, cuda in compat.cuda_of_wheels.items()
        if major in family.wheels
    )
