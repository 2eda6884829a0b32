"""Evaluate a fleet: groups of equal hosts, their differences, findings, and a summary."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Severity
from tfdoctor.core.text import join_words
from tfdoctor.diagnosis.diff.compare import find_differences
from tfdoctor.diagnosis.diff.flatten import AREAS, Entry
from tfdoctor.extensions.fleet.cards import find_card_problems, is_covered_by_card_checks
from tfdoctor.extensions.fleet.models import Fleet, FleetFinding, FleetHost, HostGroup
from tfdoctor.extensions.fleet.peers import find_peer_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.extensions.fleet.aggregation import GatheredResults, Profile
    from tfdoctor.extensions.fleet.models import HostState, ValueKey

__all__ = ["evaluate_fleet", "format_host_names"]

UNIFORM_VALUES = {
    ("TensorFlow", "TensorFlow"): "TensorFlow",
    ("packages", "nvidia-nccl-cu11"): "NCCL",
    ("packages", "nvidia-nccl-cu12"): "NCCL",
    ("packages", "nvidia-nccl-cu13"): "NCCL",
}
"""The values that must be equal on all hosts of one job, each with the name of its software in sentences."""
COMMON_KEYS = (
    ("driver", ("driver", "NVIDIA driver")),
    ("TensorFlow", ("TensorFlow", "TensorFlow")),
    ("CUDA", ("TensorFlow", "built for CUDA")),
    ("Python", ("Python", "Python")),
    ("system", ("system", "distribution")),
)
"""The values of the largest group that are listed in the result, each with the name that is displayed."""
ABSENT = "none"
"""The value in a difference if something does not exist on one of the two hosts."""
WARNING_AREAS = frozenset({"cards", "driver", "kernel", "TensorFlow", "Python", "CUDA libraries", "packages"})
"""The areas in which a difference is a warning, because that host runs other code."""
MAX_SKEW_S = 2.0
"""The most seconds by which a clock may be wrong. TensorFlow tolerates that much."""
MAX_DIFFERENCES, MAX_LISTED, MAX_VALUE_CHARS = 50, 4, 60
"""The most findings about differences, the most differences that one finding lists, and the most characters of a value."""
MAX_DUPLICATES = 20
"""The most findings about hosts that list the same GPU."""
MAX_NAMED_HOSTS = 3
"""The most hosts that a sentence names."""
SILENT_STATES = {
    "lost": "could not be reached, or went away",
    "timeout": "did not answer in time",
    "failed": "gave no usable answer",
}
"""The states of hosts without a usable result, with their descriptions in sentences."""


def evaluate_fleet(engine: str, gathered: GatheredResults, *, ignored_file_count: int = 0) -> Fleet:
    """Evaluate the results. `ignored_file_count` is the number of files in the folder that are not results."""
    profiles = sorted(gathered.profiles.values(), key=lambda item: (-len(item.hosts), min(item.hosts)))
    groups = tuple(_make_groups(profiles))
    group_by_host = {name: group.number for group in groups for name in group.hosts}
    hosts = tuple(
        FleetHost(
            name=host.name,
            state=host.state,
            cause=host.cause,
            duration_s=host.duration_s,
            group_number=group_by_host.get(host.name),
            failure_reason=host.failure_reason,
            is_unknown=host.is_unknown,
        )
        for _, host in sorted(gathered.hosts.items())
    )
    card_findings = list(find_card_problems(profiles))
    findings = [
        *_find_silent_hosts(hosts),
        *_find_unused_gpus(groups),
        *find_peer_problems(gathered.peers_by_host, gathered.peer_failure_by_host),
        *card_findings,
        *_find_different_versions(profiles),
        *_find_different_hosts(groups, {name for item in card_findings for name in item.hosts}),
        *_find_duplicate_hosts(gathered),
        *_find_wrong_clocks(gathered),
    ]
    findings.sort(key=lambda item: -item.severity)
    return Fleet(
        engine=engine,
        summary=_summarize(hosts, groups),
        hosts=hosts,
        groups=groups,
        findings=tuple(findings),
        common_values=_list_common_values(profiles[0]) if profiles else (),
        ignored_file_count=ignored_file_count,
    )


def format_host_names(names: Sequence[str]) -> str:
    """Return the names in words, such as "node001, node002 and 7 more"."""
    first_names = list(names[:MAX_NAMED_HOSTS])
    other_count = len(names) - len(first_names)
    return join_words([*first_names, f"{other_count} more"] if other_count else first_names)


def _format_hosts(count: int) -> str:
    return f"{count:,} host{'s' * (count != 1)}"


# ---------------------------------------------------------------- groups


def _make_groups(profiles: Sequence[Profile]) -> Iterator[HostGroup]:
    for number, profile in enumerate(profiles, 1):
        state: HostState = "ok" if profile.usable else "found"
        yield HostGroup(
            number=number,
            hosts=tuple(sorted(profile.hosts)),
            differences=_find_differences(profiles[0], profile),
            state=state,
            cause=profile.cause,
            card_description=_describe_cards(profile),
            is_unknown=profile.usable is None,
        )


def _find_differences(largest: Profile, profile: Profile) -> dict[ValueKey, tuple[str, str]]:
    """Return the values that differ, as pairs (value of `profile`, value of `largest`).

    Differences that only follow from others are omitted.
    """
    if profile is largest:
        return {}
    keys = [
        key
        for key in {**largest.values, **profile.values}
        if largest.values.get(key) != profile.values.get(key)
    ]
    before, after = (
        {key: Entry(*key, compared.values[key]) for key in keys if key in compared.values}
        for compared in (largest, profile)
    )
    return {key: (value, largest_value) for key, (largest_value, value) in find_differences(before, after)}


def _describe_cards(profile: Profile) -> str:
    return join_words([f"{count} × {model}" for model, count in Counter(profile.cards).items()]) or "none"


def _list_common_values(largest: Profile) -> tuple[tuple[str, str], ...]:
    """Return (name, value) pairs that describe the hosts of the largest group."""
    values = [(name, largest.values.get(key)) for name, key in COMMON_KEYS]
    cudnn = next(
        (text for (_, package), text in largest.values.items() if package.startswith("nvidia-cudnn-cu")), None
    )
    nccl = next(
        (text for (_, package), text in largest.values.items() if package.startswith("nvidia-nccl-cu")), None
    )
    # Insert them behind the first three of COMMON_KEYS, so that they follow CUDA.
    values[3:3] = [("cuDNN", cudnn), ("NCCL", nccl)]
    return (("cards", _describe_cards(largest)), *((name, value) for name, value in values if value))


# ---------------------------------------------------------------- findings


def _find_silent_hosts(hosts: Sequence[FleetHost]) -> Iterator[FleetFinding]:
    """Yield one finding for each state of hosts without a usable result."""
    for state, description in SILENT_STATES.items():
        silent = [host for host in hosts if host.state == state]
        if not silent:
            continue
        reasons = Counter(host.failure_reason for host in silent if host.failure_reason)
        details = "; ".join(
            f"{reason}{f' ({_format_hosts(count)})' if len(reasons) > 1 else ''}"
            for reason, count in reasons.most_common(4)
        )
        yield FleetFinding(
            kind="answer-unusable" if state == "failed" else "host-silent",
            severity=Severity.ERROR,
            hosts=tuple(host.name for host in silent),
            message=f"{_format_hosts(len(silent))} {description}{f': {details}' if details else ''}.",
            remedy="Look at it there: its results are missing from everything below.",
        )


def _find_unused_gpus(groups: Sequence[HostGroup]) -> Iterator[FleetFinding]:
    """Yield one finding for each cause of unused GPUs, and for each cause if their use is unknown."""
    hosts_by_cause: dict[tuple[str | None, bool], list[str]] = {}
    used_count = sum(len(group.hosts) for group in groups if group.state == "ok")
    for group in groups:
        if group.state != "ok":
            hosts_by_cause.setdefault((group.cause, group.is_unknown), []).extend(group.hosts)
    for (cause, is_unknown), names in hosts_by_cause.items():
        statement = (
            "it could not be determined whether TensorFlow uses the GPUs"
            if is_unknown
            else ("TensorFlow will not use the GPUs")
        )
        used_note = f"; on {_format_hosts(used_count)} it does" if used_count else ""
        yield FleetFinding(
            kind="gpu-unused",
            severity=Severity.WARNING if is_unknown else Severity.ERROR,
            hosts=tuple(sorted(names)),
            message=f"{statement}: {cause or 'inconclusive'}{used_note}.",
            remedy="Run `tfdoctor check` on that host: it prints the commands.",
        )


def _find_different_versions(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    """Yield findings about software that differs between hosts, although a job needs one version."""
    for software in dict.fromkeys(UNIFORM_VALUES.values()):
        keys = [key for key, software_name in UNIFORM_VALUES.items() if software_name == software]
        hosts_by_version: dict[str, list[str]] = {}
        for profile in profiles:
            for value in filter(None, (profile.values.get(key) for key in keys)):
                hosts_by_version.setdefault(value, []).extend(profile.hosts)
        if len(hosts_by_version) < 2:
            continue
        by_size = sorted(hosts_by_version.items(), key=lambda item: -len(item[1]))
        most_frequent_version, _ = by_size[0]
        details = join_words([f"{version} on {_format_hosts(len(names))}" for version, names in by_size[:6]])
        other_hosts = sorted(name for _, names in by_size[1:] for name in names)
        yield FleetFinding(
            kind="versions-differ",
            severity=Severity.WARNING,
            hosts=tuple(other_hosts),
            message=f"{software} is not the same everywhere: {details}. tf.distribute over several hosts needs one version.",
            remedy=f"Install {software} {most_frequent_version} there, or take these hosts out of the job.",
        )


def _find_different_hosts(groups: Sequence[HostGroup], reported_hosts: set[str]) -> Iterator[FleetFinding]:
    """Yield the other differences of the smaller groups from group 1, one finding for each set of hosts.

    `reported_hosts` already have a finding about their GPUs.
    """
    if len(groups) < 2:
        return
    hosts_by_difference: dict[tuple[ValueKey, str, str], list[str]] = {}
    for group in groups[1:]:
        for key, (value, common) in group.differences.items():
            if key in UNIFORM_VALUES:
                continue
            is_gpu_value = key[0] == "cards" and (
                ABSENT in (value, common) or is_covered_by_card_checks(key[1])
            )
            if not (is_gpu_value and reported_hosts.issuperset(group.hosts)):
                hosts_by_difference.setdefault((key, value, common), []).extend(group.hosts)
    differences_by_hosts: dict[tuple[str, ...], list[tuple[ValueKey, str, str]]] = {}
    for entry, members in hosts_by_difference.items():
        differences_by_hosts.setdefault(tuple(sorted(members)), []).append(entry)
    sorted_differences = sorted(
        differences_by_hosts.items(), key=lambda item: (-_rate_severity(item[1]), -len(item[0]))
    )
    for names, entries in sorted_differences[:MAX_DIFFERENCES]:
        entries.sort(key=_get_area_index)
        descriptions = [
            _describe_difference(name, value, common) for (_, name), value, common in entries[:MAX_LISTED]
        ]
        more = f"; and {len(entries) - MAX_LISTED} more" if len(entries) > MAX_LISTED else ""
        yield FleetFinding(
            kind="host-differs",
            severity=_rate_severity(entries),
            hosts=names,
            message=f"differs from the largest group ({_format_hosts(len(groups[0].hosts))}): {'; '.join(descriptions)}{more}.",
        )
    remaining = sorted({name for names, _ in sorted_differences[MAX_DIFFERENCES:] for name in names})
    if remaining:
        message = f"{_format_hosts(len(remaining))} more differ from the largest group, each in its own way."
        yield FleetFinding(
            kind="host-differs", severity=Severity.INFO, hosts=tuple(remaining), message=message
        )


def _get_area_index(difference: tuple[ValueKey, str, str]) -> int:
    """Return the position of a difference's area in AREAS. Unknown areas come last."""
    (area, _), _, _ = difference
    return AREAS.index(area) if area in AREAS else len(AREAS)


