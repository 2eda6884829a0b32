"""Decide whether a release fits a machine in a virtual environment, and which release fits best.

`recommend` and the remedies of `check` both use this module, so that they name the same release.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from tfdoctor.compat import split_soname
from tfdoctor.compat.locks import format_lock_name
from tfdoctor.core import versions
from tfdoctor.core.findings import Cause
from tfdoctor.core.records import dataclass
from tfdoctor.prediction.fit import constraints
from tfdoctor.prediction.fit.constraints import Assessment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.wheels import CudaSet
    from tfdoctor.prediction.fit.models import Caveat, Host, Reason

__all__ = [
    "Fit",
    "can_use_release",
    "choose_preferred",
    "find_best_fit",
    "find_gpu_reasons",
    "fit_environment",
    "list_candidates",
]

_MAX_CANDIDATES = 400
"""The largest number of releases that are considered for a request. The tables have fewer."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a release fits a machine in a virtual environment, and the reasons if it does not."""

    release: Release
    python: str | None
    """The Python version to use, such as `"3.11"`; None if the release has no suitable one."""
    cuda_set: CudaSet | None
    """NVIDIA's wheels for the release; None if there are none, or if they are not used."""
    reasons: tuple[Reason, ...]
    """The reasons why the release cannot be used; empty if it can be used."""
    caveats: tuple[Caveat, ...]
    """The disadvantages of the release, even if it cannot be used."""

    @property
    def serious_count(self) -> int:
        """The number of serious caveats."""
        return sum(caveat.is_serious for caveat in self.caveats)


class _HasSeriousCount(Protocol):
    """An option that can be compared by the number of its serious caveats."""

    @property
    def serious_count(self) -> int: ...


_Choice = TypeVar("_Choice", bound=_HasSeriousCount)


def choose_preferred(choices: Iterable[_Choice]) -> _Choice | None:
    """Return the first choice without a serious caveat, else the first with the fewest, or None."""
    preferred: _Choice | None = None
    for choice in choices:
        if preferred is None or choice.serious_count < preferred.serious_count:
            preferred = choice
        if not preferred.serious_count:
            break
    return preferred


def list_candidates(compat: Compat, spec: str | None = None) -> Iterator[Release]:
    """Yield the releases with GPU code that match `spec`, newest first, one for each version.

    If `spec` is None, yield all final releases that were not withdrawn. Raise UnknownReleaseError if the
    specification matches no release, and versions.VersionSyntaxError if it is not valid.
    """
    yield from _list_candidates(compat, spec)


@lru_cache(maxsize=128)
def _list_candidates(compat: Compat, spec: str | None) -> tuple[Release, ...]:
    """Return the releases that `list_candidates` yields. They are a tuple, which can be cached.

    If two distributions have the same version, the one with a tested lock is preferred.
    """
    releases: Sequence[Release]
    if spec is None:
        releases = sorted(
            (
                candidate
                for candidate in compat.releases
                if not candidate.is_prerelease and not candidate.yanked
            ),
            key=lambda candidate: (candidate.parsed, candidate.package == "tensorflow"),
            reverse=True,
        )
    else:
        releases = compat.select(spec)
    candidates: dict[str, Release] = {}
    for release in releases:
        if not release.gpu or len(candidates) >= _MAX_CANDIDATES:
            continue
        previous = candidates.get(release.version)
        if previous is None or (not _has_any_lock(compat, previous) and _has_any_lock(compat, release)):
            candidates[release.version] = release
    return tuple(candidates.values())


@lru_cache(maxsize=64)
def find_best_fit(
    compat: Compat, host: Host, *, python: str | None = None, spec: str | None = None
) -> Fit | None:
    """Return the release that fits this machine best, with its Python and CUDA; None if none fits.

    `python` is the required Python version, such as `"3.11"` or `"3.11.7"`, and `spec` is a release specification. None
    means any. A release whose CUDA is not in NVIDIA's wheels is returned only if no other release fits.
    """
    minor = versions.major_minor(python) if python is not None else None
    releases = [
        release
        for release in list_candidates(compat, spec)
        if minor is None or minor in release.linux_pythons
    ]
    for wheels in (True, False):
        fits = (fit_environment(compat, release, host, minor, wheels=wheels) for release in releases)
        preferred = choose_preferred(fit for fit in fits if not fit.reasons)
        if preferred is not None:
            return preferred
    return None


