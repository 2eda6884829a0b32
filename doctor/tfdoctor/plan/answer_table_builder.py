"""What `recommend` answers for every system, card, driver, Python and minor of TensorFlow, as a table to look up. Pure.

Each answer is the planner's own. It is asked once for all that has one answer: what neighbours have in common is kept
once, and only the names differ in it, for which it has places. Of a machine the planner is shown one that notes what it
is asked (`_Watched`): a driver is the same as another where no version lies between them that the planner asked for, a
glibc likewise, and a card where nothing of the cards was asked. The best of all releases is the best of those of the
minors.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tfdoctor import versions
from tfdoctor.compat.gpus import core_words
from tfdoctor.errors import UsageError
from tfdoctor.fit import (
    Card,
    Host,
    choose_preferred,
    find_driver_refusal,
    list_candidates,
    list_refusal_limits,
)
from tfdoctor.plan.answer_table import (
    ANY_CARD,
    NAME,
    OLDEST_BRANCH,
    Drivers,
    TableSystem,
    Verdicts,
    encode_runs,
    join_numbers,
    make_text,
)
from tfdoctor.plan.arguments import address_commands, find_named_card
from tfdoctor.plan.models import Recipe, Recommendation, Rejected, Request
from tfdoctor.plan.recipes import RECIPES, adapt_to_machine
from tfdoctor.plan.recommend import MAX_OPTIONS, merge_reasons, rank_options, way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tfdoctor.compat import Compat, Platform
    from tfdoctor.fit import Reason
    from tfdoctor.plan.answer_table import Answer, Numbers
    from tfdoctor.plan.models import Option

T = TypeVar("T")

__all__ = ["systems_of", "verdicts"]

MAX_REASONS = 4
"""Reasons that are kept of one answer, those that count most."""


def verdicts(
    compat: Compat,
    tell: Callable[[str], None] = lambda _: None,
    *,
    minors: Sequence[str] | None = None,
    capabilities: Sequence[str] | None = None,
) -> Verdicts:
    """Return the table; all of it takes seconds, and `tell` hears which minor is next.

    minors, capabilities: only these, in their order; None: all.
    """
    releases = list(list_candidates(compat))
    if minors is None:
        minors = tuple(dict.fromkeys(release.minor for release in releases))
    wheels = {one for release in releases for one in release.linux_pythons}
    pythons = tuple(sorted(wheels, key=versions.numbers))
    cards = _cards(compat)
    if capabilities is not None:
        cards = {capability: cards[capability] for capability in capabilities}
    table = Verdicts(systems_of(compat), cards, pythons, tuple(minors))
    filling = _Filling(compat, table)
    for minor in minors:
        tell(minor)
        own = {one for release in releases if release.minor == minor for one in release.linux_pythons}
        for python in ("", *pythons):
            filling.look(minor, python, has_wheel=not python or python in own)
    filling.rows()
    for system in table.systems if minors else ():
        for python in ("", *pythons):
            filling.best(system, python)
    return table


def systems_of(compat: Compat) -> tuple[TableSystem, ...]:
    """Return those that `recommend` tells apart: a glibc matters where it is older than what some release needs."""
    oldest, *_, newest = sorted(map(versions.numbers, _glibcs(compat)))
    ubuntu = {row.glibc: f" (Ubuntu {row.name})" for row in compat.pythons.systems}
    older = [f"{oldest[0]}.{minor}" for minor in range(newest[1] - 1, oldest[1] - 1, -1)]
    return (
        TableSystem(
            "linux", f"Linux, glibc {newest[0]}.{newest[1]} or newer", "linux", Host(), addressed=True
        ),
        TableSystem("wsl", "Windows, in WSL 2", "windows", Host(wsl=True)),
        TableSystem("windows", "Windows", "windows", Host(system="Windows", machine="AMD64")),
        TableSystem("macos", "macOS", "linux", Host(system="Darwin")),
        *(
            TableSystem(
                f"linux-{glibc}",
                f"Linux, glibc {glibc}{ubuntu.get(glibc, '')}",
                "linux",
                Host(glibc=glibc),
                addressed=True,
            )
            for glibc in older
        ),
    )


def _glibcs(compat: Compat) -> frozenset[str]:
    """Return those that a release or NVIDIA's wheels need."""
    needed = {row.glibc for row in list_candidates(compat)} | {row.glibc for row in compat.cudnn_ranges}
    return frozenset(one for one in needed if one is not None)


