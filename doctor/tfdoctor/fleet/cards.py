"""Cards beside their twins, the same model on other hosts: missing, other, slower, faulty. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tfdoctor.findings import Severity
from tfdoctor.fleet.models import FleetFinding
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.fleet.aggregation import Profile

__all__ = ["card_findings", "tells_of"]

MAX_MINORITY_SHARE = 0.05
"""The share of a model's hosts up to which another number of cards is a fault and no other kind of host."""
PACE = {
    "lanes of PCI Express": "lanes of PCI Express in use",
    "highest clock": "highest clock",
    "power limit": "power limit",
}
"""Names of values whose smaller number makes a card slower → in words."""
FAULTS = {
    "uncorrected memory errors": "memory errors that could not be corrected",
    "the driver asks for": "the driver asks for a reset",
    "remapping of memory": "failed memory that could not be remapped",
    "memory to be retired": "memory that is to be retired at the next restart",
}
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?")


def card_findings(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    """In the order of their weight."""
    yield from _find_missing(profiles)
    yield from _faulty(profiles)
    yield from _slower(profiles)
    yield from _models(profiles)


def tells_of(name: str) -> bool:
    """Return whether the findings here tell a difference of this value: which cards there are, or how one is beside
    its twins.
    """
    return ": " not in name or name.endswith(tuple(f": {one}" for one in (*PACE, *FAULTS, "memory")))


def _model(one: Profile) -> str | None:
    """Return the model of most of its cards."""
    return Counter(one.cards).most_common(1)[0][0] if one.cards else None


def _find_missing(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    hosts: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in profiles:
        model = _model(one)
        if model is not None:
            hosts[model][one.cards.count(model)].extend(one.hosts)
    for model, counts in hosts.items():
        total = sum(map(len, counts.values()))
        usual = max(counts, key=lambda count: (len(counts[count]), count))
        for count, names in sorted(counts.items()):
            if count >= usual:
                continue
            few = len(names) <= max(1, MAX_MINORITY_SHARE * total) and len(counts[usual]) > len(names)
            what = f"{count} of this model, {model}; its {len(counts[usual]):,} twins have {usual}"
            yield FleetFinding(
                "card-missing" if few else "cards-differ",
                Severity.ERROR if few else Severity.WARNING,
                tuple(sorted(names)),
                f"A card is missing: {len(names):,} host{'s have' if len(names) > 1 else ' has'} {what}."
                if few
                else f"{len(names):,} hosts have {count} × {model}, and {len(counts[usual]):,} have {usual}.",
                "`lspci -d 10de:` and the kernel's log there say whether it fell off the bus." if few else "",
            )


def _models(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    hosts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in profiles:
        model = _model(one)
        if model is not None:
            hosts[model, _memory(one)].extend(one.hosts)
    if len(hosts) < 2:
        return
    by_size = sorted(hosts.items(), key=lambda item: -len(item[1]))
    told = join_words(
        [
            f"{model}{f' ({memory})' if memory else ''} on {len(names):,}"
            for (model, memory), names in by_size[:6]
        ]
    )
    yield FleetFinding(
        "cards-differ",
        Severity.INFO,
        tuple(sorted(name for _, names in by_size[1:] for name in names)),
        f"Not all hosts have the same cards: {told}. A job over all of them goes at the pace of the slowest.",
    )


def _memory(one: Profile) -> str:
    found = {
        value for (area, name), value in one.values.items() if area == "cards" and name.endswith(": memory")
    }
    return join_words(sorted(filter(None, found)))


def _slower(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    for ending, words in PACE.items():
        seen: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
        for one in profiles:
            model = _model(one)
            least = min(_numbers(one, ending), default=None)
            if model is not None and least is not None:
                seen[model][least].extend(one.hosts)
        for model, numbers in seen.items():
            usual = max(numbers, key=lambda number: (len(numbers[number]), number))
            slow = sorted(name for number, names in numbers.items() if number < usual for name in names)
            if not slow:
                continue
            least = min(numbers)
            yield FleetFinding(
                "card-slowed",
                Severity.WARNING,
                tuple(slow),
                f"{len(slow):,} host{'s have' if len(slow) > 1 else ' has'} a slower card than the twins: {words} "
                f"{least:g}, and {usual:g} on {len(numbers[usual]):,} hosts with {model}.",
                "nvidia-smi -q there shows the link, the clocks and the power limit of each card.",
            )


def _numbers(one: Profile, ending: str) -> Iterator[float]:
    for (area, name), value in one.values.items():
        if area == "cards" and value and name.endswith(f": {ending}"):
            found = _NUMBER.match(value)
            if found is not None:
                yield float(found.group())


def _faulty(profiles: Sequence[Profile]) -> Iterator[FleetFinding]:
    seen: dict[str, list[str]] = defaultdict(list)
    for one in profiles:
        told = {
            words
            for (_, name), value in one.values.items()
            for end, words in FAULTS.items()
            if value and name.endswith(f": {end}")
        }
        log = one.values.get(("kernel", "faults in the kernel's log"))
        if log and log != "not known":
            told.add(f"faults in the kernel's log ({log})")
        for words in told:
            seen[words].extend(one.hosts)
    for words, names in seen.items():
        yield FleetFinding(
            "card-faults",
            Severity.WARNING,
            tuple(sorted(names)),
            f"{len(names):,} host{'s' * (len(names) > 1)} with {words}.",
            "Run the check there: it names the card.",
        )