def can_use_release(compat: Compat, release: Release, host: Host, python: str | None = None) -> bool:
    """Return whether a release fits the machine in a virtual environment, with CUDA from any source."""
    minor = versions.major_minor(python) if python is not None else None
    return any(
        not fit_environment(compat, release, host, minor, wheels=wheels).reasons for wheels in (True, False)
    )


def find_gpu_reasons(compat: Compat, release: Release, host: Host) -> tuple[Reason, ...]:
    """Return the reasons why a release cannot use the machine's GPUs and driver; empty if it can.

    It can if the GPUs and the driver support either NVIDIA's wheels or the CUDA version that it was built with.
    """
    cuda_set, wheels_assessment = compat.cuda_sets.find_for_release(release.version), Assessment()
    if cuda_set is not None:
        constraints.check_gpus_and_driver(
            wheels_assessment, compat, release, host, cuda_set.cuda, cuda_set.cudnn
        )
        if not wheels_assessment.reasons:
            return ()
    build_assessment = Assessment()
    if release.cuda is not None:
        constraints.check_gpus_and_driver(
            build_assessment, compat, release, host, release.cuda, release.cudnn
        )
    return tuple(
        wheels_assessment.reasons
        if build_assessment.reasons and cuda_set is not None
        else build_assessment.reasons
    )


def fit_environment(
    compat: Compat, release: Release, host: Host, python: str | None = None, *, wheels: bool = True
) -> Fit:
    """Decide whether a release fits the machine in a virtual environment.

    If `wheels` is true, CUDA must come from NVIDIA's wheels, and a tested lock is required. If it is false, the CUDA
    version that the release was built with may come from any source. If `python` is None, a suitable version is chosen.
    """
    assessment = Assessment()
    constraints.check_machine(assessment, release, host, container=False)
    python = python or _choose_python(compat, release, host)
    check_python(assessment, compat, release, python, locked=wheels)
    if not wheels:
        if release.cuda is not None:
            constraints.check_gpus_and_driver(assessment, compat, release, host, release.cuda, release.cudnn)
        return _build_fit(assessment, release, python, None)
    cuda_set = check_wheels(assessment, compat, release, host)
    cudnn_range = compat.find_cudnn_range(cuda_set.cudnn) if cuda_set is not None else None
    if cudnn_range is not None and cudnn_range.glibc and host.lacks_glibc(cudnn_range.glibc):
        assessment.add_reason(
            Cause.GLIBC_TOO_OLD,
            f"the wheels of cuDNN {cuda_set.cudnn if cuda_set else ''} need glibc {cudnn_range.glibc}; here is {host.glibc}",
            f"cudnn.toml: [[range]] {cudnn_range.first_version}",
        )
    return _build_fit(assessment, release, python, cuda_set)


def _build_fit(assessment: Assessment, release: Release, python: str | None, cuda_set: CudaSet | None) -> Fit:
    """Build the result from the reasons and caveats so far, and the caveats of the release itself."""
    caveats = (*assessment.caveats, *constraints.check_release(release))
    return Fit(
        release=release, python=python, cuda_set=cuda_set, reasons=tuple(assessment.reasons), caveats=caveats
    )


# ---------------------------------------------------------------- Python


def _choose_python(compat: Compat, release: Release, host: Host) -> str | None:
    """Return the host's Python version if it is suitable, else the newest suitable one, or None."""
    current = host.python
    if current is not None and current in release.linux_pythons and is_locked(compat, release, current):
        return current
    return find_newest_python(
        release,
        lambda python: bool(compat.pythons.find_builds(python)) and is_locked(compat, release, python),
    )


def find_newest_python(release: Release, is_usable: Callable[[str], bool]) -> str | None:
    """Return the newest usable Python version that the release has a wheel for; None if there is none."""
    return next((python for python in reversed(release.linux_pythons) if is_usable(python)), None)


