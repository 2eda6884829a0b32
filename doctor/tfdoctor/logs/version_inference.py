"""What a log tells of the TensorFlow that wrote it: its version, its era, its CUDA, its devices."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tfdoctor import versions
from tfdoctor.logs.libraries import is_driver, is_tensorrt, matters, stem_of
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.logs.sources import LogSources, Writer, identify_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.logs.events import Log

__all__ = ["LogOrigin", "RegisteredDevice", "card_memory", "devices", "origin"]


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """Which TensorFlow wrote a log."""

    version: str | None
    """"2.4.1", where the log says it or its lines are of this release alone; "2.4", where they are of several of its
    patches, or it has only one."""
    era: str | None
    """"2.4-2.11": the minor releases that the log can be of; one alone where only one can; None: unknown."""
    cuda: str | None
    """"11.2" or "11": from the names of the libraries."""
    release: Release | None
    """The row of compat/ for `version`, or for the newest release of the era where its lines or sonames decide."""
    sources: LogSources = field(default_factory=LogSources)
    """Whose source lines these are; several: TensorFlows of different releases wrote this log."""
    by: Literal["log", "lines", "early", "rest"] = "rest"
    """What `version` and `era` are known by: the log says it, the lines of its source, those and a date before the
    release that has them, or formats and libraries."""

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        if self.version is not None:
            return f"TensorFlow {self.version}"
        return f"TensorFlow ({self.era})" if self.era else "TensorFlow"


def origin(log: Log, compat: Compat) -> LogOrigin:
    """Return the version that the log states, else the releases that have its lines, else the era to which formats
    and sonames belong.
    """
    version = _find_stated_version(log)
    names = _sonames(log)
    sources = identify_sources(log, compat)
    low, high = _bounds(log)
    worded = _narrow_by_words(log, low, high) if sources.foreign is None else (low, high)
    if not sources.writers:
        low, high = worded
    rows = compat.gpu_releases
    dlls = _cuda_of_dlls(log)
    bounded = [row for row in rows if _is_within(row, low, high)]
    fitting = [row for row in bounded if _has_all(row, names)]
    fitting = _filter_by_python(fitting, log) or fitting
    cuda = _cuda(names, compat) or dlls
    lines = _match_lines(sources.writers, bounded)
    if version is not None and not _is_excluded(version, lines, compat):
        nearest = compat.nearest(version)
        minor = versions.major_minor(version)
        return LogOrigin(version, minor, cuda or nearest.release.cuda, nearest.release, sources, "log")
    if lines:
        lines = [row for row in lines if _is_within(row, *worded)] or lines
        also = [
            one for one in _list_unpublished(lines, sources.writers[0], compat) if _is_between(one, low, high)
        ]
        asks = {row.version for row in fitting}
        asking = [row for row in lines if row.version in asks and (dlls is None or _has_cuda(row, dlls))]
        return _infer_from_lines(lines, asking, also, cuda, sources, compat)
    built = _match_builds(sources.writers, rows)
    if built and all(_is_between(one, low, high) for one in built):
        alone = built[0] if len(built) == 1 else None
        return LogOrigin(alone, _range(built[0], built[-1]), cuda, None, sources, "lines")
    early = _infer_prerelease(sources.writers, bounded)
    if early is not None:
        number = _find_nightly_minor(sources.writers[0].date)
        late = early if _is_before_branch(early, sources.writers[0], compat) else number or _next(early, rows)
        first, late = sorted((early, late), key=versions.numbers)
        own = [row for row in rows if row.minor == early and row.version in sources.writers[0].releases]
        return LogOrigin(None, _range(first, late), cuda, own[-1], sources, "early")
    if sources.before is not None and _is_between(sources.before, low, high):
        return LogOrigin(None, sources.before, cuda, None, sources)
    if low == "" and not names:
        of_cuda = [row.minor for row in rows if _has_cuda(row, dlls)] if dlls is not None else []
        return LogOrigin(None, _range(of_cuda[0], of_cuda[-1]) if of_cuda else None, cuda, None, sources)
    if not fitting:
        return LogOrigin(None, _range(low, high), cuda, None, sources)
    near = [row for row in fitting if any(row.version in writer.releases for writer in sources.writers)]
    minors = [row.minor for row in fitting]
    if len(sources.writers) == 1 and near and _is_candidate_date(near, sources.writers[0].date):
        minors = [
            near[0].minor,
            _next(near[-1].minor, rows),
        ]  # what is built after a release has its lines, too
    if sources.foreign is not None and names:
        minors.append(_next(minors[-1], rows))  # a nightly asks for the libraries of the release before it
    if low and versions.compare(low, rows[0].minor) < 0 and minors[0] == rows[0].minor:
        minors[0] = low  # there are older ones, of which the table knows nothing
    newest = (near or fitting)[-1]
    known = {row.cuda for row in fitting}
    if cuda is None and len(known) == 1:
        cuda = newest.cuda
    return LogOrigin(None, _range(minors[0], minors[-1]), cuda, newest if names else None, sources)


def _match_lines(writers: Sequence[Writer], rows: Sequence[Release]) -> list[Release]:
    """Return the rows of the one release, or of the few, that have these lines.

    None if formats or the log's own dates are of another time: a nightly has most lines of the release that comes
    next, and wrote them before that was out.
    """
    if len(writers) != 1:
        return []
    out: dict[str, str] = {}
    for row in rows:
        out[row.minor] = min(row.released, out.get(row.minor, row.released))
    date = writers[0].date
    return [
        row
        for row in rows
        if row.version in writers[0].releases and (date is None or out[row.minor] <= _day_after(date))
    ]


def _infer_prerelease(writers: Sequence[Writer], rows: Sequence[Release]) -> str | None:
    """Return the one minor release that has these lines and came out soon after the log's date: a candidate of it
    wrote them, or a nightly, which has the number of the next.

    None if they are few: what is built between two releases has many lines of one of them.
    """
    if len(writers) != 1 or writers[0].date is None or len(writers[0].lines) < _MIN_MATCHING_LINES:
        return None
    having = [row for row in rows if row.version in writers[0].releases]
    if len({row.minor for row in having}) != 1:
        return None
    return having[0].minor if _is_candidate_date(having, writers[0].date) else None


def _is_candidate_date(rows: Sequence[Release], date: str | None) -> bool:
    """Return whether candidates of the first of these releases are out at this date, and it is not."""
    out = dt.date.fromisoformat(min(row.released for row in rows))
    try:
        ahead = (out - dt.date.fromisoformat(date or "")).days
    except ValueError:
        return False
    return 0 < ahead <= _CANDIDATES


def _match_builds(writers: Sequence[Writer], rows: Sequence[Release]) -> list[str]:
    """Return the minors of the builds that have these lines, where no release has them: candidates, those for AMD's
    cards.
    """
    if len(writers) != 1 or any(row.version in writers[0].releases for row in rows):
        return []
    return list(dict.fromkeys(versions.major_minor(one) for one in writers[0].releases))


def _is_before_branch(minor: str, writer: Writer, compat: Compat) -> bool:
    """Return whether this was written before the minor's first candidate was near: what was built then had its
    number.
    """
    first = min(
        (
            one.released
            for one in compat.source_lines.builds
            if "rc" in one.version and versions.major_minor(one.version) == minor
        ),
        default=None,
    )
    if first is None or writer.date is None:
        return False
    try:
        ahead = (dt.date.fromisoformat(first) - dt.date.fromisoformat(writer.date)).days
    except ValueError:
        return False
    return ahead > _BRANCH


def _find_nightly_minor(date: str | None) -> str | None:
    """Return the minor whose number what was built then had; None if that is not known."""
    rows = load_signatures().nightlies if date is not None else ()
    return next((row.minor for row in rows if row.first <= (date or "") <= row.last), None)


def _next(minor: str, rows: Sequence[Release]) -> str:
    """Return the minor release after this one; itself where it is the last."""
    return next((row.minor for row in rows if versions.compare(row.minor, minor) > 0), minor)


_MIN_MATCHING_LINES = 3
"""Different lines."""
_CANDIDATES = 60
"""Days before a release in which its candidates are out."""
_BRANCH = 21
"""Days before its first candidate from which on a nightly can have the number of the next release."""


def _day_after(date: str) -> str:
    """Clocks and time zones differ: `"2020-09-12"` of `"2020-09-11"`; the date itself where it is none."""
    try:
        return (dt.date.fromisoformat(date) + dt.timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return date


def _is_excluded(version: str, lines: Sequence[Release], compat: Compat) -> bool:
    """Return whether the lines are of other releases than the one that is stated somewhere: pip installs another one,
    too.
    """
    measured = version in compat.source_lines.releases
    return bool(lines) and measured and all(row.version != version for row in lines)


def _infer_from_lines(
    lines: Sequence[Release],
    fitting: Sequence[Release],
    also: Sequence[str],
    cuda: str | None,
    sources: LogSources,
    compat: Compat,
) -> LogOrigin:
    """Return `fitting`: those of `lines` that ask for the libraries of this log.

    None if somebody built it for another CUDA. `also`: minors of which a build has these lines that is not in the
    table.
    """
    chosen = fitting or lines
    minors = list(dict.fromkeys([*(row.minor for row in chosen), *also]))
    newest = chosen[-1]
    known = {row.cuda for row in fitting}
    if cuda is None and len(known) == 1:
        cuda = newest.cuda
    version = None
    if len(minors) == 1:
        patches = {
            row.version for row in compat.releases if row.minor == newest.minor and not row.is_prerelease
        }
        left = {row.version for row in chosen}
        version = newest.version if len(left) == 1 < len(patches) else newest.minor
    return LogOrigin(
        version, _range(minors[0], minors[-1]), cuda, newest if fitting else None, sources, "lines"
    )


def _list_unpublished(rows: Sequence[Release], writer: Writer, compat: Compat) -> list[str]:
    """Return the minors of the builds among its releases that nobody can measure any more, and that have these rows'
    lines.
    """
    return [
        versions.major_minor(one.version)
        for one in compat.source_lines.unpublished
        if one.like in {row.version for row in rows} and one.version in writer.releases
    ]


def _range(low: str, high: str) -> str | None:
    if not low and not high:
        return None
    return low if low == high else f"{low}-{high}" if high else f"{low}+"


def _find_stated_version(log: Log) -> str | None:
    for event in reversed(log.list_events("tf-version")):
        if versions.is_version(event.get("version")):
            return event.get("version")
    alone = [
        e.get("version") for e in log.list_events("tf-version-alone") if versions.is_version(e.get("version"))
    ]
    return alone[-1] if alone and len(set(alone)) == 1 else None


def _bounds(log: Log) -> tuple[str, str]:
    low, high = "", ""
    known = load_signatures()
    spans = [one.era for one in known.dated if one.era is not None and log.has(one.id)]
    for event in log.list_events("format-classic"):
        path = event.get("path").replace("\\", "/")
        place = next((one for one in known.places if one.part in path), None)
        if place is not None:
            spans.append(place.era)
    newest = ""
    for first, last in spans:
        if not first:  # it tells only in a log of which the beginning of the era is known
            newest = last
            continue
        if not low or versions.compare(first, low) > 0:
            low = first
        if last and (not high or versions.compare(last, high) < 0):
            high = last
    if low and newest and (not high or versions.compare(high, newest) > 0):
        high = newest
    if low and high and versions.compare(low, high) > 0:
        return low, ""
    return low, high


def _narrow_by_words(log: Log, low: str, high: str) -> tuple[str, str]:
    """Return the same bounds, narrowed by what the messages say.

    As they were where that contradicts itself or them.
    """
    lows, highs = [low] if low else [], [high] if high else []
    for event in log:
        for one in load_signatures().wordings:
            if one.text in event.text:
                lows += [one.era[0]] if one.era[0] else []
                highs += [one.era[1]] if one.era[1] else []
    first = max(lows, key=versions.numbers, default="")
    last = min(highs, key=versions.numbers, default="")
    if first and last and versions.compare(first, last) > 0:
        return low, high
    return first, last


def _is_within(row: Release, low: str, high: str) -> bool:
    return _is_between(row.minor, low, high)


def _is_between(minor: str, low: str, high: str) -> bool:
    return (not low or versions.compare(minor, low) >= 0) and (not high or versions.compare(minor, high) <= 0)


def _sonames(log: Log) -> list[str]:
    """Return names of Linux libraries that TensorFlow itself asked for."""
    names = {e.get("soname") for e in log.list_events("dso-opened", "dso-failed")}
    names |= {e.get("soname") for e in log.list_events("import-so") if not e.get("opened")}
    wanted = (
        name
        for name in names
        if re.search(r"\.so\.\d", name) and matters(name) and not is_driver(name) and not is_tensorrt(name)
    )
    return sorted(name for name in wanted if stem_of(name) in _REGISTRATION)


_REGISTRATION = frozenset(
    {"cudart", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "cudnn"}
)


def _has_all(row: Release, names: list[str]) -> bool:
    return all(name in row.required_libraries for name in names)


def _filter_by_python(rows: Sequence[Release], log: Log) -> list[Release]:
    """Return those that there are for the Python in whose folder a traceback shows TensorFlow.

    None if it shows several.
    """
    pythons = {
        f"{found[1]}.{found[2]}"
        for event in log.list_events("python-frame", "python-frame-shown")
        if (found := _PYTHON.search(event.get("path") or event.get("shown"))) is not None
    }
    if len(pythons) != 1:
        return []
    python = pythons.pop()
    return [row for row in rows if python in row.linux_pythons or python in row.windows_pythons]


_PYTHON = re.compile(r"[/\\]python([23])\.?(\d{1,2})[/\\]", re.IGNORECASE)
"""`/lib/python3.6/`, `\\Python37\\`."""


def _cuda(names: list[str], compat: Compat) -> str | None:
    """Return the CUDA of the runtime's soname; the others keep their names from one CUDA to the next."""
    found = [v for name in names if stem_of(name) == "cudart" for v in compat.cuda_of_soname(name)]
    return max(found, key=versions.numbers) if found else None


