"""What is known of TensorFlow's releases: compat/tensorflow.json, measured from the wheels by scripts.

In all tables versions stay text (`tfdoctor.versions` compares them), compute capabilities are text such as
`"8.6"`, sizes are bytes, dates are ISO 8601. A `None` means that nobody measured it and nothing may be
concluded from it.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import DataError, Evidence, Sources, as_texts, read
from tfdoctor.records import dataclass

__all__ = [
    "SHARED",
    "Code",
    "Linkage",
    "Nearest",
    "Platform",
    "Release",
    "Releases",
    "UnknownReleaseError",
    "code_for",
    "load_releases",
]

Linkage = Literal["dlopen", "needed", "none"]
"""How TF reaches CUDA: opened when GPUs are listed; linked, so that the import fails; not at all."""

Platform = Literal["linux", "windows"]
Code = Literal["native", "jit", "arch-specific", "none", "unknown"]


class UnknownReleaseError(LookupError):
    """No such TensorFlow release is known; `nearest` lists the closest that are, newest first."""

    def __init__(self, version: str, nearest: tuple[str, ...]) -> None:
        hint = f"; the nearest known: {', '.join(nearest)}" if nearest else ""
        super().__init__(f"there is no TensorFlow {version}{hint}")
        self.version = version
        self.nearest = nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release of one TensorFlow distribution on the package index (compat/tensorflow.json).

    What is inside is that of the Linux x86-64 wheel `wheel`.
    """

    NAMED: ClassVar = ("package", "version")
    package: str
    """`tensorflow` or `tensorflow-gpu`."""
    version: str
    released: str
    yanked: bool
    gpu: bool
    """Whether the Linux wheel has GPU code."""
    windows_gpu: bool | None = None
    """Whether the Windows wheel has; None where there is no Windows wheel."""
    linkage: Linkage
    linux_pythons: tuple[str, ...]
    """Pythons with a Linux x86-64 wheel, `"3.10"`, oldest first."""
    windows_pythons: tuple[str, ...]
    platform_tag: str
    """As in the wheel's name; false for 1.x, where `glibc` tells the truth."""
    wheel: str
    """The file that was read; one Python's stands for all."""
    size: int
    """Bytes of that file."""
    unpacked: int
    """Bytes of what is in it."""
    sha256: str
    cuda: str | None = None
    """The toolkit it was built with, as cuda_config.h says (documented, where there is none)."""
    cudnn: str | None = None
    """Major and minor of the cuDNN it was built with, of which it takes no lower minor; only the major where no more is
    known."""
    cudnn_evidence: Evidence | None = None
    """Measured: this version said so in a run; inferred: another patch of its minor did; documented: its extra pins it,
    or tensorflow.org names it."""
    defines: Mapping[str, str]
    """cuda_config.h's `TF_…_VERSION`, without `TF_` and `_VERSION`: `{"CUDART": "11.0"}`."""
    required_libraries: tuple[str, ...]
    """The CUDA sonames without any one of which no GPU is registered (`needed`: the import fails), in the
    order in which they are tried. The driver's are in `driver_libraries`."""
    optional_libraries: tuple[str, ...]
    """Sonames tried at import whose absence only makes a log line (TensorRT)."""
    driver_libraries: tuple[str, ...]
    """The driver's sonames without which no GPU is registered (`needed`, from 1.1 on: the import fails)."""
    libraries_from: str
    """The version that was run, or whose linkage was read, to learn the libraries; its own where it was
    this one."""
    runpath: Mapping[str, tuple[str, ...]]
    """File in the wheel → the folders under `nvidia/…/lib` on its RUNPATH (empty before 2.14)."""
    runpath_misses: tuple[str, ...]
    """Required sonames that `[and-cuda]` installs where the RUNPATH of the file that opens them does not
    look."""
    cubin: tuple[str, ...]
    """Compute capabilities with machine code, lowest first."""
    ptx: tuple[str, ...]
    """Compute capabilities with PTX that newer GPUs can compile."""
    ptx_arch_specific: tuple[str, ...]
    """PTX targets with a suffix (`"9.0a"`), which no other capability can compile."""
    registration_floor: str | None = None
    """The compute capability below which TF ignores a GPU."""
    registration_floor_evidence: Evidence | None = None
    glibc: str | None = None
    """The newest GLIBC_ symbol version needed by its objects."""
    glibcxx: str | None = None
    cxxabi: str | None = None
    cpu_instructions: tuple[str, ...] | None = None
    """What the processor must have beyond x86-64, as /proc/cpuinfo spells it (`"avx"`): without it the import
    ends in an illegal instruction. None: not known."""
    pip_extra: str | None = None
    """`and-cuda` where the wheel has it."""
    extra_pins: tuple[str, ...]
    """What the extra requires, as written (PEP 508, markers about the extra left out)."""
    requires: tuple[str, ...]
    """Requirements on numpy, protobuf, h5py and keras, as written."""
    evidence: Evidence
    inferred_from: str | None = None
    """Where `evidence` is inferred: the version whose wheel was read instead."""
    sources: Sources

    def __hash__(self) -> int:
        return hash((self.package, self.version))

    @property
    def parsed(self) -> versions.Version:
        """The version, comparable."""
        return versions.parse(self.version)

    @property
    def minor(self) -> str:
        """`"2.15"`."""
        return versions.major_minor(self.version)

    @property
    def is_prerelease(self) -> bool:
        """Whether it is an alpha, beta, candidate or development release."""
        return self.parsed.is_prerelease

    def has_gpu(self, platform: Platform = "linux") -> bool:
        """Return whether its wheel for `platform` has GPU code."""
        return self.gpu if platform == "linux" else bool(self.windows_gpu)

    def pythons(self, platform: Platform = "linux") -> tuple[str, ...]:
        """Return the Pythons that have a wheel on `platform`, oldest first."""
        return self.linux_pythons if platform == "linux" else self.windows_pythons


