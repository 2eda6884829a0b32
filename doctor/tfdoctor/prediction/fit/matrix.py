"""The compatibility matrix: select TensorFlow releases by conditions, and group similar ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tfdoctor.core import versions
from tfdoctor.core.records import dataclass
from tfdoctor.prediction.fit.compatibility import find_gpu_reasons
from tfdoctor.prediction.fit.constraints import find_jit_driver
from tfdoctor.prediction.fit.drivers import find_driver_refusal, find_first_driver
from tfdoctor.prediction.fit.models import Host, HostGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tfdoctor.compat.problems import Problem
    from tfdoctor.compat.releases import Code, Platform, Release
    from tfdoctor.compat.tables import Compat
    from tfdoctor.prediction.fit.models import Reason

__all__ = [
    "MatrixGroup",
    "MatrixQuery",
    "MatrixRow",
    "find_code_on_gpu",
    "group_rows",
    "has_known_error",
    "list_driver_gaps",
    "list_refusals",
    "select_rows",
]

_CODE_ORDER: tuple[Code, ...] = ("native", "jit", "arch-specific", "unknown", "none")
"""The kinds of code, the best first."""


@dataclass(frozen=True, slots=True)
class MatrixQuery:
    """The conditions that a release must meet. None means no condition."""

    tf: str | None = None
    """A version specification (`versions.VersionSpec`), such as "2.4" or ">=2.10,<2.13"."""
    cuda: str | None = None
    """A prefix of the CUDA version, such as "11" or "11.2"."""
    cudnn: str | None = None
    """A prefix of the cuDNN version, such as "8" or "8.1"."""
    python: str | None = None
    """A Python version that the release has a wheel for, such as "3.8" or "3.8.18"."""
    capability: str | None = None
    """Compute capabilities, separated by commas; the release must run on at least one of them."""
    driver: str | None = None
    """A driver version that must be at least the minimum for the release's CUDA on `os`."""
    os: Platform = "linux"
    """The operating system of the wheels and drivers."""
    package: str | None = None
    """The name of the distribution, such as "tensorflow-gpu"."""
    gpu: bool | None = None
    """True for releases with GPU code on `os`, False for releases without it."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A release, with the values that the matrix derives from it."""

    release: Release
    min_linux_driver: str | None
    """The minimum driver version on Linux, for the requested GPU if there is one.

    None if it is not known or if the release has no CUDA.
    """
    min_windows_driver: str | None
    """The same on Windows; None also if no Windows wheel has GPU code."""
    problems: tuple[Problem, ...]
    """The known problems of the release, in the order of the table."""
    code_kind: Code | None
    """The kind of code for the requested compute capability; None if none was requested."""
    newest_capability: str | None
    """The highest compute capability that it runs on; None if every known newer GPU can run it."""
    is_mostly_ptx: bool = False
    """Whether most kernels are only PTX for the requested GPU, although it has machine code for others."""

    def get_min_driver(self, platform: Platform) -> str | None:
        """Return the minimum driver version on a platform."""
        return self.min_windows_driver if platform == "windows" else self.min_linux_driver

    def as_dict(self, code_of: Callable[[Problem], str | None]) -> dict[str, Any]:
        """Return the row as `tfdoctor matrix --json` writes it (matrix.schema.json).

        `code_of` returns the finding code of a problem. Fields that only apply to GPU builds are null for other releases.
        """
        release = self.release
        return {
            "tensorflow": release.version,
            "package": release.package,
            "released": release.release_date,
            "yanked": release.yanked,
            "gpu": release.gpu,
            "python": list(release.linux_pythons),
            "python_windows": list(release.windows_pythons),
            "gpu_windows": release.windows_gpu,
            "cuda": release.cuda,
            "cudnn": release.cudnn,
            "linkage": release.linkage if release.gpu else None,
            "required_libraries": sorted(release.required_libraries),
            "optional_libraries": sorted(release.optional_libraries),
            "driver_libraries": sorted(release.driver_libraries),
            "cubin": list(release.cubin),
            "ptx": list(release.ptx),
            "ptx_arch_specific": list(release.ptx_arch_specific),
            "code": self.code_kind,
            "registration_floor": release.registration_floor,
            "driver_minimum": {"linux": self.min_linux_driver, "windows": self.min_windows_driver},
            "glibc": release.glibc,
            "cpu_instructions": None if release.cpu_instructions is None else list(release.cpu_instructions),
            "pip_extra": release.pip_extra,
            "runpath_misses": list(release.runpath_misses),
            "known_problems": [
                {"code": code_of(problem), "id": problem.id, "cause": problem.cause, "text": problem.title}
                for problem in self.problems
            ],
            "evidence": "measured" if release.evidence == "measured" else "documented",
            "inferred_from": release.inferred_from,
            "sources": list(release.sources),
        }