def _rate_severity(entries: Sequence[tuple[ValueKey, str, str]]) -> Severity:
    return Severity.WARNING if any(key[0] in WARNING_AREAS for key, _, _ in entries) else Severity.INFO


def _describe_difference(name: str, value: str, common: str) -> str:
    """Describe one difference. For two lists, describe the items that only one of them contains."""
    items, largest_items = value.split(", "), common.split(", ")
    if len(items) > 1 and len(largest_items) > 1:
        missing = [item for item in largest_items if item not in items]
        added = [item for item in items if item not in largest_items]
        changes = (("without ", missing), ("with ", added))
        return (
            f"{name} {' and '.join(label + _shorten(', '.join(names)) for label, names in changes if names)}"
        )
    return f"{name} {_shorten(value)}, elsewhere {_shorten(common)}"


def _shorten(value: str) -> str:
    return value if len(value) <= MAX_VALUE_CHARS else f"{value[:MAX_VALUE_CHARS].rstrip()} …"


def _find_duplicate_hosts(gathered: GatheredResults) -> Iterator[FleetFinding]:
    """Yield findings about hosts that list the same GPU: they are one machine, or a result was copied."""
    gpu_count_by_hosts: dict[tuple[str, ...], int] = {}
    for owners in gathered.hosts_by_gpu_uuid.values():
        names = tuple(sorted(set(owners)))
        if len(names) > 1:
            gpu_count_by_hosts[names] = gpu_count_by_hosts.get(names, 0) + 1
    for names, count in list(gpu_count_by_hosts.items())[:MAX_DUPLICATES]:
        yield FleetFinding(
            kind="same-card-twice",
            severity=Severity.WARNING,
            hosts=names,
            message=f"{_format_hosts(len(names))} show the same {f'{count} cards' if count > 1 else 'card'}, by identifier: "
            "they are one machine, or one result was copied.",
            remedy="Name each machine once.",
        )