@dataclass(frozen=True, slots=True)
class Nearest:
    """The row that stands in for a build the table does not have."""

    release: Release
    exact: bool
    """The row is this very version."""
    extrapolated: bool
    """The build is newer than anything in the table: trust its own files, not this row."""
    reason: str
    """Why this row, for the reader; empty where exact."""


@dataclasses.dataclass(frozen=True)
class Releases:
    """The whole table."""

    as_of: str
    releases: tuple[Release, ...] = field(metadata={"noun": "release"})
    """By version, then package; oldest first."""

    @cached_property
    def map_versions(self) -> dict[str, tuple[Release, ...]]:
        """The rows of each version."""
        table: dict[str, list[Release]] = {}
        for row in self.releases:
            table.setdefault(row.version, []).append(row)
        return {version: tuple(rows) for version, rows in table.items()}

    @cached_property
    def newest(self) -> Release:
        """The newest final release."""
        return next(row for row in reversed(self.releases) if not row.is_prerelease)

    def find_release(self, version: str, package: str | None = None) -> Release | None:
        """Return the row of this version, or None: one with GPU code is preferred, of those `tensorflow`."""
        rows = self.map_versions.get(version) or self.map_versions.get(_canonical(version), ())
        rows = tuple(row for row in rows if package in (None, row.package))
        for row in rows:
            if row.gpu:
                return row
        return rows[0] if rows else None

    def nearest(self, version: str, package: str | None = None) -> Nearest:
        """Return the row that says most about `version`, which need not be in the table: nightlies, candidates,
        vendors' builds, newer than the table.

        The newest release of the same minor that is not newer, else the oldest of that minor, else the newest row
        below; a version below all gets the oldest row. With `package` only its rows, if it has any. Raises
        versions.VersionSyntaxError.
        """
        exact = self.find_release(version, package)
        if exact is not None:
            return Nearest(exact, exact=True, extrapolated=False, reason="")
        wanted = versions.parse(version)
        base = self.find_release(wanted.base_version, package) if wanted.local else None
        if base is not None:
            reason = f"{version} is a build of {base.version} by somebody else: its own files decide"
            return Nearest(base, exact=False, extrapolated=False, reason=reason)
        rows = self.releases
        if package is not None:
            rows = tuple(row for row in rows if row.package == package) or rows
        rows = _choose_per_version(rows)
        minor = wanted.release[:2]
        same = [row for row in rows if row.parsed.release[:2] == minor]
        below = [row for row in same or rows if row.parsed <= wanted]
        row = below[-1] if below else (same or rows)[0]
        newest = rows[-1]
        if wanted > newest.parsed:
            reason = f"{version} is newer than this table ({newest.version}, {self.as_of})"
            return Nearest(row, exact=False, extrapolated=True, reason=reason)
        reason = f"{version} is not in the table; {row.version} is its nearest neighbour"
        return Nearest(row, exact=False, extrapolated=False, reason=reason)

    def select(self, spec: str, package: str | None = None) -> tuple[Release, ...]:
        """The rows a person means by `spec` (see versions.Spec), newest first.

        Raises versions.VersionSyntaxError where it is no specification, UnknownReleaseError where none fits.
        """
        wanted = versions.Spec(spec)
        rows = [row for row in self.releases if package in (None, row.package)]
        chosen = wanted.select(row.version for row in rows)
        if not chosen:
            raise UnknownReleaseError(spec, self.nearest_versions(spec))
        order = {version: index for index, version in enumerate(chosen)}
        picked = [row for row in rows if row.version in order]
        return tuple(sorted(picked, key=lambda row: (order[row.version], row.package)))

    def nearest_versions(self, text: str, count: int = 3) -> tuple[str, ...]:
        """Return known final versions close to `text`, for "did you mean", newest first: those of its minor, then its
        neighbours in order. Where it is no number: the newest.
        """
        known = [version for version in self.map_versions if not versions.parse(version).is_prerelease]
        try:
            wanted = versions.numbers(text.lstrip("<>=!~ "))
        except versions.VersionSyntaxError:
            return tuple(reversed(known[-count:]))
        place = sum(versions.numbers(version) < wanted for version in known)

        def distance(index: int) -> tuple[bool, float]:
            same = versions.numbers(known[index])[:2] == wanted[:2]
            return not same, abs(index + 0.5 - place)

        near = sorted(range(len(known)), key=distance)[:count]
        return tuple(known[index] for index in sorted(near, reverse=True))

    def list_for_python(
        self, python: str, platform: Platform = "linux", *, gpu: bool | None = True
    ) -> tuple[Release, ...]:
        """Return final releases with a wheel for this Python (`"3.10"`, `"3.10.13"`), newest first.

        `gpu`: only with (True) or without (False) GPU code on that platform; None: all.
        """
        wanted = versions.major_minor(python)
        return tuple(
            row
            for row in reversed(self.releases)
            if not row.is_prerelease
            and not row.yanked
            and wanted in row.pythons(platform)
            and (gpu is None or row.has_gpu(platform) is gpu)
        )


