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
from tfdoctor.fit import judge
from tfdoctor.fit.judge import Judgement
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.wheels import CudaSet
    from tfdoctor.fit.models import Caveat, Host, Reason

__all__ = ["Fit", "best", "candidates", "environment", "on_cards", "preferred", "serves"]

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
        """How many caveats speak against it."""
        return sum(caveat.serious for caveat in self.caveats)


class _Weighed(Protocol):
    @property
    def serious(self) -> int: ...


_Choice = TypeVar("_Choice", bound=_Weighed)


def preferred(choices: Iterable[_Choice]) -> _Choice | None:
    """Of choices in order, the first that nothing serious speaks against; else the first with the least."""
    found: _Choice | None = None
    for choice in choices:
        if found is None or choice.serious < found.serious:
            found = choice
        if not found.serious:
            break
    return found


def candidates(compat: Compat, spec: str | None = None) -> Iterator[Release]:
    """Releases with GPU code that are meant, newest first, one row a version; None: all final ones.

    Raises UnknownReleaseError where the specification fits no release, versions.VersionSyntaxError where it is none.
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
        rows = _meant(compat, spec)
    found: dict[str, Release] = {}
    for release in rows:
        if not release.gpu or len(found) >= _CONSIDERED:
            continue
        known = found.get(release.version)
        if known is None or (not _pinned(compat, known) and _pinned(compat, release)):
            found[release.version] = release
    return tuple(found.values())


def _meant(compat: Compat, spec: str) -> Sequence[Release]:
    """What `versions.Spec` means, and of a beginning (`2.17`) every final release: the newest may not be the one that
    fits."""
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
def best(compat: Compat, host: Host, *, python: str | None = None, spec: str | None = None) -> Fit | None:
    """The release that serves this machine best, and how; None where none does.

    `python`: the Python that it has to be for (`"3.11"`, `"3.11.7"`); `spec`: a specification of releases. NVIDIA's
    wheels come first; a release whose CUDA none of them has is taken where there is no other.
    """
    wanted = versions.major_minor(python) if python is not None else None
    releases = [one for one in candidates(compat, spec) if wanted is None or wanted in one.linux_pythons]
    for wheels in (True, False):
        tried = (environment(compat, one, host, wanted, wheels=wheels) for one in releases)
        found = preferred(fit for fit in tried if not fit.reasons)
        if found is not None:
            return found
    return None


def serves(compat: Compat, release: Release, host: Host, python: str | None = None) -> bool:
    """Whether a release can serve this machine in an environment, wherever its CUDA comes from."""
    wanted = versions.major_minor(python) if python is not None else None
    return any(
        not environment(compat, release, host, wanted, wheels=wheels).reasons for wheels in (True, False)
    )


def on_cards(compat: Compat, release: Release, host: Host) -> tuple[Reason, ...]:
    """What the cards and the driver of a machine say against a release, wherever it runs; empty: it serves them."""
    chosen, found = compat.cuda_set(release.version), Judgement()
    if chosen is not None:
        judge.of_cards(found, compat, release, host, chosen.cuda, chosen.cudnn)
        judge.of_driver(found, compat, release, host, chosen.cuda)
        if not found.reasons:
            return ()
    own = Judgement()
    if release.cuda is not None:
        judge.of_cards(own, compat, release, host, release.cuda, release.cudnn)
        judge.of_driver(own, compat, release, host, release.cuda)
    return tuple(found.reasons if own.reasons and chosen is not None else own.reasons)


def environment(
    compat: Compat, release: Release, host: Host, python: str | None = None, *, wheels: bool = True
) -> Fit:
    """What speaks for and against a release in a virtual environment on this machine.

    `wheels`: its CUDA comes from NVIDIA's wheels; else it may come from anywhere, in the version it was built with.
    """
    found = Judgement()
    judge.of_machine(found, release, host, container=False)
    python = python or _python_for(compat, release, host)
    of_python(found, compat, release, python, locked=wheels)
    if not wheels:
        if release.cuda is not None:
            judge.of_cards(found, compat, release, host, release.cuda, release.cudnn)
            judge.of_driver(found, compat, release, host, release.cuda)
        return _answer(found, release, python, None)
    chosen = of_wheels(found, compat, release, host)
    cudnn = compat.cudnn_range(chosen.cudnn) if chosen is not None else None
    if cudnn is not None and cudnn.glibc and host.lacks_glibc(cudnn.glibc):
        found.refuse(
            Cause.GLIBC_TOO_OLD,
            f"the wheels of cuDNN {chosen.cudnn if chosen else ''} need glibc {cudnn.glibc}; here is {host.glibc}",
            f"cudnn.toml: [[range]] {cudnn.first}",
        )
    return _answer(found, release, python, chosen)


def _answer(found: Judgement, release: Release, python: str | None, chosen: CudaSet | None) -> Fit:
    caveats = (*found.caveats, *judge.of_release(release))
    return Fit(release, python, chosen, tuple(found.reasons), caveats)


# ---------------------------------------------------------------- the Python


def _python_for(compat: Compat, release: Release, host: Host) -> str | None:
    """The examined Python where it serves, else the newest that is available."""
    own = host.python
    if own is not None and own in release.linux_pythons and is_locked(compat, release, own):
        return own
    return newest_python(
        release, lambda one: bool(compat.python_builds(one)) and is_locked(compat, release, one)
    )


def newest_python(release: Release, usable: Callable[[str], bool]) -> str | None:
    """The newest Python that the release has a wheel for and that is usable."""
    return next((python for python in reversed(release.linux_pythons) if usable(python)), None)


def is_locked(compat: Compat, release: Release, python: str) -> bool:
    """Whether somebody has pinned and tried this release on this Python."""
    return lock_name(release.package, release.version, python) in _locks(compat.locks.folder)


def _pinned(compat: Compat, release: Release) -> bool:
    """Whether this distribution was pinned and tried on any Python: of 1.15.0 it is `tensorflow-gpu`, though
    `tensorflow` has the same code."""
    return any(is_locked(compat, release, python) for python in release.linux_pythons)


@lru_cache(maxsize=4)
def _locks(folder: Path) -> frozenset[str]:
    """The names of all locks: there are hundreds, and each question meets many."""
    return frozenset(path.name for path in folder.iterdir())


def of_python(
    found: Judgement, compat: Compat, release: Release, python: str | None, *, locked: bool = True
) -> None:
    """Whether there is a wheel for the Python, and (`locked`) it was tried."""
    if python is None or python not in release.linux_pythons:
        have = ", ".join(release.linux_pythons) or "none"
        asked = f"Python {python}" if python is not None else "any Python that is available"
        found.refuse(
            Cause.NO_MATCHING_WHEEL,
            f"TensorFlow {release.version} has no wheel for {asked} (it has them for {have})",
            judge.row(release),
        )
    elif locked and not is_locked(compat, release, python):
        found.refuse(
            Cause.NO_MATCHING_WHEEL,
            f"no pinned and tested packages exist for TensorFlow {release.version} on Python {python}",
            f"locks: {release.package}-{release.version}",
        )


# ---------------------------------------------------------------- CUDA from wheels


def of_wheels(found: Judgement, compat: Compat, release: Release, host: Host) -> CudaSet | None:
    """NVIDIA's wheels for a release, judged for the machine's cards and driver."""
    chosen = compat.cuda_set(release.version)
    if chosen is None:
        needs = _not_in_wheels(compat, release)
        found.refuse(
            Cause.LIBS_NOT_INSTALLED,
            f"TensorFlow {release.version} opens libraries of CUDA {release.cuda or 'unknown'}, which "
            f"no NVIDIA wheel "
            f"has{': ' if needs else ''}{needs}",
            judge.row(release),
        )
        return None
    judge.of_cards(found, compat, release, host, chosen.cuda, chosen.cudnn)
    judge.of_driver(found, compat, release, host, chosen.cuda)
    return chosen


@lru_cache(maxsize=512)
def _not_in_wheels(compat: Compat, release: Release) -> str:
    """The libraries that a release opens and no NVIDIA wheel has, as a list in words."""
    return ", ".join(name for name in release.required_libraries if not _in_wheels(compat, name))


def _in_wheels(compat: Compat, soname: str) -> bool:
    """Whether NVIDIA's wheels of some CUDA major have a library of just this soname."""
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
