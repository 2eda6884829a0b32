"""Infer the TensorFlow that wrote a log: its version, era, CUDA and devices.

An era is the range of minor releases that can have written a log.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tfdoctor.core import versions
from tfdoctor.logs.libraries import is_driver_library, is_gpu_library, is_tensorrt_library, strip_library_name
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.logs.sources import LogSources, Writer, identify_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.logs.events import Log

__all__ = ["LogOrigin", "RegisteredDevice", "find_gpu_memory", "infer_origin", "list_devices"]

_MIN_MATCHING_LINES = 3
"""The number of different source lines that identify a pre-release."""
_MAX_CANDIDATE_DAYS = 60
"""The number of days before a release in which its candidates are published."""
_BRANCH_DAYS = 21
"""The number of days before the first candidate in which nightlies may already have the next number."""
_VERSIONED_LIBRARIES = frozenset(
    {"cudart", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "cudnn"}
)
"""Libraries whose versions identify a release."""
_PYTHON_FOLDER = re.compile(r"[/\\]python([23])\.?(\d{1,2})[/\\]", re.IGNORECASE)
"""A folder with a Python version, such as `/lib/python3.6/` or `\\Python37\\`."""


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """The TensorFlow that wrote a log."""

    version: str | None
    """The version that the log states, or whose source lines it has, such as "2.4.1", or None if unknown.

    It is only the minor release, such as "2.4", if the lines belong to several of its patch releases, or if it has only
    one.
    """
    era: str | None
    """The minor releases that can have written the log, or None if unknown.

    "2.4-2.11" is a range, "2.4" a single release, "2.4+" has no upper bound and "-2.11" no lower bound.
    """
    cuda_version: str | None
    """The CUDA version in the library names, such as "11.2" or "11", or None if unknown."""
    release: Release | None
    """The release in compat/ for `version`, or else the newest release of the era, or None if unknown."""
    sources: LogSources = field(default_factory=LogSources)
    """The result of looking up the source lines in the log. Several writers mean different releases."""
    basis: Literal["log", "lines", "early", "rest"] = "rest"
    """How `version` and `era` were determined.

    * "log": the log states the version.
    * "lines": from the source lines.
    * "early": from the source lines, but the log is older than the release that has them.
    * "rest": from the message formats and libraries.
    """

    @property
    def name(self) -> str:
        """The name for a sentence: "TensorFlow 2.4.1", "TensorFlow (2.4-2.11)" or "TensorFlow"."""
        if self.version is not None:
            return f"TensorFlow {self.version}"
        return f"TensorFlow ({self.era})" if self.era else "TensorFlow"


def infer_origin(log: Log, compat: Compat) -> LogOrigin:
    """Return the TensorFlow that wrote a log.

    The evidence is used in this order: the version that the log states, the releases that have its source lines,
    unpublished and early builds with these lines, and the era of its message formats and sonames.
    """
    version = _find_stated_version(log)
    sonames = _list_cuda_sonames(log)
    sources = identify_sources(log, compat)
    low, high = _find_bounds(log)
    narrowed_bounds = _narrow_by_wording(log, low, high) if sources.unmatched_line is None else (low, high)
    if not sources.writers:
        low, high = narrowed_bounds
    releases = compat.gpu_releases
    dll_cuda = _find_cuda_of_dlls(log)
    bounded = [release for release in releases if _is_within(release, low, high)]
    matching = [release for release in bounded if _requires_all(release, sonames)]
    matching = _filter_by_python(matching, log) or matching
    cuda = _find_cuda(sonames, compat) or dll_cuda
    line_releases = _filter_by_source_lines(sources.writers, bounded)
    if version is not None and not _is_excluded(version, line_releases, compat):
        nearest = compat.find_nearest(version)
        minor = versions.major_minor(version)
        return LogOrigin(
            version=version,
            era=minor,
            cuda_version=cuda or nearest.release.cuda,
            release=nearest.release,
            sources=sources,
            basis="log",
        )
    if line_releases:
        line_releases = [
            release for release in line_releases if _is_within(release, *narrowed_bounds)
        ] or line_releases
        unpublished_minors = [
            minor_release
            for minor_release in _list_unpublished_minors(line_releases, sources.writers[0], compat)
            if _is_between(minor_release, low, high)
        ]
        matching_versions = {release.version for release in matching}
        matching_lines = [
            release
            for release in line_releases
            if release.version in matching_versions and (dll_cuda is None or _has_cuda(release, dll_cuda))
        ]
        return _infer_from_lines(line_releases, matching_lines, unpublished_minors, cuda, sources, compat)
    # another build than a release has these lines, such as a candidate or a ROCm build
    build_minors = _list_build_minors(sources.writers, releases)
    if build_minors and all(_is_between(minor_release, low, high) for minor_release in build_minors):
        only_build = build_minors[0] if len(build_minors) == 1 else None
        return LogOrigin(
            version=only_build,
            era=_format_range(build_minors[0], build_minors[-1]),
            cuda_version=cuda,
            release=None,
            sources=sources,
            basis="lines",
        )
    early_minor = _infer_prerelease_minor(sources.writers, bounded)
    if early_minor is not None:
        nightly_minor = _find_nightly_minor(sources.writers[0].last_date)
        late_minor = (
            early_minor
            if _is_before_branch(early_minor, sources.writers[0], compat)
            else nightly_minor or _find_next_minor(early_minor, releases)
        )
        first_minor, last_minor = sorted((early_minor, late_minor), key=versions.parse_numbers)
        early_releases = [
            release
            for release in releases
            if release.minor == early_minor and release.version in sources.writers[0].releases
        ]
        return LogOrigin(
            version=None,
            era=_format_range(first_minor, last_minor),
            cuda_version=cuda,
            release=early_releases[-1],
            sources=sources,
            basis="early",
        )
    if sources.next_minor is not None and _is_between(sources.next_minor, low, high):
        return LogOrigin(
            version=None, era=sources.next_minor, cuda_version=cuda, release=None, sources=sources
        )
    if low == "" and not sonames:  # only a Windows log can still show the CUDA version
        cuda_minors = (
            [release.minor for release in releases if _has_cuda(release, dll_cuda)]
            if dll_cuda is not None
            else []
        )
        era = _format_range(cuda_minors[0], cuda_minors[-1]) if cuda_minors else None
        return LogOrigin(version=None, era=era, cuda_version=cuda, release=None, sources=sources)
    if not matching:
        return LogOrigin(
            version=None, era=_format_range(low, high), cuda_version=cuda, release=None, sources=sources
        )
    line_matches = [
        release
        for release in matching
        if any(release.version in writer.releases for writer in sources.writers)
    ]
    minors = [release.minor for release in matching]
    if (
        len(sources.writers) == 1
        and line_matches
        and _is_candidate_date(line_matches, sources.writers[0].last_date)
    ):
        # the log is older than the release: a candidate of it wrote the log, or a nightly for the next one
        minors = [line_matches[0].minor, _find_next_minor(line_matches[-1].minor, releases)]
    if sources.unmatched_line is not None and sonames:
        # a nightly opens the libraries of the release before it
        minors.append(_find_next_minor(minors[-1], releases))
    if low and minors[0] == releases[0].minor:
        minors[0] = low  # the table has no releases older than its first
    newest = (line_matches or matching)[-1]
    cudas = {release.cuda for release in matching}
    if cuda is None and len(cudas) == 1:
        cuda = newest.cuda
    return LogOrigin(
        version=None,
        era=_format_range(minors[0], minors[-1]),
        cuda_version=cuda,
        release=newest if sonames else None,
        sources=sources,
    )


def _filter_by_source_lines(writers: Sequence[Writer], releases: Sequence[Release]) -> list[Release]:
    """Return the releases that have the source lines of the only writer.

    Minor releases that came out after the log was written are not included, because a nightly has most lines of the
    next release before that comes out. Return an empty list if several TensorFlows wrote the log.
    """
    if len(writers) != 1:
        return []
    first_dates: dict[str, str] = {}
    for release in releases:
        first_dates[release.minor] = min(
            release.release_date, first_dates.get(release.minor, release.release_date)
        )
    log_date = writers[0].last_date
    return [
        release
        for release in releases
        if release.version in writers[0].releases
        and (log_date is None or first_dates[release.minor] <= _add_day(log_date))
    ]


def _infer_prerelease_minor(writers: Sequence[Writer], releases: Sequence[Release]) -> str | None:
    """Return the minor release whose candidate or nightly wrote the log, or None if unknown.

    A candidate has the source lines of the next release and is older than that. The result is unknown if several
    minor releases match, or if there are fewer than _MIN_MATCHING_LINES lines, because a nightly between two releases
    shares many lines with one of them.
    """
    if (
        len(writers) != 1
        or writers[0].last_date is None
        or len(writers[0].source_lines) < _MIN_MATCHING_LINES
    ):
        return None
    matches = [release for release in releases if release.version in writers[0].releases]
    if len({release.minor for release in matches}) != 1:
        return None
    return matches[0].minor if _is_candidate_date(matches, writers[0].last_date) else None


def _is_candidate_date(releases: Sequence[Release], date: str | None) -> bool:
    """Return whether candidates of these releases existed at this date, but none of the releases.

    Return False if the date is not known.
    """
    released = dt.date.fromisoformat(min(release.release_date for release in releases))
    try:
        days_before = (released - dt.date.fromisoformat(date or "")).days
    except ValueError:
        return False
    return 0 < days_before <= _MAX_CANDIDATE_DAYS


def _list_build_minors(writers: Sequence[Writer], releases: Sequence[Release]) -> list[str]:
    """Return the minor releases of other builds with these lines, such as candidates or ROCm builds.

    Return an empty list if a release has the lines, or if several TensorFlows wrote the log.
    """
    if len(writers) != 1 or any(release.version in writers[0].releases for release in releases):
        return []
    return list(dict.fromkeys(versions.major_minor(build) for build in writers[0].releases))


def _is_before_branch(minor: str, writer: Writer, compat: Compat) -> bool:
    """Return whether the log is older than the release branch of this minor release.

    Before the branch, nightlies have its number. It is assumed to begin _BRANCH_DAYS before the first candidate.
    """
    first_candidate = min(
        (
            build.released
            for build in compat.source_lines.unpublished_builds
            if "rc" in build.version and versions.major_minor(build.version) == minor
        ),
        default=None,
    )
    if first_candidate is None or writer.last_date is None:
        return False
    try:
        days_before = (dt.date.fromisoformat(first_candidate) - dt.date.fromisoformat(writer.last_date)).days
    except ValueError:
        return False
    return days_before > _BRANCH_DAYS


def _find_nightly_minor(date: str | None) -> str | None:
    """Return the minor release whose number nightlies had at this date, or None if unknown."""
    nightlies = load_signatures().nightlies if date is not None else ()
    return next(
        (nightly.minor for nightly in nightlies if nightly.first_date <= (date or "") <= nightly.last_date),
        None,
    )


def _find_next_minor(minor: str, releases: Sequence[Release]) -> str:
    """Return the next minor release, or the same minor release if it is the last."""
    return next((release.minor for release in releases if versions.compare(release.minor, minor) > 0), minor)


def _add_day(date: str) -> str:
    """Return the day after a date, to allow for different clocks and time zones.

    Both are in the form "2020-09-11". A text that is not a date is returned unchanged.
    """
    try:
        return (dt.date.fromisoformat(date) + dt.timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return date


def _is_excluded(version: str, line_releases: Sequence[Release], compat: Compat) -> bool:
    """Return whether the source lines contradict the stated version.

    The stated version can belong to another TensorFlow, for example to one that pip just installed.
    """
    is_known = version in compat.source_lines.releases
    return bool(line_releases) and is_known and all(release.version != version for release in line_releases)


def _infer_from_lines(
    line_releases: Sequence[Release],
    matching: Sequence[Release],
    unpublished_minors: Sequence[str],
    cuda: str | None,
    sources: LogSources,
    compat: Compat,
) -> LogOrigin:
    """Return the origin of a log whose source lines belong to the releases in `line_releases`.

    `matching` are those of the releases that open the libraries in the log. It is empty if a build for another CUDA
    wrote the log. `unpublished_minors` are the minor releases of unpublished builds with the same lines.
    """
    candidates = matching or line_releases
    minors = list(dict.fromkeys([*(release.minor for release in candidates), *unpublished_minors]))
    newest = candidates[-1]
    cudas = {release.cuda for release in matching}
    if cuda is None and len(cudas) == 1:
        cuda = newest.cuda
    version = None
    if len(minors) == 1:
        patches = {
            release.version
            for release in compat.releases
            if release.minor == newest.minor and not release.is_prerelease
        }
        candidate_versions = {release.version for release in candidates}
        version = newest.version if len(candidate_versions) == 1 < len(patches) else newest.minor
    return LogOrigin(
        version=version,
        era=_format_range(minors[0], minors[-1]),
        cuda_version=cuda,
        release=newest if matching else None,
        sources=sources,
        basis="lines",
    )


def _list_unpublished_minors(releases: Sequence[Release], writer: Writer, compat: Compat) -> list[str]:
    """Return the minor releases of unpublished builds that have the same lines as these releases."""
    return [
        versions.major_minor(build.version)
        for build in compat.source_lines.unmeasured_builds
        if build.base_release in {release.version for release in releases}
        and build.version in writer.releases
    ]


def _format_range(low: str, high: str) -> str | None:
    """Return "2.4-2.11", "2.4", "2.4+" or "-2.11", or None if neither end is known."""
    if not low and not high:
        return None
    return low if low == high else f"{low}-{high}" if high else f"{low}+"


def _find_stated_version(log: Log) -> str | None:
    """Return the version that the log states, or None if it states none.

    The last explicit statement wins. Lines with only a version count only if all of them agree.
    """
    for event in reversed(log.list_events("tf-version")):
        if versions.is_version(event.get("version")):
            return event.get("version")
    bare_versions = [
        bare.get("version")
        for bare in log.list_events("tf-version-alone")
        if versions.is_version(bare.get("version"))
    ]
    return bare_versions[-1] if bare_versions and len(set(bare_versions)) == 1 else None


def _find_bounds(log: Log) -> tuple[str, str]:
    """Return the first and the last minor release with the message formats of the log. "" means no bound."""
    low, high = "", ""
    catalogue = load_signatures()
    spans = [
        signature.era
        for signature in catalogue.signatures_with_era
        if signature.era is not None and log.has(signature.id)
    ]
    for event in log.list_events("format-classic"):
        path = event.get("path").replace("\\", "/")
        folder = next((item for item in catalogue.source_folders if item.path_part in path), None)
        if folder is not None:
            spans.append(folder.era)
    upper_bound = ""
    for first, last in spans:
        if not first:  # an upper bound alone counts only if a lower bound is known, too
            upper_bound = last
            continue
        if not low or versions.compare(first, low) > 0:
            low = first
        if last and (not high or versions.compare(last, high) < 0):
            high = last
    if low and upper_bound and (not high or versions.compare(high, upper_bound) > 0):
        high = upper_bound
    if low and high and versions.compare(low, high) > 0:  # the bounds contradict each other
        return low, ""
    return low, high


def _narrow_by_wording(log: Log, low: str, high: str) -> tuple[str, str]:
    """Return the bounds, narrowed by texts that only some releases print.

    The bounds are returned unchanged if these texts contradict them or each other.
    """
    lows, highs = [low] if low else [], [high] if high else []
    for event in log:
        for wording in load_signatures().wordings:
            if wording.text in event.text:
                lows += [wording.era[0]] if wording.era[0] else []
                highs += [wording.era[1]] if wording.era[1] else []
    max_low = max(lows, key=versions.parse_numbers, default="")
    min_high = min(highs, key=versions.parse_numbers, default="")
    if max_low and min_high and versions.compare(max_low, min_high) > 0:
        return low, high
    return max_low, min_high


def _is_within(release: Release, low: str, high: str) -> bool:
    return _is_between(release.minor, low, high)


def _is_between(minor: str, low: str, high: str) -> bool:
    return (not low or versions.compare(minor, low) >= 0) and (not high or versions.compare(minor, high) <= 0)


def _list_cuda_sonames(log: Log) -> list[str]:
    """Return the sonames of the CUDA libraries that TensorFlow on Linux tried to open, sorted."""
    names = {event.get("soname") for event in log.list_events("dso-opened", "dso-failed")}
    names |= {event.get("soname") for event in log.list_events("import-so") if not event.get("opened")}
    needed = (
        name
        for name in names
        if re.search(r"\.so\.\d", name)
        and is_gpu_library(name)
        and not is_driver_library(name)
        and not is_tensorrt_library(name)
    )
    return sorted(name for name in needed if strip_library_name(name) in _VERSIONED_LIBRARIES)


def _requires_all(release: Release, names: list[str]) -> bool:
    return all(name in release.required_libraries for name in names)


def _filter_by_python(releases: Sequence[Release], log: Log) -> list[Release]:
    """Return the releases that support the Python version in the traceback paths.

    Return an empty list if the paths contain no Python version or several.
    """
    python_versions = {
        f"{match[1]}.{match[2]}"
        for event in log.list_events("python-frame", "python-frame-shown")
        if (match := _PYTHON_FOLDER.search(event.get("path") or event.get("shown"))) is not None
    }
    if len(python_versions) != 1:
        return []
    python_version = python_versions.pop()
    return [
        release
        for release in releases
        if python_version in release.linux_pythons or python_version in release.windows_pythons
    ]


def _find_cuda(names: list[str], compat: Compat) -> str | None:
    """Return the CUDA version that the soname of the CUDA runtime states, or None without a runtime.

    Other libraries are ignored, because they keep their sonames across CUDA versions.
    """
    cuda_versions = [
        version
        for name in names
        if strip_library_name(name) == "cudart"
        for version in compat.list_cuda_with_soname(name)
    ]
    return max(cuda_versions, key=versions.parse_numbers) if cuda_versions else None


def _find_cuda_of_dlls(log: Log) -> str | None:
    """Return the CUDA version of the runtime DLL: "10.0" for cudart64_100.dll, "11" for cudart64_110.dll.

    From CUDA 11 on, the name has only the major version. Return None if no DLL is named.
    """
    for event in log.list_events("dso-opened", "dso-failed", "import-dll"):
        match = re.search(r"cudart(?:64|32)_(\d{2,3})\.dll", event.get("soname"))
        if match is not None:
            cuda = f"{match[1][:-1]}.{match[1][-1]}"
            return (
                cuda if versions.compare(cuda, "11.0") < 0 else versions.major_minor(cuda).partition(".")[0]
            )
    return None


def _has_cuda(release: Release, cuda: str) -> bool:
    """Return whether a release was built for this CUDA version, such as "10.0" or "11"."""
    return release.cuda is not None and (release.cuda == cuda or release.cuda.startswith(f"{cuda}."))


# ---------------------------------------------------------------- devices


@dataclass(frozen=True, slots=True)
class RegisteredDevice:
    """A GPU that TensorFlow registered."""

    index: int
    name: str
    compute_capability: str | None
    memory_mib: int | None
    """The memory that TensorFlow reserved in MiB, which is not all memory of the GPU, or None if unknown."""
    pci_bus_id: str | None


def list_devices(log: Log, compat: Compat) -> tuple[RegisteredDevice, ...]:
    """Return every registered GPU once, as in its last registration, sorted by index."""
    devices_by_id: dict[tuple[int, str], RegisteredDevice] = {}
    for event in log.list_events("device-created"):
        index = int(event.get("slot"))
        memory = event.get("memory")
        capability = event.get("cc") or _find_capability(event.get("name"), compat)
        devices_by_id[(index, event.get("pci"))] = RegisteredDevice(
            index=index,
            name=event.get("name"),
            compute_capability=capability,
            memory_mib=int(memory) if memory else None,
            pci_bus_id=event.get("pci") or None,
        )
    return tuple(sorted(devices_by_id.values(), key=lambda device: (device.index, device.pci_bus_id or "")))


def _find_capability(name: str, compat: Compat) -> str | None:
    match = compat.find_gpus_by_name(name) if name else None
    return match.capabilities[0] if match is not None and len(match.capabilities) == 1 else None


def find_gpu_memory(log: Log) -> float | None:
    """Return the memory of the smallest GPU that the log describes, in MiB, or None if it describes none."""
    sizes = []
    for event in log.list_events("device-memory"):
        factor = 1024.0 if event.get("unit") == "GiB" else 1.0
        sizes.append(float(event.get("size")) * factor)
    return min(sizes) if sizes else None
