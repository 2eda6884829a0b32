"""TensorFlow releases: compat/tensorflow.json, which scripts measure in the wheels.

In all tables, versions are texts (`tfdoctor.core.versions` compares them), compute capabilities are texts such as `"8.6"`,
sizes are bytes, and dates are ISO 8601. None means that a value was not measured, so nothing may be concluded from it.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from tfdoctor.compat.decode import DataError, Evidence, Sources, as_texts, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = [
    "SHARED_KEYS",
    "Code",
    "Linkage",
    "Nearest",
    "Platform",
    "Release",
    "Releases",
    "UnknownReleaseError",
    "find_code",
    "load_releases",
]

Linkage = Literal["dlopen", "needed", "none"]
"""How TensorFlow loads CUDA.

dlopen: when it lists GPUs; needed: it is linked, so that the import fails without CUDA; none: not at all.
"""

Platform = Literal["linux", "windows"]
Code = Literal["native", "jit", "arch-specific", "none", "unknown"]


class UnknownReleaseError(LookupError):
    """A TensorFlow release is not known. `nearest` lists the closest known versions, newest first."""

    def __init__(self, version: str, nearest: tuple[str, ...]) -> None:
        hint = f"; the nearest known: {', '.join(nearest)}" if nearest else ""
        super().__init__(f"there is no TensorFlow {version}{hint}")
        self.version = version
        self.nearest = nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of a TensorFlow distribution on the package index.

    Its properties were measured in the Linux x86-64 wheel `wheel`.
    """

    NAMED: ClassVar = ("package", "version")
    package: str
    """`tensorflow` or `tensorflow-gpu`."""
    version: str
    release_date: str = field(metadata={"key": "released"})
    """Release date, ISO 8601."""
    yanked: bool
    gpu: bool
    """Whether the Linux wheel has GPU code."""
    windows_gpu: bool | None = None
    """Whether the Windows wheel has GPU code; None if there is no Windows wheel."""
    linkage: Linkage
    linux_pythons: tuple[str, ...]
    """Versions of Python with a Linux x86-64 wheel, such as `"3.10"`, oldest first."""
    windows_pythons: tuple[str, ...]
    platform_tag: str
    """Platform tag in the wheel's name. It is wrong for 1.x; `glibc` has the real minimum."""
    wheel: str
    """Wheel that was measured. The wheel for one Python version represents all."""
    size_bytes: int = field(metadata={"key": "size"})
    """Size of the wheel in bytes."""
    unpacked_bytes: int = field(metadata={"key": "unpacked"})
    """Size of its contents in bytes."""
    sha256: str
    cuda: str | None = None
    """CUDA version of the build, according to cuda_config.h or, if that is missing, the documentation."""
    cudnn: str | None = None
    """cuDNN version of the build: major and minor, or only the major. TensorFlow refuses a lower minor."""
    cudnn_evidence: Evidence | None = None
    """Evidence for `cudnn`.

    measured: this version reported it when it ran; inferred: another patch of its minor reported it; documented: its
    extra or tensorflow.org states it.
    """
    defines: Mapping[str, str]
    """`TF_…_VERSION` defines of cuda_config.h, without `TF_` and `_VERSION`: `{"CUDART": "11.0"}`."""
    required_libraries: tuple[str, ...]
    """The CUDA sonames that are all required to register a GPU, in the order in which TensorFlow opens them.

    If the linkage is `needed`, the import fails without them. The driver's sonames are in `driver_libraries`.
    """
    optional_libraries: tuple[str, ...]
    """Sonames that the import tries to open; if one is missing, TensorFlow only logs it (TensorRT)."""
    driver_libraries: tuple[str, ...]
    """The driver's sonames that are required to register a GPU, or if linked (1.1 and newer) to import TensorFlow."""
    libraries_version: str = field(metadata={"key": "libraries_from"})
    """The version in which the libraries were measured; usually this one."""
    runpath: Mapping[str, tuple[str, ...]]
    """The `nvidia/…/lib` folders on the RUNPATH of each file in the wheel; empty before 2.14."""
    runpath_misses: tuple[str, ...]
    """Required sonames from `[and-cuda]` that are not on the RUNPATH of the file that opens them."""
    cubin: tuple[str, ...]
    """Compute capabilities with cubins, lowest first."""
    ptx: tuple[str, ...]
    """Compute capabilities with PTX that newer GPUs can compile."""
    ptx_arch_specific: tuple[str, ...]
    """PTX targets with a suffix (`"9.0a"`), which can be compiled for that capability only."""
    registration_floor: str | None = None
    """Compute capability below which TensorFlow ignores a GPU."""
    registration_floor_evidence: Evidence | None = None
    glibc: str | None = None
    """Newest GLIBC_ symbol version that its objects need."""
    glibcxx: str | None = None
    """Newest GLIBCXX_ symbol version that its objects need."""
    cxxabi: str | None = None
    """Newest CXXABI_ symbol version that its objects need."""
    cpu_instructions: tuple[str, ...] | None = None
    """Required CPU features beyond x86-64, with their names in /proc/cpuinfo (`"avx"`). None if not known.

    Without them the import ends with an illegal instruction.
    """
    pip_extra: str | None = None
    """`and-cuda` if the wheel has this extra, else None."""
    extra_pins: tuple[str, ...]
    """Requirements of the extra, as written (PEP 508, without markers about the extra)."""
    requirements: tuple[str, ...] = field(metadata={"key": "requires"})
    """Requirements for numpy, protobuf, h5py and keras, as written."""
    evidence: Evidence
    inferred_from: str | None = None
    """Version whose wheel was measured instead, if `evidence` is inferred; else None."""
    sources: Sources

    def __hash__(self) -> int:
        return hash((self.package, self.version))

    @property
    def parsed(self) -> versions.Version:
        """Version as a comparable object."""
        return versions.parse(self.version)

    @property
    def minor(self) -> str:
        """Major and minor, such as `"2.15"`."""
        return versions.major_minor(self.version)

    @property
    def is_prerelease(self) -> bool:
        """Whether it is an alpha, beta, candidate or development release."""
        return self.parsed.is_prerelease

    def has_gpu(self, platform: Platform = "linux") -> bool:
        """Return whether its wheel for `platform` has GPU code."""
        return self.gpu if platform == "linux" else bool(self.windows_gpu)

    def pythons(self, platform: Platform = "linux") -> tuple[str, ...]:
        """Return the versions of Python with a wheel for `platform`, oldest first."""
        return self.linux_pythons if platform == "linux" else self.windows_pythons