def code_for(release: Release, capability: str) -> Code:
    """Return what the wheel has for a compute capability.

    Machine code (of the same major and no higher minor); only PTX that the driver has to compile; PTX of which a part
    is specific to another architecture, so that some kernels fail; nothing; not measured.
    """
    if not release.cubin and not release.ptx:
        return "unknown" if release.gpu else "none"
    wanted = versions.parse_capability(capability)
    if any(versions.runs_machine_code(wanted, versions.parse_capability(text)) for text in release.cubin):
        return "native"
    if any(versions.parse_capability(text) <= wanted for text in release.ptx):
        return "arch-specific" if release.ptx_arch_specific else "jit"
    return "none"


def _canonical(version: str) -> str:
    try:
        return str(versions.parse(version))
    except versions.VersionSyntaxError:
        return version


def _choose_per_version(rows: Iterable[Release]) -> tuple[Release, ...]:
    """Return the GPU row of each version, else its only row."""
    best: dict[str, Release] = {}
    for row in rows:
        known = best.get(row.version)
        if known is None or (row.gpu and not known.gpu):
            best[row.version] = row
    return tuple(best.values())


SHARED = (
    "linux_pythons",
    "windows_pythons",
    "defines",
    "required_libraries",
    "optional_libraries",
    "driver_libraries",
    "runpath",
    "runpath_misses",
    "cubin",
    "ptx",
    "ptx_arch_specific",
    "extra_pins",
    "requires",
    "sources",
)
"""Keys whose value stands once in the file's `shared` list; a row has its place there."""


def load_releases(folder: Path) -> Releases:
    """Load compat/tensorflow.json. Raises DataError."""
    return read(Releases, folder / "tensorflow.json", _spread)


def _spread(raw: dict[str, Any], where: str) -> None:
    """Put the shared values where they belong."""
    shared = raw.pop("shared", None)
    rows = raw.get("releases")
    if type(shared) is not list or type(rows) is not list:
        return  # refused later
    shared = [as_texts(value) for value in shared]
    for row in rows:
        if type(row) is not dict:
            continue
        for key in SHARED:
            place = row.get(key)
            if type(place) is int and 0 <= place < len(shared):
                row[key] = shared[place]
            elif type(place) is int:
                msg = (
                    f"{where}: release {row.get('package')} {row.get('version')}: "
                    f"`{key}` is {place}, but `shared` has only {len(shared)} entries"
                )
                raise DataError(msg)
