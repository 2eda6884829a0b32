"""Compare the GPUs of hosts, and find missing, different, slow and faulty ones."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Severity
from tfdoctor.core.text import join_words
from tfdoctor.extensions.fleet.models import FleetFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.extensions.fleet.aggregation import Profile

__all__ = ["find_card_problems", "is_covered_by_card_checks"]

MAX_MINORITY_SHARE = 0.05
"""The largest share of a model's hosts for which a smaller number of GPUs counts as a fault.

If more hosts have that number, they count as another kind of host.
"""
SPEED_VALUES = {
    "lanes of PCI Express": "lanes of PCI Express in use",
    "highest clock": "highest clock",
    "power limit": "power limit",
}
"""The values that make a GPU slower if they are smaller, with their names in sentences."""
FAULT_VALUES = {
    "uncorrected memory errors": "memory errors that could not be corrected",
    "the driver asks for": "the driver asks for a reset",
    "remapping of memory": "failed memory that could not be remapped",
    "memory to be retired": "memory that is to be retired at the next restart",
}
"""The values that exist only on a faulty GPU, with their descriptions in sentences."""
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?")


def find_card_problems(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    """Yield the findings about GPUs, the most important ones first."""
    yield from _find_missing_cards(profiles)
    yield from _find_faulty_cards(profiles)
    yield from _find_slower_cards(profiles)
    yield from _find_different_models(profiles)


def is_covered_by_card_checks(name: str) -> bool:
    """Return whether `find_card_problems` covers differences of the GPU value with this name.

    It covers the models of the GPUs, and the memory, speed and faults of each model. Only the values of one model have
    names with a colon.
    """
    return ": " not in name or name.endswith(
        tuple(f": {ending}" for ending in (*SPEED_VALUES, *FAULT_VALUES, "memory"))
    )


def _get_main_model(profile: Profile) -> str | None:
    """Return the most frequent GPU model of a profile; None if it has no GPUs."""
    return Counter(profile.cards).most_common(1)[0][0] if profile.cards else None


def _find_missing_cards(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    """Yield findings about hosts with fewer GPUs of a model than most hosts that have it."""
    hosts_by_model: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for profile in profiles:
        model = _get_main_model(profile)
        if model is not None:
            hosts_by_model[model][profile.cards.count(model)].extend(profile.hosts)
    for model, hosts_by_count in hosts_by_model.items():
        host_count = sum(map(len, hosts_by_count.values()))
        usual_count = max(hosts_by_count, key=lambda count: (len(hosts_by_count[count]), count))
        for count, names in sorted(hosts_by_count.items()):
            if count >= usual_count:
                continue
            usual_hosts = hosts_by_count[usual_count]
            # A single host is a minority in a small fleet, too.
            is_minority = len(names) <= max(1, MAX_MINORITY_SHARE * host_count) and len(usual_hosts) > len(
                names
            )
            description = f"{count} of this model, {model}; its {len(usual_hosts):,} twins have {usual_count}"
            yield FleetFinding(
                kind="card-missing" if is_minority else "cards-differ",
                severity=Severity.ERROR if is_minority else Severity.WARNING,
                hosts=tuple(sorted(names)),
                message=f"A card is missing: {len(names):,} host{'s have' if len(names) > 1 else ' has'} {description}."
                if is_minority
                else f"{len(names):,} hosts have {count} × {model}, and {len(usual_hosts):,} have {usual_count}.",
                remedy="`lspci -d 10de:` and the kernel's log there say whether it fell off the bus."
                if is_minority
                else "",
            )


def _find_different_models(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    """Yield a finding if hosts have different GPU models or memory sizes."""
    hosts_by_kind: dict[tuple[str, str], list[str]] = defaultdict(list)
    for profile in profiles:
        model = _get_main_model(profile)
        if model is not None:
            hosts_by_kind[model, _describe_memory(profile)].extend(profile.hosts)
    if len(hosts_by_kind) < 2:
        return
    by_size = sorted(hosts_by_kind.items(), key=lambda item: -len(item[1]))
    host_list = join_words(
        [
            f"{model}{f' ({memory})' if memory else ''} on {len(names):,}"
            for (model, memory), names in by_size[:6]
        ]
    )
    yield FleetFinding(
        kind="cards-differ",
        severity=Severity.INFO,
        hosts=tuple(sorted(name for _, names in by_size[1:] for name in names)),
        message=f"Not all hosts have the same cards: {host_list}. A job over all of them goes at the pace of the slowest.",
    )


def _describe_memory(profile: Profile) -> str:
    sizes = {
        value
        for (area, name), value in profile.values.items()
        if area == "cards" and name.endswith(": memory")
    }
    return join_words(sorted(filter(None, sizes)))


def _find_slower_cards(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    """Yield findings about GPUs with smaller `SPEED_VALUES` than most GPUs of their model have."""
    for ending, label in SPEED_VALUES.items():
        hosts_by_model: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
        for profile in profiles:
            model = _get_main_model(profile)
            lowest_on_host = min(_iter_numbers(profile, ending), default=None)
            if model is not None and lowest_on_host is not None:
                hosts_by_model[model][lowest_on_host].extend(profile.hosts)
        for model, hosts_by_number in hosts_by_model.items():
            usual = max(hosts_by_number, key=lambda number: (len(hosts_by_number[number]), number))
            slow_hosts = sorted(
                name for number, names in hosts_by_number.items() if number < usual for name in names
            )
            if not slow_hosts:
                continue
            lowest = min(hosts_by_number)
            yield FleetFinding(
                kind="card-slowed",
                severity=Severity.WARNING,
                hosts=tuple(slow_hosts),
                message=f"{len(slow_hosts):,} host{'s have' if len(slow_hosts) > 1 else ' has'} "
                f"a slower card than the twins: {label} "
                f"{lowest:g}, and {usual:g} on {len(hosts_by_number[usual]):,} hosts with {model}.",
                remedy="nvidia-smi -q there shows the link, the clocks and the power limit of each card.",
            )


def _iter_numbers(profile: Profile, ending: str) -> Iterator[float]:
    """Yield the leading number of each GPU value whose name ends with `ending`."""
    for (area, name), value in profile.values.items():
        if area == "cards" and value and name.endswith(f": {ending}"):
            match = _NUMBER.match(value)
            if match is not None:
                yield float(match.group())


def _find_faulty_cards(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    """Yield findings about GPUs with `FAULT_VALUES`, and about faults in the kernel's log."""
    hosts_by_fault: dict[str, list[str]] = defaultdict(list)
    for profile in profiles:
        faults = {
            description
            for (_, name), value in profile.values.items()
            for ending, description in FAULT_VALUES.items()
            if value and name.endswith(f": {ending}")
        }
        log = profile.values.get(("kernel", "faults in the kernel's log"))
        if log and log != "not known":  # the text of `read_result` for a value that could not be read
            faults.add(f"faults in the kernel's log ({log})")
        for description in faults:
            hosts_by_fault[description].extend(profile.hosts)
    for description, names in hosts_by_fault.items():
        yield FleetFinding(
            kind="card-faults",
            severity=Severity.WARNING,
            hosts=tuple(sorted(names)),
            message=f"{len(names):,} host{'s' * (len(names) > 1)} with {description}.",
            remedy="Run `tfdoctor check` on that host: it names the card.",
        )