@dataclass(frozen=True, slots=True)
class Nearest:
    """The release that represents a requested version, which may not be in the table itself."""

    release: Release
    is_exact: bool
    """Whether the release has exactly the requested version."""
    is_extrapolated: bool
    """Whether the requested version is newer than the table, so that its installed files are a better source."""
    reason: str
    """A clause that explains the choice; empty if the release has exactly the requested version."""


@dataclasses.dataclass(frozen=True)
class Releases:
    """All known releases."""

    as_of: str
    releases: tuple[Release, ...] = field(metadata={"noun": "release"})
    """Sorted by version, then package; oldest first."""

    @cached_property
    def releases_by_version(self) -> dict[str, tuple[Release, ...]]:
        """The releases of each version, one for each package."""
        table: dict[str, list[Release]] = {}
        for release in self.releases:
            table.setdefault(release.version, []).append(release)
        return {version: tuple(group) for version, group in table.items()}

    @cached_property
    def newest(self) -> Release:
        """The newest final release."""
        return next(release for release in reversed(self.releases) if not release.is_prerelease)

    def find_release(self, version: str, package: str | None = None) -> Release | None:
        """Return the release of a version; None if it is not known.

        If `package` is None, a release with GPU code is preferred, then `tensorflow`.
        """
        candidates = self.releases_by_version.get(version) or self.releases_by_version.get(
            _canonicalize(version), ()
        )
        candidates = tuple(release for release in candidates if package in (None, release.package))
        for release in candidates:
            if release.gpu:
                return release
        return candidates[0] if candidates else None

    def find_nearest(self, version: str, package: str | None = None) -> Nearest:
        """Return the release that is most similar to a nightly, a vendor's build or a newer version.

        For a vendor's build this is the release that it is based on, if that is known. Otherwise the first match counts:

        1. the newest release of the same minor that is not newer than `version`;
        2. the oldest release of the same minor;
        3. the newest release that is not newer than `version`;
        4. the oldest release of all.

        If `package` has releases, only those are considered. Raise versions.VersionSyntaxError if `version` is invalid.
        """
        match = self.find_release(version, package)
        if match is not None:
            return Nearest(match, is_exact=True, is_extrapolated=False, reason="")
        parsed = versions.parse(version)
        base_release = self.find_release(parsed.base_version, package) if parsed.local else None
        if base_release is not None:
            reason = f"{version} is a build of {base_release.version} by somebody else: its own files decide"
            return Nearest(base_release, is_exact=False, is_extrapolated=False, reason=reason)
        candidates = self.releases
        if package is not None:
            candidates = tuple(release for release in candidates if release.package == package) or candidates
        candidates = _choose_per_version(candidates)
        minor = parsed.release[:2]
        same_minor = [release for release in candidates if release.parsed.release[:2] == minor]
        not_newer = [release for release in same_minor or candidates if release.parsed <= parsed]
        release = not_newer[-1] if not_newer else (same_minor or candidates)[0]
        newest = candidates[-1]
        if parsed > newest.parsed:
            reason = f"{version} is newer than this table ({newest.version}, {self.as_of})"
            return Nearest(release, is_exact=False, is_extrapolated=True, reason=reason)
        reason = f"{version} is not in the table; {release.version} is its nearest neighbour"
        return Nearest(release, is_exact=False, is_extrapolated=False, reason=reason)

    def select(self, spec: str, package: str | None = None) -> tuple[Release, ...]:
        """Return the releases that the user selects with `spec` (see versions.VersionSpec), newest first.

        Raise versions.VersionSyntaxError if it is not a specification, and UnknownReleaseError if no release matches.
        """
        parsed_spec = versions.VersionSpec(spec)
        candidates = [release for release in self.releases if package in (None, release.package)]
        selected_versions = parsed_spec.select(release.version for release in candidates)
        if not selected_versions:
            raise UnknownReleaseError(spec, self.find_nearest_versions(spec))
        order = {version: index for index, version in enumerate(selected_versions)}
        selected = [release for release in candidates if release.version in order]
        return tuple(sorted(selected, key=lambda release: (order[release.version], release.package)))

    def find_nearest_versions(self, text: str, count: int = 3) -> tuple[str, ...]:
        """Return up to `count` final versions close to `text`, newest first, as suggestions for messages.

        Versions of the same minor are preferred. If the text is not a version, the newest are returned.
        """
        finals = [
            version for version in self.releases_by_version if not versions.parse(version).is_prerelease
        ]
        try:
            numbers = versions.parse_numbers(text.lstrip("<>=!~ "))
        except versions.VersionSyntaxError:
            return tuple(reversed(finals[-count:]))
        # The index at which `text` would be inserted, so that its neighbours are 0.5 away.
        position = sum(versions.parse_numbers(version) < numbers for version in finals)

        def compute_distance(index: int) -> tuple[bool, float]:
            is_same_minor = versions.parse_numbers(finals[index])[:2] == numbers[:2]
            return not is_same_minor, abs(index + 0.5 - position)

        nearest_indices = sorted(range(len(finals)), key=compute_distance)[:count]
        return tuple(finals[index] for index in sorted(nearest_indices, reverse=True))

    def list_for_python(
        self, python: str, platform: Platform = "linux", *, gpu: bool | None = True
    ) -> tuple[Release, ...]:
        """Return the final releases with a wheel for a Python version (`"3.10"`, `"3.10.13"`), newest first.

        `gpu` selects those with (True) or without (False) GPU code on the platform; None selects all.
        """
        minor = versions.major_minor(python)
        return tuple(
            release
            for release in reversed(self.releases)
            if not release.is_prerelease
            and not release.yanked
            and minor in release.pythons(platform)
            and (gpu is None or release.has_gpu(platform) is gpu)
        )


