"""The compatibility matrix: which TensorFlow releases fit some conditions, each with all that is known of
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor import versions
from tfdoctor.fit.compatibility import find_card_reasons
from tfdoctor.fit.models import Card, Host
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tfdoctor.compat.problems import Problem
    from tfdoctor.compat.releases import Code, Platform, Release
    from tfdoctor.compat.tables import Compat
    from tfdoctor.fit.models import Reason

__all__ = [
    "MatrixGroup",
    "MatrixQuery",
    "MatrixRow",
    "find_code_on_card",
    "group_rows",
    "is_marked",
    "list_refusals",
    "select_rows",
]


@dataclass(frozen=True, slots=True)
class MatrixQuery:
    """Conditions; None is no condition. All must hold."""

    tf: str | None = None
    """A specification of versions (`versions.Spec`): `"2.4"`, `">=2.10,<2.13"`."""
    cuda: str | None = None
    """A prefix of the CUDA version: `"11"`, `"11.2"`."""
    cudnn: str | None = None
    """A prefix of the cuDNN version: `"8"`, `"8.1"`."""
    python: str | None = None
    """A Python with a wheel: `"3.8"`, `"3.8.18"`."""
    capability: str | None = None
    """A compute capability on which it runs (`fit.on_cards`), or several with commas: one is enough."""
    driver: str | None = None
    """A driver version that meets the CUDA minimum of `os`."""
    os: Platform = "linux"
    """Whose wheels and drivers are meant."""
    package: str | None = None
    gpu: bool | None = None
    """Only with, only without GPU code on `os`."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One release and what follows from it."""

    release: Release
    driver_linux: str | None
    driver_windows: str | None
    """None, too, where no Windows wheel has GPU code."""
    problems: tuple[Problem, ...]
    code: Code | None
    """What there is for the capability asked for; None where none was."""

    def as_dict(self, code_of: Callable[[Problem], str | None]) -> dict[str, Any]:
        """Return the row as `tfdoctor matrix --json` writes it (matrix.schema.json).

        `code_of` gives a problem's finding code. A release without GPU code has null for what only GPU builds
        have.
        """
        row = self.release
        return {
            "tensorflow": row.version,
            "package": row.package,
            "released": row.released,
            "yanked": row.yanked,
            "gpu": row.gpu,
            "python": list(row.linux_pythons),
            "python_windows": list(row.windows_pythons),
            "gpu_windows": row.windows_gpu,
            "cuda": row.cuda,
            "cudnn": row.cudnn,
            "linkage": row.linkage if row.gpu else None,
            "required_libraries": sorted(row.required_libraries),
            "optional_libraries": sorted(row.optional_libraries),
            "driver_libraries": sorted(row.driver_libraries),
            "cubin": list(row.cubin),
            "ptx": list(row.ptx),
            "ptx_arch_specific": list(row.ptx_arch_specific),
            "code": self.code,
            "registration_floor": row.registration_floor,
            "driver_minimum": {"linux": self.driver_linux, "windows": self.driver_windows},
            "glibc": row.glibc,
            "cpu_instructions": None if row.cpu_instructions is None else list(row.cpu_instructions),
            "pip_extra": row.pip_extra,
            "runpath_misses": list(row.runpath_misses),
            "known_problems": [
                {"code": code_of(problem), "id": problem.id, "cause": problem.cause, "text": problem.title}
                for problem in self.problems
            ],
            "evidence": "measured" if row.evidence == "measured" else "documented",
            "inferred_from": row.inferred_from,
            "sources": list(row.sources),
        }


@dataclass(frozen=True, slots=True)
class MatrixGroup:
    """Releases that differ in nothing a reader chooses by, newest first."""

    rows: tuple[MatrixRow, ...]

    @property
    def first(self) -> MatrixRow:
        """Return the row that represents all of them."""
        return self.rows[0]

    @property
    def versions(self) -> tuple[str, ...]:
        """Return their versions, newest first, each once."""
        return tuple(dict.fromkeys(row.release.version for row in self.rows))

    @property
    def packages(self) -> tuple[str, ...]:
        """Return their distributions."""
        return tuple(sorted({row.release.package for row in self.rows}))


def select_rows(compat: Compat, query: MatrixQuery | None = None) -> tuple[MatrixRow, ...]:
    """Return the rows that match the query, newest first (of one version `tensorflow` first); maybe none.

    Raises releases.UnknownReleaseError if `query.tf` means no release, and versions.VersionSyntaxError if a
    condition is
    no version.
    """
    asked = query or MatrixQuery()
    if asked.tf is not None:
        chosen = compat.select(asked.tf, asked.package)
    else:
        newest_first = sorted(compat.releases, key=lambda row: row.package)
        newest_first.sort(key=lambda row: row.parsed, reverse=True)
        chosen = tuple(row for row in newest_first if asked.package in (None, row.package))
    capabilities = _capabilities(asked.capability)
    rows = []
    for release in chosen:
        has_gpu = release.gpu if asked.os == "linux" else bool(release.windows_gpu)
        if asked.gpu is not None and has_gpu is not asked.gpu:
            continue
        if not _matches_query(compat, release, asked):
            continue
        code = _best_code(compat, release, asked, capabilities)
        if code == "none":
            continue
        rows.append(_row(compat, release, capabilities, code))
    return tuple(rows)