def _find_wrong_clocks(gathered: GatheredResults) -> Iterator[FleetFinding]:
    """Yield a finding about hosts whose clock differs from this machine's by more than `MAX_SKEW_S`."""
    wrong_skews = {name: skew for name, skew in gathered.clock_skews_s.items() if abs(skew) > MAX_SKEW_S}
    if wrong_skews:
        worst = max(wrong_skews, key=lambda name: abs(wrong_skews[name]))
        direction = "ahead" if wrong_skews[worst] > 0 else "behind"
        yield FleetFinding(
            kind="clock-skew",
            severity=Severity.WARNING,
            hosts=tuple(sorted(wrong_skews)),
            message=f"The clocks of {_format_hosts(len(wrong_skews))} differ from this machine's"
            f" by at least {abs(wrong_skews[worst]):,.0f} s "
            f"({worst}: {direction}).",
            remedy="Set them: `timedatectl` shows whether time is synchronised.",
        )


def _summarize(hosts: Sequence[FleetHost], groups: Sequence[HostGroup]) -> str:
    """Summarize the evaluation in one sentence."""
    states = Counter(item.state for item in hosts)
    answered_count = states["ok"] + states["found"]
    if not hosts:
        return "There is no result."
    answered_note = (
        "1 host answered"
        if len(hosts) == answered_count == 1
        else f"{answered_count:,} of {_format_hosts(len(hosts))} answered"
    )
    if not answered_count:
        return f"{answered_note}."
    unknown_count = sum(len(item.hosts) for item in groups if item.is_unknown)
    if states["ok"] == answered_count:
        usage = (
            "on all of them TensorFlow will use its GPUs"
            if answered_count > 1
            else "TensorFlow will use its GPUs"
        )
    elif not states["ok"]:
        usage = (
            "on none of them TensorFlow is known to use its GPUs"
            if unknown_count
            else "on none will TensorFlow use its GPUs"
        )
    else:
        usage = f"on {states['ok']:,} TensorFlow will use its GPUs, on {states['found'] - unknown_count:,} it will not"
        usage += f", of {unknown_count:,} it is not known" if unknown_count else ""
    kinds_note = "all are alike" if len(groups) == 1 else f"there are {len(groups):,} kinds of hosts"
    return f"{answered_note}; {usage}; {kinds_note}." if answered_count > 1 else f"{answered_note}; {usage}."
