"""What `recommend` answers for every card, driver branch, Python and minor of TensorFlow, as a table to look up. Pure.

Each answer is the planner's own. What neighbours have in common is kept once: of a card and a driver only the names
differ in it, for which it has places. Some things are asked once for all that they decide: a driver that does not drive
the card, and a Python that no way to a minor has. Branches between two that have the same answer are taken to have it,
too: what a newer driver changes, a still newer one keeps. The best of all releases is the best of those of the minors.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from tfdoctor import versions
from tfdoctor.errors import UsageError
from tfdoctor.fit import Card, Host, candidates, preferred
from tfdoctor.fit.drivers import not_driven
from tfdoctor.plan.asked import addressed, named_card
from tfdoctor.plan.models import Recipe, Request
from tfdoctor.plan.recommend import ranked, recommend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from tfdoctor.compat import Compat
    from tfdoctor.plan.models import Option, Recommendation

T = TypeVar("T")
Answer: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], int]"

__all__ = ["ANY_CARD", "CAPABILITY", "DRIVER", "NAME", "QUOTED", "Verdicts", "verdicts"]

NAME, QUOTED, CAPABILITY, DRIVER = PLACES = ("\ue000", "\ue001", "\ue002", "\ue003")
"""What stands in an answer for the card's name, the same as a shell's word, its compute capability and the driver."""
ANY_CARD = "*"
"""Stands for every capability, where the card does not matter."""
MOST_REASONS = 4
"""Reasons that are kept of one answer, those that count most."""
OLDEST_BRANCH = 375
"""Branches before this one are older than what any release with GPU code needs."""


@dataclass
class Verdicts:
    """The table. `answer` looks up; whoever writes it elsewhere writes its parts."""

    cards: dict[str, tuple[str, ...]]
    """A compute capability → the cards' names that mean it and nothing else."""
    drivers: tuple[str, ...]
    """Branches, the oldest first."""
    pythons: tuple[str, ...]
    """The oldest first."""
    minors: tuple[str, ...]
    """The newest first."""
    texts: list[str] = field(default_factory=list)
    options: list[tuple[object, ...]] = field(default_factory=list)
    """(recipe, TensorFlow, Python, CUDA, cuDNN, image, bytes, commands, serious caveats, other caveats): the last three
    as numbers of `texts`, "" and -1 for what is not known."""
    answers: list[Answer] = field(default_factory=list)
    """(numbers of `options`, best first; of the `texts` that say why there is none; of the one that says why it is not
    in a virtual environment, or -1)."""
    cells: dict[tuple[str, str, str], tuple[int, ...]] = field(default_factory=dict)
    """(minor or "", Python or "", capability or "") → an answer for each of `drivers`, and the last for an unknown one.

    Where a minor has no wheel for a Python, there is one row of one answer for `ANY_CARD`.
    """
    undriven: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """A capability → for each of `drivers` the text that says why it does not drive such a card, or -1."""

    def answer(self, minor: str, python: str, capability: str, driver: str) -> int:
        """The number of an answer; "": any. Raises KeyError for what is not in the table."""
        alone = self.cells.get((minor, python, ANY_CARD))
        if alone is not None:
            return alone[0]
        return self.cells[minor, python, capability][self.drivers.index(driver) if driver else -1]


def verdicts(
    compat: Compat,
    tell: Callable[[str], None] = lambda _: None,
    *,
    minors: Sequence[str] | None = None,
    capabilities: Sequence[str] | None = None,
) -> Verdicts:
    """The table; all of it takes a minute, and `tell` hears which minor is next.

    minors, capabilities: only these, in their order; None: all.
    """
    releases = list(candidates(compat))
    if minors is None:
        minors = tuple(dict.fromkeys(release.minor for release in releases))
    wheels = {one for release in releases for one in release.linux_pythons}
    pythons = tuple(sorted(wheels, key=versions.numbers))
    branches = {versions.major(row.linux) for row in compat.cuda_releases if row.linux is not None}
    drivers = tuple(str(one) for one in sorted(branches) if one >= OLDEST_BRANCH)
    cards = _cards(compat)
    if capabilities is not None:
        cards = {capability: cards[capability] for capability in capabilities}
    table = Verdicts(cards, drivers, pythons, tuple(minors))
    filling = _Filling(compat, table)
    for capability in table.cards:
        table.undriven[capability] = filling.undriven(capability)
    for minor in minors:
        tell(minor)
        own = {one for release in releases if release.minor == minor for one in release.linux_pythons}
        for python in ("", *pythons):
            if python and python not in own:
                alone = filling.asked(minor, python, None, None)
                if not table.answers[alone][0]:  # else an image has it: then the card and the driver matter
                    table.cells[minor, python, ANY_CARD] = (alone,)
                    continue
            for capability in ("", *table.cards):
                table.cells[minor, python, capability] = filling.row(minor, python, capability)
    for python in ("", *pythons) if minors else ():
        for capability in ("", *table.cards):
            table.cells["", python, capability] = filling.best(python, capability)
    return table