def _matches_query(compat: Compat, release: Release, asked: MatrixQuery) -> bool:
    """Return whether a release meets every condition but those on the release itself and on the capability."""
    if asked.os == "windows":
        about_gpus = (asked.cuda, asked.cudnn, asked.driver, asked.capability)
        if not release.windows_pythons or (not release.windows_gpu and any(about_gpus)):
            return False
    for have, want in ((release.cuda, asked.cuda), (release.cudnn, asked.cudnn)):
        if want is not None and (have is None or not _have_common_prefix(have, want)):
            return False
    if asked.python is not None and versions.major_minor(asked.python) not in release.pythons(asked.os):
        return False
    if asked.driver is not None:
        versions.numbers(asked.driver)
        minimum = None if release.cuda is None else compat.driver_minimum(release.cuda, asked.os).minimum
        if minimum is None or not versions.driver_at_least(asked.driver, minimum):
            return False
    return True


def _have_common_prefix(have: str, want: str) -> bool:
    """Return whether one version is a prefix of the other: a table that only knows `7` cannot deny `7.4`."""
    return versions.has_prefix(have, want) or (
        have.count(".") < want.count(".") and versions.has_prefix(want, have)
    )


def _capabilities(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    parts = [versions.format_capability(versions.parse_capability(part)) for part in text.split(",")]
    return tuple(dict.fromkeys(parts))


_ORDER: tuple[Code, ...] = ("native", "jit", "arch-specific", "unknown", "none")


def _best_code(
    compat: Compat, release: Release, asked: MatrixQuery, capabilities: tuple[str, ...]
) -> Code | None:
    if not capabilities:
        return None
    return min((_find_code(compat, release, asked, text) for text in capabilities), key=_ORDER.index)


def _find_code(compat: Compat, release: Release, asked: MatrixQuery, capability: str) -> Code:
    """Return the kind of code for a card; "none", too, if CUDA, cuDNN or the driver rule the card out."""
    code = compat.code_for(release, capability)
    runs = code in ("none", "arch-specific") or not list_refusals(compat, release, asked, capability)
    return code if runs else "none"


def find_code_on_card(compat: Compat, release: Release, capability: str) -> Code:
    """Return the kind of code in a release for a card with any driver; "none", too, if CUDA or cuDNN rule it out."""
    return _find_code(compat, release, MatrixQuery(), capability)


def is_marked(row: MatrixRow) -> bool:
    """Return whether a problem with its libraries, its packaging or some cards is known."""
    return any(p.severity == "error" and p.area in {"libraries", "packaging", "gpu"} for p in row.problems)


def list_refusals(
    compat: Compat, release: Release, asked: MatrixQuery, capability: str
) -> tuple[Reason, ...]:
    """List the reasons against a release on a card of this compute capability with the driver of the query."""
    card = Card(f"compute capability {capability}", capability)
    system = "Windows" if asked.os == "windows" else "Linux"
    return find_card_reasons(compat, release, Host(cards=(card,), driver=asked.driver, system=system))


def _row(compat: Compat, release: Release, capabilities: tuple[str, ...], code: Code | None) -> MatrixRow:
    linux = windows = None
    if release.cuda is not None:
        linux = compat.driver_minimum(release.cuda, "linux").minimum
        if release.windows_gpu:
            windows = compat.driver_minimum(release.cuda, "windows").minimum
    problems: dict[str, Problem] = {}
    for text in capabilities or (None,):
        for problem in compat.problems_of(release.package, release.version, capability=text):
            problems[problem.id] = problem
    order = {problem.id: index for index, problem in enumerate(compat.problems)}
    ordered = sorted(problems.values(), key=lambda problem: order[problem.id])
    return MatrixRow(release, linux, windows, tuple(ordered), code)


def group_rows(rows: Iterable[MatrixRow]) -> tuple[MatrixGroup, ...]:
    """Group neighbouring rows of one minor release that differ only in version, package, date and size."""
    groups: list[list[MatrixRow]] = []
    for row in rows:
        if groups and _likeness(groups[-1][0]) == _likeness(row):
            groups[-1].append(row)
        else:
            groups.append([row])
    return tuple(MatrixGroup(tuple(members)) for members in groups)


def _likeness(row: MatrixRow) -> tuple[object, ...]:
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
        row.code,
    )