def find_code(release: Release, capability: str) -> Code:
    """Return the kind of code that the wheel has for a compute capability.

    native: a cubin of the same major and no higher minor; jit: only PTX, which the driver must compile; arch-specific:
    like jit, but some of the PTX is only for another architecture, so that some kernels fail; none: no code that it can
    run; unknown: not measured.
    """
    if not release.cubin and not release.ptx:
        return "unknown" if release.gpu else "none"
    target = versions.parse_capability(capability)
    if any(versions.can_run_cubin(target, versions.parse_capability(text)) for text in release.cubin):
        return "native"
    if any(versions.parse_capability(text) <= target for text in release.ptx):
        return "arch-specific" if release.ptx_arch_specific else "jit"
    return "none"


def _canonicalize(version: str) -> str:
    """Return the version in canonical form; unchanged if it is invalid."""
    try:
        return str(versions.parse(version))
    except versions.VersionSyntaxError:
        return version


def _choose_per_version(candidates: Iterable[Release]) -> tuple[Release, ...]:
    """Return the release with GPU code of each version, else its first release."""
    best: dict[str, Release] = {}
    for release in candidates:
        current = best.get(release.version)
        if current is None or (release.gpu and not current.gpu):
            best[release.version] = release
    return tuple(best.values())


SHARED_KEYS = (
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
"""The keys whose values are stored in the file's `shared` list. A row has the index in that list."""


def load_releases(folder: Path) -> Releases:
    """Load compat/tensorflow.json. Raise DataError if it is invalid."""
    return read_table(Releases, folder / "tensorflow.json", _expand_shared)


def _expand_shared(raw: dict[str, Any], location: str) -> None:
    """Replace indices by the values of the `shared` list. Raise DataError if an index is too large."""
    shared = raw.pop("shared", None)
    rows = raw.get("releases")
    if type(shared) is not list or type(rows) is not list:
        return  # `decode` reports the error
    shared = [as_texts(value) for value in shared]
    for row in rows:
        if type(row) is not dict:
            continue
        for key in SHARED_KEYS:
            index = row.get(key)
            if type(index) is int and 0 <= index < len(shared):
                row[key] = shared[index]
            elif type(index) is int:
                msg = (
                    f"{location}: release {row.get('package')} {row.get('version')}: "
                    f"`{key}` is {index}, but `shared` has only {len(shared)} entries"
                )
                raise DataError(msg)