def _cuda_of_dlls(log: Log) -> str | None:
    """cudart64_100.dll is of CUDA 10.0; cudart64_110.dll of any 11.x."""
    for event in log.list_events("dso-opened", "dso-failed", "import-dll"):
        found = re.search(r"cudart(?:64|32)_(\d{2,3})\.dll", event.get("soname"))
        if found is not None:
            cuda = f"{found[1][:-1]}.{found[1][-1]}"
            return (
                cuda if versions.compare(cuda, "11.0") < 0 else versions.major_minor(cuda).partition(".")[0]
            )
    return None


def _has_cuda(row: Release, cuda: str) -> bool:
    """Return whether a release is of this CUDA, `"10.0"` or `"11"`."""
    return row.cuda is not None and (row.cuda == cuda or row.cuda.startswith(f"{cuda}."))


# ---------------------------------------------------------------- devices


@dataclass(frozen=True, slots=True)
class RegisteredDevice:
    """A GPU that TensorFlow registered."""

    index: int
    name: str
    compute_capability: str | None
    memory_mib: int | None
    """What TensorFlow took of its memory, not what the card has."""
    pci_bus_id: str | None


def devices(log: Log, compat: Compat) -> tuple[RegisteredDevice, ...]:
    """Return every registered GPU once, as it was registered last."""
    found: dict[tuple[int, str], RegisteredDevice] = {}
    for event in log.list_events("device-created"):
        index = int(event.get("slot"))
        memory = event.get("memory")
        capability = event.get("cc") or _capability(event.get("name"), compat)
        found[(index, event.get("pci"))] = RegisteredDevice(
            index, event.get("name"), capability, int(memory) if memory else None, event.get("pci") or None
        )
    return tuple(sorted(found.values(), key=lambda device: (device.index, device.pci_bus_id or "")))


def _capability(name: str, compat: Compat) -> str | None:
    match = compat.gpus_named(name) if name else None
    return match.capabilities[0] if match is not None and len(match.capabilities) == 1 else None


def card_memory(log: Log) -> float | None:
    """MiB of the smallest card that the log describes; None where it describes none."""
    sizes = []
    for event in log.list_events("device-memory"):
        factor = 1024.0 if event.get("unit") == "GiB" else 1.0
        sizes.append(float(event.get("size")) * factor)
    return min(sizes) if sizes else None