def _cards(compat: Compat) -> dict[str, tuple[str, ...]]:
    """The cards that a name alone tells apart, and that are not only in machines with an ARM processor."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(gpu.name for gpu in compat.gpus):
        try:
            card = named_card(compat, name)
        except UsageError:
            continue
        if not card.others and compat.arm64.kind_of(card.name, card.capability) is None:
            found.setdefault(card.capability, []).append(card.name)
    ordered = sorted(found, key=versions.parse_capability, reverse=True)
    return {capability: tuple(sorted(found[capability])) for capability in ordered}


class _Filling:
    """Asks, and keeps each text, option and answer once."""

    def __init__(self, compat: Compat, table: Verdicts) -> None:
        self.compat, self.table = compat, table
        self._texts: dict[str, int] = {}
        self._options: dict[tuple[object, ...], int] = {}
        self._answers: dict[Answer, int] = {}
        self._known: list[Option] = []
        """An option for each of the table's: they rank alike."""
        self._numbers: dict[int, int] = {}
        """The identity of each of these → its number."""

    def best(self, python: str, capability: str) -> tuple[int, ...]:
        """The best of all minors, for each driver; where there is none, why the newest that has a wheel is none."""
        rows = [
            row
            for minor in self.table.minors
            for row in [self.table.cells.get((minor, python, capability))]
            if row is not None
        ]
        known: dict[tuple[int, ...], int] = {}
        found = []
        for place in range(len(self.table.drivers) + 1):
            numbers = tuple(row[place] for row in rows)
            if numbers not in known:
                known[numbers] = self._best_of(python, [self.table.answers[number] for number in numbers])
            found.append(known[numbers])
        return tuple(found)

    def _best_of(self, python: str, answers: list[Answer]) -> int:
        """The best of the minors' answers, the newest first."""
        each: dict[Recipe, list[Option]] = {}
        for options, _, _ in answers:
            for number in options:
                option = self._known[number]
                each.setdefault(option.recipe, []).append(option)
        chosen = [one for one in map(preferred, each.values()) if one is not None]
        best = ranked(Request(python=python or None), Host(), chosen)
        if not answers:  # no minor has this Python: what the newest says of it
            answers = [self.table.answers[self.table.cells[self.table.minors[0], python, ANY_CARD][0]]]
        numbers = tuple(self._numbers[id(one)] for one in best)
        return self._answer((numbers, () if numbers else answers[0][1], -1))

    def undriven(self, capability: str) -> tuple[int, ...]:
        found = []
        for driver in self.table.drivers:
            why = not_driven(self.compat, driver, Card(NAME, capability))
            found.append(-1 if why is None else self._text(_places(why[1], capability, driver)))
        return tuple(found)

    def row(self, minor: str, python: str, capability: str) -> tuple[int, ...]:
        """The answers for each driver that drives the card, and for an unknown one."""
        drivers = self.table.drivers
        undriven = self.table.undriven.get(capability, (-1,) * len(drivers))
        known: dict[int, int] = {}

        def at(place: int) -> int:
            if place not in known:
                known[place] = self.asked(minor, python, capability or None, drivers[place])
            return known[place]

        def between(low: int, high: int) -> None:
            if at(low) == at(high):
                known.update(dict.fromkeys(range(low, high), known[low]))
            elif high - low > 1:
                middle = (low + high) // 2
                between(low, middle)
                between(middle, high)

        driving = [place for place, text in enumerate(undriven) if text < 0]
        if driving:
            between(driving[0], driving[-1])
        for place, text in enumerate(undriven):
            if text >= 0:
                known[place] = self._answer(((), (text,), -1))
        unknown = self.asked(minor, python, capability or None, None)
        return (*(known[place] for place in range(len(drivers))), unknown)

    def asked(self, minor: str, python: str, capability: str | None, driver: str | None) -> int:
        """The number of the planner's answer."""
        cards = () if capability is None else (Card(NAME, capability),)
        request = Request(tensorflow=minor or None, python=python or None)
        host = Host(cards=cards, driver=driver)
        answer = recommend(self.compat, request, host, nearest=False)
        answer = addressed(answer, [NAME] if cards else [], driver)
        return self._kept(answer, capability, driver)

    def _kept(self, answer: Recommendation, capability: str | None, driver: str | None) -> int:
        def text(one: str) -> int:
            return self._text(_places(one, capability, driver))

        options = tuple(self._option(one, text) for one in answer.options)
        reasons: tuple[int, ...] = ()
        if answer.conflict is not None:
            reasons = tuple(text(one.text) for one in answer.conflict.reasons[:MOST_REASONS])
        no_venv = -1
        if options and not any(one.recipe is Recipe.VENV for one in answer.options):
            turned = next((one for one in answer.rejected if one.recipe is Recipe.VENV and one.reasons), None)
            no_venv = -1 if turned is None else text(turned.reasons[0].text)
        return self._answer((options, reasons, no_venv))

    def _option(self, option: Option, text: Callable[[str], int]) -> int:
        serious = tuple(text(one.text) for one in option.caveats if one.serious)
        others = tuple(text(one.text) for one in option.caveats if not one.serious)
        row = (
            option.recipe.value,
            option.tensorflow,
            option.python,
            option.cuda,
            option.cudnn or "",
            option.base.image if option.base is not None else "",
            -1 if option.size is None else option.size,
            tuple(map(text, option.commands)),
            serious,
            others,
        )
        number = _number(self._options, self.table.options, row)
        if number == len(self._known):
            self._known.append(option)
            self._numbers[id(option)] = number
        return number

    def _text(self, text: str) -> int:
        return _number(self._texts, self.table.texts, text)

    def _answer(self, answer: Answer) -> int:
        return _number(self._answers, self.table.answers, answer)


def _number(known: dict[T, int], kept: list[T], value: T) -> int:
    if value not in known:
        known[value] = len(kept)
        kept.append(value)
    return known[value]


_QUOTED = shlex.quote(NAME)


def _places(text: str, capability: str | None, driver: str | None) -> str:
    """The text with places for what was asked for: who puts that in again has the text as it was."""
    text = text.replace(_QUOTED, QUOTED)
    if capability is not None:
        text = re.sub(
            rf"(compute capability |--gpu ){re.escape(capability)}(?![.\d])", rf"\1{CAPABILITY}", text
        )
    if driver is not None:
        text = re.sub(rf"(?<![.\d]){re.escape(driver)}(?![.\d])", DRIVER, text)
    return text