@dataclass(frozen=True, slots=True)
class MatrixGroup:
    """Consecutive rows that differ only in values that do not matter for a choice, newest first."""

    rows: tuple[MatrixRow, ...]

    @property
    def newest_row(self) -> MatrixRow:
        """The newest row, which represents the group."""
        return self.rows[0]

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the releases, newest first, without duplicates."""
        return tuple(dict.fromkeys(row.release.version for row in self.rows))

    @property
    def packages(self) -> tuple[str, ...]:
        """The names of the distributions, sorted."""
        return tuple(sorted({row.release.package for row in self.rows}))


def select_rows(compat: Compat, query: MatrixQuery | None = None) -> tuple[MatrixRow, ...]:
    """Return the rows that match the query, newest first; all rows if it is None.

    Distributions of the same version are sorted by name. Raise releases.UnknownReleaseError if `query.tf` matches no
    release, and versions.VersionSyntaxError if a condition is not a valid version.
    """
    conditions = query or MatrixQuery()
    if conditions.tf is not None:
        releases = compat.select(conditions.tf, conditions.package)
        if versions.is_major_or_minor(conditions.tf):  # the whole row of one release, not a list
            releases = tuple(release for release in releases if release.version == releases[0].version)
    else:
        candidates = sorted(compat.releases, key=lambda candidate: candidate.package)
        candidates.sort(key=lambda candidate: candidate.parsed, reverse=True)
        releases = tuple(
            candidate for candidate in candidates if conditions.package in (None, candidate.package)
        )
    capabilities = _parse_capabilities(conditions.capability)
    rows = []
    for release in releases:
        has_gpu = release.gpu if conditions.os == "linux" else bool(release.windows_gpu)
        if conditions.gpu is not None and has_gpu is not conditions.gpu:
            continue
        if not _matches_query(compat, release, conditions):
            continue
        code = _find_best_code(compat, release, conditions, capabilities)
        if code == "none":
            continue
        rows.append(_build_row(compat, release, capabilities, code))
    return tuple(rows)


def _matches_query(compat: Compat, release: Release, query: MatrixQuery) -> bool:
    """Return whether a release meets all conditions except `tf`, `package`, `gpu` and `capability`."""
    if query.os == "windows":
        gpu_conditions = (query.cuda, query.cudnn, query.driver, query.capability)
        if not release.windows_pythons or (not release.windows_gpu and any(gpu_conditions)):
            return False
    for actual, condition in ((release.cuda, query.cuda), (release.cudnn, query.cudnn)):
        if condition is not None and (actual is None or not _have_common_prefix(actual, condition)):
            return False
    if query.python is not None and versions.major_minor(query.python) not in release.pythons(query.os):
        return False
    if query.driver is not None:
        versions.parse_numbers(query.driver)  # raises VersionSyntaxError even if there is no minimum
        minimum = None if release.cuda is None else compat.find_driver_minimum(release.cuda, query.os).minimum
        if minimum is None or not versions.is_driver_at_least(query.driver, minimum):
            return False
    return True


def _have_common_prefix(version: str, condition: str) -> bool:
    """Return whether one version is a prefix of the other.

    If the table contains only `"7"`, the condition `"7.4"` may be met, so the release is not excluded.
    """
    return versions.has_prefix(version, condition) or (
        version.count(".") < condition.count(".") and versions.has_prefix(condition, version)
    )


def _parse_capabilities(text: str | None) -> tuple[str, ...]:
    """Parse compute capabilities that are separated by commas, and drop duplicates."""
    if text is None:
        return ()
    parts = [versions.format_capability(versions.parse_capability(part)) for part in text.split(",")]
    return tuple(dict.fromkeys(parts))


def _find_best_code(
    compat: Compat, release: Release, query: MatrixQuery, capabilities: tuple[str, ...]
) -> Code | None:
    """Return the best kind of code for any of the capabilities; None if there are no capabilities."""
    if not capabilities:
        return None
    return min(
        (_find_code(compat, release, query, capability) for capability in capabilities), key=_CODE_ORDER.index
    )


def _find_code(compat: Compat, release: Release, query: MatrixQuery, capability: str) -> Code:
    """Return the kind of code for a GPU; also "none" if CUDA, cuDNN or the driver excludes the GPU."""
    code = compat.find_code(release, capability)
    if code == "arch-specific":  # a reason of its own for `list_refusals`, but some kernels run
        gpu = HostGpu(capability, capability)
        is_usable = query.driver is None or not find_driver_refusal(compat, query.driver, gpu, query.os)
    else:
        is_usable = code == "none" or not list_refusals(compat, release, query, capability)
    return code if is_usable else "none"


def find_code_on_gpu(compat: Compat, release: Release, capability: str) -> Code:
    """Return the kind of code for a GPU with any driver; also "none" if CUDA or cuDNN excludes the GPU."""
    return _find_code(compat, release, MatrixQuery(), capability)


def has_known_error(row: MatrixRow) -> bool:
    """Return whether the release has a known error in its libraries, its packaging or its GPU support."""
    return any(
        problem.severity == "error" and problem.area in {"libraries", "packaging", "gpu"}
        for problem in row.problems
    )


def list_refusals(
    compat: Compat, release: Release, query: MatrixQuery, capability: str
) -> tuple[Reason, ...]:
    """Return the reasons why a release cannot use a GPU of this capability with the query's driver."""
    gpu = HostGpu(f"compute capability {capability}", capability)
    system = "Windows" if query.os == "windows" else "Linux"
    return find_gpu_reasons(compat, release, Host(cards=(gpu,), driver=query.driver, system=system))