def _cards(compat: Compat) -> dict[str, tuple[str, ...]]:
    """Return the cards that a name alone tells apart, and that are not only in machines with an ARM processor.

    Of names that the tables take for one card (`GeForce RTX 3060`, `NVIDIA GeForce RTX 3060`) the shortest stands.
    """
    found: dict[str, dict[frozenset[str], str]] = {}
    for name in sorted({gpu.name for gpu in compat.gpus}, key=lambda one: (len(one), one)):
        try:
            card = find_named_card(compat, name)
        except UsageError:
            continue
        if not card.others and compat.arm64.kind_of(card.name, card.capability) is None:
            found.setdefault(card.capability, {}).setdefault(core_words(name), name)
    ordered = sorted(found, key=versions.parse_capability, reverse=True)
    return {capability: tuple(sorted(found[capability].values())) for capability in ordered}


_CARDS, _DRIVER = Host.__dict__["cards"], Host.__dict__["driver"]


class _WatchedHost(Host):
    """A machine that notes what is asked of it."""

    __slots__ = ("asked_cards", "asked_driver", "glibcs", "limits")

    asked_cards: bool
    asked_driver: bool
    limits: set[str]
    """The drivers that were asked for."""
    glibcs: set[str]

    @classmethod
    def watch(cls, host: Host, cards: tuple[Card, ...], driver: str | None) -> _WatchedHost:
        """Return the machine with these cards and this driver."""
        made = cls(
            cards=cards,
            driver=driver,
            system=host.system,
            machine=host.machine,
            glibc=host.glibc,
            wsl=host.wsl,
        )
        for name, value in (
            ("asked_cards", False),
            ("asked_driver", False),
            ("limits", set()),
            ("glibcs", set()),
        ):
            object.__setattr__(made, name, value)
        return made

    @property  # what is asked for a million times and not noted stays a plain slot
    def cards(self) -> tuple[Card, ...]:
        object.__setattr__(self, "asked_cards", True)
        found: tuple[Card, ...] = _CARDS.__get__(self)
        return found

    @property
    def driver(self) -> str | None:
        object.__setattr__(self, "asked_driver", True)
        found: str | None = _DRIVER.__get__(self)
        return found

    def reaches(self, driver: str) -> bool:
        self.limits.add(driver)
        return super().reaches(driver)

    def lacks_glibc(self, glibc: str) -> bool:
        self.glibcs.add(glibc)
        return super().lacks_glibc(glibc)


@dataclass(frozen=True, slots=True)
class _Way:
    """What one recipe makes of a minor, with places in its texts."""

    option: int
    """Its number; -1: none."""
    rejected: tuple[Rejected, ...]
    """Why there is none."""


@dataclass
class _Course:
    """The ways of one recipe, by driver."""

    unknown: int
    glibcs: set[str]
    starts: list[Numbers] = field(default_factory=list)
    """The versions from which on there is another way, the oldest first; empty: the driver was not asked."""
    ways: list[int] = field(default_factory=list)
    limits: list[frozenset[Numbers]] = field(default_factory=list)
    """For each of the starts: the drivers that were asked for."""
    every: list[int] = field(default_factory=list)
    """At every place of the platform's drivers, once these are known."""

    def get_answer(self, driver: Numbers) -> int:
        return self.ways[bisect_right(self.starts, driver) - 1] if self.starts else self.unknown