def is_locked(compat: Compat, release: Release, python: str) -> bool:
    """Return whether a tested lock exists for a release on a Python version."""
    return format_lock_name(release.package, release.version, python) in _list_lock_names(compat.locks.folder)


def _has_any_lock(compat: Compat, release: Release) -> bool:
    """Return whether a tested lock exists for a release on any Python version.

    For 1.15.0 only `tensorflow-gpu` has a lock, though `tensorflow` has the same code.
    """
    return any(is_locked(compat, release, python) for python in release.linux_pythons)


@lru_cache(maxsize=4)
def _list_lock_names(folder: Path) -> frozenset[str]:
    """Return the names of all lock files. They are cached, because there are hundreds of them."""
    return frozenset(path.name for path in folder.iterdir())


def check_python(
    assessment: Assessment, compat: Compat, release: Release, python: str | None, *, locked: bool = True
) -> None:
    """Add a reason if the release has no wheel for the Python version or, if `locked`, no tested lock."""
    pythons = release.linux_pythons
    # A pre-release, for example, has wheels and no lock for any Python.
    if (
        python is None
        and locked
        and pythons
        and not any(is_locked(compat, release, minor) for minor in pythons)
    ):
        assessment.add_reason(
            Cause.NO_MATCHING_WHEEL,
            f"no pinned and tested packages exist for TensorFlow {release.version}",
            f"locks: {release.package}-{release.version}",
        )
    elif python is None or python not in release.linux_pythons:
        available = ", ".join(release.linux_pythons) or "none"
        request = f"Python {python}" if python is not None else "any Python that is available"
        assessment.add_reason(
            Cause.NO_MATCHING_WHEEL,
            f"TensorFlow {release.version} has no wheel for {request} (it has them for {available})",
            constraints.format_release_source(release),
        )
    elif locked and not is_locked(compat, release, python):
        assessment.add_reason(
            Cause.NO_MATCHING_WHEEL,
            f"no pinned and tested packages exist for TensorFlow {release.version} on Python {python}",
            f"locks: {release.package}-{release.version}",
        )


# ---------------------------------------------------------------- CUDA from wheels


def check_wheels(assessment: Assessment, compat: Compat, release: Release, host: Host) -> CudaSet | None:
    """Return NVIDIA's wheels for a release, and add the reasons why the GPUs or the driver exclude them.

    If no wheels have the CUDA version of the release, add that as a reason and return None.
    """
    cuda_set = compat.cuda_sets.find_for_release(release.version)
    if cuda_set is None:
        sonames = _list_missing_wheels(compat, release)
        if len(sonames) > 2:
            sonames = (sonames[0], f"{len(sonames) - 1} more")
        names = f" ({' and '.join(sonames)})" if sonames else ""
        assessment.add_reason(
            Cause.LIBS_NOT_INSTALLED,
            f"TensorFlow {release.version} needs CUDA {release.cuda or '(version not known)'}, whose libraries NVIDIA "
            f"does not publish as pip packages{names}",
            constraints.format_release_source(release),
        )
        if (
            release.cuda is not None
        ):  # conda or an image may have it, which does not help a card that it does not support
            constraints.check_gpus_and_driver(assessment, compat, release, host, release.cuda, release.cudnn)
        return None
    constraints.check_gpus_and_driver(assessment, compat, release, host, cuda_set.cuda, cuda_set.cudnn)
    return cuda_set


@lru_cache(maxsize=512)
def _list_missing_wheels(compat: Compat, release: Release) -> tuple[str, ...]:
    """Return the required libraries that no NVIDIA wheel has."""
    return tuple(soname for soname in release.required_libraries if not _is_in_wheel(compat, soname))


def _is_in_wheel(compat: Compat, soname: str) -> bool:
    """Return whether an NVIDIA wheel contains a library with exactly this soname."""
    parts, family = split_soname(soname), compat.find_library(soname)
    if parts is None or family is None:
        return False
    stem, version = parts
    if stem == "cudnn":
        return version in ("8", "9")  # the versions in the wheels, which do not follow the CUDA version
    return any(
        compat.find_soname(stem, cuda) == soname
        for major, cuda in compat.wheel_toolkits.items()
        if major in family.wheels
    )