def _build_row(
    compat: Compat, release: Release, capabilities: tuple[str, ...], code: Code | None
) -> MatrixRow:
    """Build the row of a release, with its problems on GPUs of any of the capabilities."""
    min_linux_driver = min_windows_driver = None
    if release.cuda is not None:
        min_linux_driver = _find_min_driver(compat, release, release.cuda, capabilities, "linux")
        if release.windows_gpu:
            min_windows_driver = _find_min_driver(compat, release, release.cuda, capabilities, "windows")
    problems: dict[str, Problem] = {}
    for capability in capabilities or (None,):
        for problem in compat.list_problems(release.package, release.version, capability=capability):
            problems[problem.id] = problem
    index_by_id = {problem.id: index for index, problem in enumerate(compat.problems)}
    ordered_problems = sorted(problems.values(), key=lambda problem: index_by_id[problem.id])
    return MatrixRow(
        release=release,
        min_linux_driver=min_linux_driver,
        min_windows_driver=min_windows_driver,
        problems=tuple(ordered_problems),
        code_kind=code,
        newest_capability=_find_newest_capability(compat, release),
        is_mostly_ptx=code == "native"
        and all(_has_mostly_ptx(compat, release, capability) for capability in capabilities),
    )


def _has_mostly_ptx(compat: Compat, release: Release, capability: str) -> bool:
    """Return whether the driver must compile most kernels of a release for a GPU."""
    compilation = compat.find_ptx_requirement(release, capability)
    return compilation is not None and compilation[1] in ("most", "all")