@dataclass(frozen=True, slots=True)
class _Driven:
    """Which drivers drive a card."""

    starts: list[Numbers]
    texts: list[int]
    """From each of the starts on: the text that says why not, or -1."""
    ranges: list[tuple[Numbers, Numbers | None]]
    """Where they do: from, to (None: open)."""

    def get_text(self, driver: Numbers) -> int:
        return self.texts[bisect_right(self.starts, driver) - 1]


ALL: Numbers = (0,)
"""Below every limit."""
_LAST = 10**6
"""Above every number in a version."""


def _example(start: Numbers) -> str:
    """Return a driver that is a little newer than this one, and that no text names."""
    return f"{join_numbers(start)}.00.001"


class _Filling:
    """Asks, and keeps each text, option, way and answer once."""

    def __init__(self, compat: Compat, table: Verdicts) -> None:
        self.compat, self.table = compat, table
        self._texts: dict[str, int] = {}
        self._options: dict[tuple[object, ...], int] = {}
        self._answers: dict[Answer, int] = {}
        self._known: list[Option] = []
        """An option for each of the table's: they rank alike."""
        self._ways: list[_Way] = []
        self._way_numbers: dict[tuple[object, ...], int] = {}
        self._of_ways: dict[tuple[int, ...], int] = {}
        self._courses: dict[tuple[str, str, str | None, Recipe, str], _Course] = {}
        self._placed: dict[tuple[str, str | None, str | None, str | None], str] = {}
        self._texts_of_cards: dict[tuple[Platform, str], list[int]] = {}
        self._glibcs = _glibcs(compat)
        self._of_glibc: dict[int, TableSystem] = {}
        """How many of these it has → the first system with as many."""
        self._rows: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._best_rows: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}
        self._best_answers: dict[tuple[int, ...], int] = {}
        self._wanted: list[tuple[str, str]] = []
        self._driven: dict[tuple[Platform, str], _Driven] = {}
        self._limits: dict[Platform, set[Numbers]] = {"linux": set(), "windows": set()}
        for platform in self._limits:
            for capability in ("", *table.cards):
                self._driven[platform, capability] = self._drives(platform, capability)

    # ------------------------------------------------------------ asking

    def look(self, minor: str, python: str, *, has_wheel: bool) -> None:
        """Ask for one minor and Python: all systems, cards and drivers."""
        for system in self.table.systems:
            unknown = [self._course(minor, python, "", system, recipe).unknown for recipe in RECIPES]
            of_image = any(self._ways[one].option >= 0 for one in unknown)
            if system.host.system == "Darwin" or not (has_wheel or of_image):
                answer = self._answer_of(tuple(unknown))
                self.table.cells[system.word, minor, python, ANY_CARD] = (answer, 1)
                continue
            for capability in self.table.cards:
                for recipe in RECIPES:
                    self._course(minor, python, capability, system, recipe)
        self._wanted.append((minor, python))

    def _course(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> _Course:
        """Return the ways of a recipe for each driver, asked for once for all systems and cards that have the same."""
        of_system = self._system_of(minor, python, capability, system, recipe)
        for of_card in (None, capability):  # None: whatever the card is
            known = self._courses.get((minor, python, of_card, recipe, of_system.word))
            if known is not None:
                return known
        made, whatever = self._explore(minor, python, capability, of_system, recipe)
        self._courses[minor, python, None if whatever else capability, recipe, of_system.word] = made
        return made

    def _system_of(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> TableSystem:
        """Return the first system that is the same for this recipe: an image brings its glibc, and of a new glibc
        there is enough.
        """
        first, wsl = self.table.systems[0], self.table.systems[1]
        if system.host.system == "Darwin":
            return system
        if recipe is not Recipe.VENV:
            return first if system.platform == "linux" else wsl
        glibc = system.host.glibc
        if glibc is None:
            return system
        asked = self._course(minor, python, capability, first, recipe).glibcs
        if all(versions.is_at_least(glibc, one) for one in asked):
            return first
        return self._of_glibc.setdefault(
            sum(versions.is_at_least(glibc, one) for one in self._glibcs), system
        )

    def _explore(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> tuple[_Course, bool]:
        """Return the ways of a recipe, and whether they are the same for every card."""
        unknown, seen = self._ask(minor, python, capability, system, recipe, None)
        course, whatever = _Course(unknown, set(seen.glibcs)), not seen.asked_cards
        if not seen.asked_driver:
            return course, whatever
        for first, end in self._driven[system.platform, capability].ranges:
            start: Numbers | None = first
            while start is not None and (end is None or start < end):
                found, seen = self._ask(minor, python, capability, system, recipe, _example(start))
                whatever = whatever and not seen.asked_cards
                course.glibcs |= seen.glibcs
                limits = {versions.numbers(one) for one in seen.limits}
                self._limits[system.platform] |= limits
                course.starts.append(start)
                course.ways.append(found)
                course.limits.append(frozenset(limits))
                start = min((one for one in limits if one > start), default=None)
        if not course.starts:  # no driver that is known drives it
            course.starts, course.ways, course.limits = [ALL], [unknown], [frozenset()]
        return course, whatever

    def _ask(
        self,
        minor: str,
        python: str,
        capability: str,
        system: TableSystem,
        recipe: Recipe,
        driver: str | None,
    ) -> tuple[int, _WatchedHost]:
        """Return what the planner makes of one machine, and the machine."""
        cards = (Card(NAME, capability),) if capability else ()
        host = _WatchedHost.watch(system.host, cards, driver)
        request = Request(tensorflow=minor or None, python=python or None)
        option, turned_down = way(self.compat, request, host, recipe)
        glibc = system.host.glibc

        def places(text: str) -> str:
            return self._places(text, capability or None, driver, glibc)

        rejected: tuple[Rejected, ...] = ()
        number = -1
        if option is None:
            rejected = tuple(
                Rejected(
                    one.recipe, one.tensorflow, tuple(_fill_reason(reason, places) for reason in one.reasons)
                )
                for one in turned_down
            )
        else:
            option = adapt_to_machine(self.compat, option, request, host)
            if system.addressed:
                answer = Recommendation(request, host, (option,), (), None)
                option = address_commands(answer, [NAME] if capability else [], driver).options[0]
            number = self._option(option, places)
        key = (number, *((one.tensorflow, *((r.cause, r.text) for r in one.reasons)) for one in rejected))
        return _number(self._way_numbers, self._ways, key, _Way(number, rejected)), host

    def _drives(self, platform: Platform, capability: str) -> _Driven:
        """Return which drivers drive a card."""
        known = {versions.numbers(one) for one in list_refusal_limits(self.compat, platform)} | {ALL}
        starts: list[Numbers] = []
        texts: list[int] = []
        for start in sorted(known) if capability else [ALL]:
            text = self._explain_not_driven(platform, capability, _example(start)) if capability else -1
            if not texts or texts[-1] != text:
                starts.append(start)
                texts.append(text)
        self._limits[platform] |= set(starts) - {ALL}
        ends = [*starts[1:], None]
        ranges = [(start, end) for start, text, end in zip(starts, texts, ends, strict=True) if text < 0]
        return _Driven(starts, texts, ranges)

    def _explain_not_driven(self, platform: Platform, capability: str, driver: str) -> int:
        why = (
            find_driver_refusal(self.compat, driver, Card(NAME, capability), platform) if capability else None
        )
        return -1 if why is None else self._text(self._places(why[1], capability, driver, None))

    # ------------------------------------------------------------ putting together

    def rows(self) -> None:
        """Fill the cells with what was asked for."""
        for platform, limits in self._limits.items():
            offered = {versions.numbers(one) for one in list_refusal_limits(self.compat, platform)}
            branches = {one[:count] for one in limits for count in range(1, max(2, len(one)))}
            branches |= {one[:1] for one in offered if one[0] >= OLDEST_BRANCH}
            steps = [(one, join_numbers(one)) for one in limits]
            steps += [((*one, _LAST), f"{join_numbers(one)}.*") for one in branches]
            self.table.drivers[platform] = Drivers(tuple(text for _, text in sorted(steps)))
        for minor, python in self._wanted:
            for system in self.table.systems:
                if (system.word, minor, python, ANY_CARD) in self.table.cells:
                    continue
                for capability in ("", *self.table.cards):
                    row = self._row(minor, python, capability, system)
                    self.table.cells[system.word, minor, python, capability] = row

    def _row(self, minor: str, python: str, capability: str, system: TableSystem) -> tuple[int, ...]:
        """Return the answers for each driver, and for an unknown one."""
        courses = [self._course(minor, python, capability, system, recipe) for recipe in RECIPES]
        key = (system.platform, capability, *map(id, courses))
        if key not in self._rows:
            for course, recipe in zip(courses, RECIPES, strict=True):
                if course.starts and not course.every:
                    of_system = self._system_of(minor, python, capability, system, recipe)
                    self._spread(course, minor, python, capability, of_system, recipe)
            places = self.table.drivers[system.platform].places
            each = [course.every or [course.unknown] * places for course in courses]
            found = []
            for text, *ways in zip(self._undriven(system.platform, capability), *each, strict=True):
                found.append(self._answer(((), (text,), -1)) if text >= 0 else self._answer_of(tuple(ways)))
            self._rows[key] = encode_runs(found)
        return self._rows[key]

    def _spread(
        self, course: _Course, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> None:
        """The ways of a course at every place of the platform's drivers."""
        undriven = self._undriven(system.platform, capability)
        course.every = [course.get_answer(ALL)]
        for text, step in zip(undriven[1:], self.table.drivers[system.platform].steps, strict=False):
            if not step.endswith(".*"):
                course.every.append(course.get_answer(versions.numbers(step)))
                continue
            branch = step.removesuffix(".*")
            newest = (*versions.numbers(branch), _LAST)
            place = bisect_right(course.starts, newest) - 1
            asked = place < 0 or any(one[: len(newest) - 1] == newest[:-1] for one in course.limits[place])
            if text >= 0 or not (asked or self._driven[system.platform, capability].get_text(newest) >= 0):
                course.every.append(course.get_answer(newest))
            else:
                course.every.append(self._ask(minor, python, capability, system, recipe, branch)[0])
        course.every.append(course.unknown)

    def _undriven(self, platform: Platform, capability: str) -> list[int]:
        """At every place of the platform's drivers: the text that says why it does not drive the card, or -1."""
        if (platform, capability) not in self._texts_of_cards:
            driven = self._driven[platform, capability]
            self._texts_of_cards[platform, capability] = [
                driven.get_text(ALL),
                *(
                    self._explain_not_driven(platform, capability, step.removesuffix(".*"))
                    if step.endswith(".*")
                    else driven.get_text(versions.numbers(step))
                    for step in self.table.drivers[platform].steps
                ),
                -1,
            ]
        return self._texts_of_cards[platform, capability]

    def best(self, system: TableSystem, python: str) -> None:
        """Fill the cells of the best of all minors; where there is none, they say why the newest that has a wheel is
        none."""
        table = self.table
        having = [
            minor for minor in table.minors if (system.word, minor, python, ANY_CARD) not in table.cells
        ]
        if not having:  # what the newest says
            alone = table.cells[system.word, table.minors[0], python, ANY_CARD]
            table.cells[system.word, "", python, ANY_CARD] = alone
            return
        for capability in ("", *table.cards):
            rows = tuple(table.cells[system.word, minor, python, capability] for minor in having)
            if rows not in self._best_rows:
                self._best_rows[rows] = self._best_row(rows)
            table.cells[system.word, "", python, capability] = self._best_rows[rows]

    def _best_row(self, rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        expanded = [
            [answer for answer, times in zip(row[::2], row[1::2], strict=True) for _ in range(times)]
            for row in rows
        ]
        found = []
        for numbers in zip(*expanded, strict=True):
            if numbers not in self._best_answers:
                self._best_answers[numbers] = self._best_of([self.table.answers[one] for one in numbers])
            found.append(self._best_answers[numbers])
        return encode_runs(found)

    def _best_of(self, answers: list[Answer]) -> int:
        """Return the best of the minors' answers, the newest first."""
        each: dict[Recipe, list[int]] = {}
        for options, _, _ in answers:
            for number in options:
                each.setdefault(self._known[number].recipe, []).append(number)
        chosen = []
        for numbers in each.values():
            every = [self._known[number] for number in numbers]
            best = choose_preferred(every)
            chosen += [number for number in dict.fromkeys(numbers) if self._known[number] is best]
        found = self._rank(chosen)
        return self._answer((found, () if found else answers[0][1], -1))

    def _rank(self, options: Iterable[int]) -> tuple[int, ...]:
        """Return the numbers of options, best first."""
        numbers = {id(self._known[number]): number for number in options}
        best = rank_options(Request(), Host(), [self._known[number] for number in numbers.values()])
        return tuple(numbers[id(one)] for one in best[:MAX_OPTIONS])

    def _answer_of(self, ways: tuple[int, ...]) -> int:
        """Return the number of the answer that the recipes' ways are together."""
        if ways not in self._of_ways:
            every = [self._ways[one] for one in ways]
            options = self._rank(one.option for one in every if one.option >= 0)
            reasons: tuple[int, ...] = ()
            no_venv = -1
            if not options:
                told = merge_reasons(one for way in every for one in way.rejected)
                reasons = tuple(self._text(one.text) for one in told[:MAX_REASONS])
            else:
                venv = next(one for one, recipe in zip(every, RECIPES, strict=True) if recipe is Recipe.VENV)
                turned = next((one for one in venv.rejected if one.reasons), None)
                no_venv = -1 if turned is None else self._text(turned.reasons[0].text)
            self._of_ways[ways] = self._answer((options, reasons, no_venv))
        return self._of_ways[ways]

    def _option(self, option: Option, places: Callable[[str], str]) -> int:
        def texts(every: Iterable[str]) -> tuple[int, ...]:
            return tuple(self._text(places(one)) for one in every)

        row = (
            option.recipe.value,
            option.tensorflow,
            option.python,
            option.cuda,
            option.cudnn or "",
            self._text(option.base.image if option.base is not None else ""),
            -1 if option.size is None else option.size,
            texts(option.commands),
            texts(one.text for one in option.caveats if one.serious),
            texts(one.text for one in option.caveats if not one.serious),
        )
        number = _number(self._options, self.table.options, row, row)
        if number == len(self._known):
            self._known.append(option)
        return number

    def _places(self, text: str, capability: str | None, driver: str | None, glibc: str | None) -> str:
        key = (text, capability, driver, glibc)
        if key not in self._placed:
            self._placed[key] = make_text(text, capability, driver, glibc)
        return self._placed[key]

    def _text(self, text: str) -> int:
        return _number(self._texts, self.table.texts, text, text)

    def _answer(self, answer: Answer) -> int:
        return _number(self._answers, self.table.answers, answer, answer)


def _number(known: dict[T, int], kept: list[Any], key: T, value: Any) -> int:
    if key not in known:
        known[key] = len(kept)
        kept.append(value)
    return known[key]


def _fill_reason(reason: Reason, places: Callable[[str], str]) -> Reason:
    return replace(reason, text=places(reason.text))
