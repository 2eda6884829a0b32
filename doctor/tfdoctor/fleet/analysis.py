"""Gathered results → groups of equal hosts, what the odd ones have, and the answer in a sentence. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdoctor.findings import Severity
from tfdoctor.fleet.cards import card_findings, tells_of
from tfdoctor.fleet.models import Fleet, FleetFinding, FleetHost, Group
from tfdoctor.fleet.peers import peer_findings
from tfdoctor.report.diff.compare import find_differences
from tfdoctor.report.diff.flatten import AREAS, Entry
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.fleet.aggregation import Gathered, Profile
    from tfdoctor.fleet.models import State, Value

__all__ = ["evaluate_fleet", "join_hosts"]

SAME_EVERYWHERE = {
    ("TensorFlow", "TensorFlow"): "TensorFlow",
    ("packages", "nvidia-nccl-cu11"): "NCCL",
    ("packages", "nvidia-nccl-cu12"): "NCCL",
    ("packages", "nvidia-nccl-cu13"): "NCCL",
}
"""What all members of one job need in the same version."""
COMMON = (
    ("driver", ("driver", "NVIDIA driver")),
    ("TensorFlow", ("TensorFlow", "TensorFlow")),
    ("CUDA", ("TensorFlow", "built for CUDA")),
    ("Python", ("Python", "Python")),
    ("system", ("system", "distribution")),
)
NONE = "none"
"""What one side says where it does not have it at all."""
WEIGHTY = frozenset({"cards", "driver", "kernel", "TensorFlow", "Python", "CUDA libraries", "packages"})
"""Areas of which a difference is a warning: that host runs other code."""
CLOCK = 2.0
"""Seconds that a clock may be off: below it nothing that TensorFlow does is disturbed."""
KINDS, TOLD, LONG = 50, 4, 60
"""Findings of what differs; differences that one of them tells; characters of a value."""
NAMED = 3
"""Hosts that a sentence names."""
SILENT = {
    "lost": "could not be reached, or went away",
    "timeout": "did not answer in time",
    "failed": "gave no usable answer",
}


def evaluate_fleet(engine: str, found: Gathered, *, aside: int = 0) -> Fleet:
    """Return the answer. aside: files of the folder that are no results."""
    profiles = sorted(found.profiles.values(), key=lambda one: (-len(one.hosts), min(one.hosts)))
    groups = tuple(_groups(profiles))
    of_host = {name: group.number for group in groups for name in group.hosts}
    hosts = tuple(
        FleetHost(one.name, one.state, one.cause, one.seconds, of_host.get(one.name), one.why)
        for _, one in sorted(found.hosts.items())
    )
    cards = list(card_findings(profiles))
    findings = [
        *_silent(hosts),
        *_report_unused_gpus(groups),
        *peer_findings(found.peers, found.mute),
        *cards,
        *_versions(profiles),
        *_report_differences(groups, {name for one in cards for name in one.hosts}),
        *_report_duplicates(found),
        *_clocks(found),
    ]
    findings.sort(key=lambda one: -one.severity)
    return Fleet(
        engine,
        _summary(hosts, groups),
        hosts,
        groups,
        tuple(findings),
        _common(profiles[0]) if profiles else (),
        aside,
    )


def join_hosts(names: Sequence[str]) -> str:
    """Return "node001, node002 and 7 more"."""
    shown = list(names[:NAMED])
    more = len(names) - len(shown)
    return join_words([*shown, f"{more} more"] if more else shown)


def _hosts(count: int) -> str:
    return f"{count:,} host{'s' * (count != 1)}"


# ---------------------------------------------------------------- groups


def _groups(profiles: Sequence[Profile]) -> Iterator[Group]:
    for number, one in enumerate(profiles, 1):
        state: State = "ok" if one.usable else "found"
        differs = _differences(profiles[0], one)
        unknown = one.usable is None
        yield Group(number, tuple(sorted(one.hosts)), differs, state, one.cause, _cards(one), unknown)


def _differences(most: Profile, one: Profile) -> dict[Value, tuple[str, str]]:
    """Return what `one` has otherwise: (here, in the largest group), without what merely follows."""
    if one is most:
        return {}
    keys = [key for key in {**most.values, **one.values} if most.values.get(key) != one.values.get(key)]
    before, after = (
        {key: Entry(*key, side.values[key]) for key in keys if key in side.values} for side in (most, one)
    )
    return {key: (pair[1], pair[0]) for key, pair in find_differences(before, after)}


def _cards(one: Profile) -> str:
    return join_words([f"{count} × {model}" for model, count in Counter(one.cards).items()]) or "none"


def _common(most: Profile) -> tuple[tuple[str, str], ...]:
    told = [(word, most.values.get(key)) for word, key in COMMON]
    cudnn = next((v for (_, name), v in most.values.items() if name.startswith("nvidia-cudnn-cu")), None)
    nccl = next((v for (_, name), v in most.values.items() if name.startswith("nvidia-nccl-cu")), None)
    told[3:3] = [("cuDNN", cudnn), ("NCCL", nccl)]
    return (("cards", _cards(most)), *((word, value) for word, value in told if value))


# ---------------------------------------------------------------- findings


def _silent(hosts: Sequence[FleetHost]) -> Iterator[FleetFinding]:
    for state, words in SILENT.items():
        those = [one for one in hosts if one.state == state]
        if not those:
            continue
        whys = Counter(one.why for one in those if one.why)
        told = "; ".join(
            f"{why}{f' ({_hosts(count)})' if len(whys) > 1 else ''}" for why, count in whys.most_common(4)
        )
        yield FleetFinding(
            "answer-unusable" if state == "failed" else "host-silent",
            Severity.ERROR,
            tuple(one.name for one in those),
            f"{_hosts(len(those))} {words}{f': {told}' if told else ''}.",
            "Look at it there: its results are missing from everything below.",
        )


def _report_unused_gpus(groups: Sequence[Group]) -> Iterator[FleetFinding]:
    """Hosts on which TensorFlow will not use its GPUs, by cause."""
    causes: dict[tuple[str | None, bool], list[str]] = {}
    used = sum(len(group.hosts) for group in groups if group.state == "ok")
    for group in groups:
        if group.state != "ok":
            causes.setdefault((group.cause, group.unknown), []).extend(group.hosts)
    for (cause, unknown), those in causes.items():
        says = (
            "it could not be determined whether TensorFlow uses the GPUs"
            if unknown
            else ("TensorFlow will not use the GPUs")
        )
        beside = f"; on {_hosts(used)} it does" if used else ""
        yield FleetFinding(
            "gpu-unused",
            Severity.WARNING if unknown else Severity.ERROR,
            tuple(sorted(those)),
            f"{says}: {cause or 'inconclusive'}{beside}.",
            "Run the check there: it names the commands.",
        )


def _versions(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    """Yield versions that all members of one job need alike."""
    for what in dict.fromkeys(SAME_EVERYWHERE.values()):
        keys = [key for key, word in SAME_EVERYWHERE.items() if word == what]
        seen: dict[str, list[str]] = {}
        for one in profiles:
            for value in filter(None, (one.values.get(key) for key in keys)):
                seen.setdefault(value, []).extend(one.hosts)
        if len(seen) < 2:
            continue
        by_size = sorted(seen.items(), key=lambda item: -len(item[1]))
        told = join_words([f"{version} on {_hosts(len(names))}" for version, names in by_size[:6]])
        odd = sorted(name for _, names in by_size[1:] for name in names)
        yield FleetFinding(
            "versions-differ",
            Severity.WARNING,
            tuple(odd),
            f"{what} is not the same everywhere: {told}. tf.distribute over several hosts needs one version.",
            f"Install {what} {by_size[0][0]} there, or take these hosts out of the job.",
        )


def _report_differences(groups: Sequence[Group], named: set[str]) -> Iterator[FleetFinding]:
    """Yield what else few have otherwise than group 1; what the same hosts have, together.

    named: hosts of whose cards something was told already.
    """
    if len(groups) < 2:
        return
    seen: dict[tuple[Value, str, str], list[str]] = {}
    for group in groups[1:]:
        for key, (here, there) in group.differs.items():
            if key in SAME_EVERYWHERE:
                continue
            of_card = key[0] == "cards" and (NONE in (here, there) or tells_of(key[1]))
            if not (of_card and named.issuperset(group.hosts)):
                seen.setdefault((key, here, there), []).extend(group.hosts)
    together: dict[tuple[str, ...], list[tuple[Value, str, str]]] = {}
    for what, those in seen.items():
        together.setdefault(tuple(sorted(those)), []).append(what)
    kinds = sorted(together.items(), key=lambda item: (-_weight(item[1]), -len(item[0])))
    for names, whats in kinds[:KINDS]:
        whats.sort(key=lambda what: AREAS.index(what[0][0]) if what[0][0] in AREAS else len(AREAS))
        told = [_describe_difference(name, here, there) for (_, name), here, there in whats[:TOLD]]
        more = f"; and {len(whats) - TOLD} more" if len(whats) > TOLD else ""
        yield FleetFinding(
            "host-differs",
            _weight(whats),
            names,
            f"not as the {len(groups[0].hosts):,} of the largest kind: {'; '.join(told)}{more}.",
        )
    rest = sorted({name for names, _ in kinds[KINDS:] for name in names})
    if rest:
        message = f"{_hosts(len(rest))} more have something of their own that is not as in the largest kind."
        yield FleetFinding("host-differs", Severity.INFO, tuple(rest), message)


def _weight(whats: Sequence[tuple[Value, str, str]]) -> Severity:
    return Severity.WARNING if any(key[0] in WEIGHTY for key, _, _ in whats) else Severity.INFO


def _describe_difference(name: str, here: str, there: str) -> str:
    """Return one difference; of two lists, what is in one of them alone."""
    mine, theirs = here.split(", "), there.split(", ")
    if len(mine) > 1 and len(theirs) > 1:
        lost = [one for one in theirs if one not in mine]
        new = [one for one in mine if one not in theirs]
        parts = (("without ", lost), ("with ", new))
        return f"{name} {' and '.join(word + _short(', '.join(those)) for word, those in parts if those)}"
    return f"{name} {_short(here)}, elsewhere {_short(there)}"


def _short(value: str) -> str:
    return value if len(value) <= LONG else f"{value[:LONG].rstrip()} …"


def _report_duplicates(found: Gathered) -> Iterator[FleetFinding]:
    """Yield results that show the same card come from one machine."""
    shared: dict[tuple[str, ...], int] = {}
    for owners in found.owners.values():
        key = tuple(sorted(set(owners)))
        if len(key) > 1:
            shared[key] = shared.get(key, 0) + 1
    for names, count in list(shared.items())[:20]:
        yield FleetFinding(
            "same-card-twice",
            Severity.WARNING,
            names,
            f"{_hosts(len(names))} show the same {f'{count} cards' if count > 1 else 'card'}, by identifier: "
            "they are one machine, or one result was copied.",
            "Name each machine once.",
        )


def _clocks(found: Gathered) -> Iterator[FleetFinding]:
    """Clocks that were outside the time in which their host was asked."""
    off = {name: skew for name, skew in found.skews.items() if abs(skew) > CLOCK}
    if off:
        worst = max(off, key=lambda name: abs(off[name]))
        way = "ahead" if off[worst] > 0 else "behind"
        yield FleetFinding(
            "clock-skew",
            Severity.WARNING,
            tuple(sorted(off)),
            f"The clocks of {_hosts(len(off))} are wrong beside this machine's, by at least {abs(off[worst]):,.0f} s "
            f"({worst}: {way}).",
            "Set them: `timedatectl` shows whether time is synchronised.",
        )


def _summary(hosts: Sequence[FleetHost], groups: Sequence[Group]) -> str:
    states = Counter(one.state for one in hosts)
    answered = states["ok"] + states["found"]
    if not hosts:
        return "There is no result."
    first = (
        "1 host answered" if len(hosts) == answered == 1 else f"{answered:,} of {_hosts(len(hosts))} answered"
    )
    if not answered:
        return f"{first}."
    unknown = sum(len(one.hosts) for one in groups if one.unknown)
    if states["ok"] == answered:
        used = (
            "on all of them TensorFlow will use its GPUs" if answered > 1 else "TensorFlow will use its GPUs"
        )
    elif not states["ok"]:
        used = (
            "on none of them TensorFlow is known to use its GPUs"
            if unknown
            else "on none will TensorFlow use its GPUs"
        )
    else:
        used = (
            f"on {states['ok']:,} TensorFlow will use its GPUs, on {states['found'] - unknown:,} it will not"
        )
        used += f", of {unknown:,} it is not known" if unknown else ""
    alike = "all are alike" if len(groups) == 1 else f"there are {len(groups):,} kinds of hosts"
    return f"{first}; {used}; {alike}." if answered > 1 else f"{first}; {used}."