def _find_newest_capability(compat: Compat, release: Release) -> str | None:
    """Return the value of `MatrixRow.newest_capability`, which is that of a generation of GPUs."""
    newest_first = [generation.capability for generation in reversed(compat.cards.generations)]
    usable = (
        capability
        for capability in newest_first
        if release.cubin and find_code_on_gpu(compat, release, capability) not in ("none", "unknown")
    )
    newest = next(usable, None)
    return None if newest == newest_first[0] else newest


def _find_min_driver(
    compat: Compat, release: Release, cuda: str, capabilities: tuple[str, ...], platform: Platform
) -> str | None:
    """Return the oldest driver that is new enough for a release's CUDA and its code for these GPUs.

    The release may be usable on one of the GPUs alone, which then decides.
    """
    minimum = compat.find_driver_minimum(cuda, platform).minimum
    if minimum is None:
        return None
    drivers = [
        _raise_min_driver(compat, release, minimum, capability, platform) for capability in capabilities
    ]
    return min(drivers, default=minimum, key=versions.parse_numbers)


def _raise_min_driver(
    compat: Compat, release: Release, minimum: str, capability: str, platform: Platform
) -> str:
    """Return the driver that also knows a GPU and, if a release needs that for it, compiles its PTX."""
    drivers = [minimum]
    if first := find_first_driver(compat, HostGpu(capability, capability), platform):
        drivers.append(first)
    compilation = find_jit_driver(compat, release, capability, platform)
    if compilation is not None and compat.find_code(release, capability) != "arch-specific":
        drivers.append(compilation[0])
    return max(drivers, key=versions.parse_numbers)


def list_driver_gaps(
    compat: Compat, query: MatrixQuery, rows: Sequence[MatrixRow]
) -> list[tuple[str, str, str]]:
    """Return the releases that are missing in `rows` because the query's driver is too old for them.

    Each element is (oldest release, newest release, minimum driver) for releases that follow each other.
    """
    if query.driver is None:
        return []
    shown = {row.release for row in rows}
    gaps = []
    for minimum, members in groupby(
        select_rows(compat, replace(query, driver=None)),
        key=lambda row: None if row.release in shown else row.get_min_driver(query.os),
    ):
        names = [row.release.version for row in members]
        if minimum is not None and not versions.is_driver_at_least(query.driver, minimum):
            gaps.append((names[-1], names[0], minimum))
    return gaps


def group_rows(rows: Iterable[MatrixRow]) -> tuple[MatrixGroup, ...]:
    """Group consecutive rows that have the same `_build_group_key`."""
    groups: list[list[MatrixRow]] = []
    for row in rows:
        if groups and _build_group_key(groups[-1][0]) == _build_group_key(row):
            groups[-1].append(row)
        else:
            groups.append([row])
    return tuple(MatrixGroup(tuple(group)) for group in groups)


def _build_group_key(row: MatrixRow) -> tuple[object, ...]:
    """Return the values that all rows of a group have in common."""
    release = row.release
    return (
        release.minor,
        release.is_prerelease,
        release.gpu,
        bool(release.windows_gpu),
        release.linux_pythons,
        release.cuda,
        release.cudnn,
        release.required_libraries,
        release.cubin,
        release.ptx,
        release.ptx_arch_specific,
        release.registration_floor,
        release.glibc,
        release.pip_extra,
        release.runpath_misses,
        [problem.id for problem in row.problems],
        row.code_kind,
        row.is_mostly_ptx,
        row.min_linux_driver,
        row.min_windows_driver,
    )
