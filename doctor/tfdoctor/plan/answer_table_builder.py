"""Build the answer table by running the planner for every combination of inputs.

Equivalent inputs share one call of the planner, and texts that differ only in a name share one text with
placeholders. To find out which inputs matter, the planner gets a host that records which attributes are read
(`_WatchedHost`):

* Two drivers are equivalent if the planner compared the driver with no version between them. The same holds for
  two glibc versions.
* All GPUs are equivalent if the planner did not read the GPUs.

If the request names no TensorFlow, the best option is the best of the options for the minors.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tfdoctor import versions
from tfdoctor.compat.gpus import extract_core_words
from tfdoctor.errors import UsageError
from tfdoctor.fit import (
    Host,
    HostGpu,
    choose_preferred,
    find_driver_refusal,
    list_candidates,
    list_refusal_limits,
)
from tfdoctor.plan.answer_table import (
    ANY_GPU,
    NAME_PLACEHOLDER,
    OLDEST_BRANCH,
    AnswerTable,
    DriverSteps,
    TableSystem,
    encode_runs,
    insert_text_placeholders,
    join_numbers,
)
from tfdoctor.plan.arguments import add_machine_arguments, parse_gpu
from tfdoctor.plan.models import Recipe, Recommendation, Rejected, Request
from tfdoctor.plan.recipes import RECIPES, adapt_to_machine
from tfdoctor.plan.recommend import MAX_OPTIONS, find_best_option, merge_reasons, rank_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tfdoctor.compat import Compat, Platform
    from tfdoctor.fit import Reason
    from tfdoctor.plan.answer_table import Answer, VersionNumbers
    from tfdoctor.plan.models import Option

T = TypeVar("T")

__all__ = ["build_answer_table", "list_systems"]

MAX_REASONS = 4
"""Limit for the reasons in an answer, of which the most important come first."""


def build_answer_table(
    compat: Compat,
    on_minor: Callable[[str], None] = lambda _: None,
    *,
    minors: Sequence[str] | None = None,
    capabilities: Sequence[str] | None = None,
) -> AnswerTable:
    """Return the answer table, which takes seconds to build.

    `on_minor` is called with each minor before its answers are computed. The table includes only the given
    `minors` and `capabilities`, in their order. None means all.
    """
    releases = list(list_candidates(compat))
    if minors is None:
        minors = tuple(dict.fromkeys(release.minor for release in releases))
    all_pythons = {version for release in releases for version in release.linux_pythons}
    pythons = tuple(sorted(all_pythons, key=versions.parse_numbers))
    cards = _find_cards(compat)
    if capabilities is not None:
        cards = {capability: cards[capability] for capability in capabilities}
    table = AnswerTable(list_systems(compat), cards, pythons, tuple(minors))
    builder = _TableBuilder(compat, table)
    for minor in minors:
        on_minor(minor)
        minor_pythons = {
            version for release in releases if release.minor == minor for version in release.linux_pythons
        }
        for python in ("", *pythons):
            builder.collect_answers(minor, python, has_wheel=not python or python in minor_pythons)
    builder.fill_cells()
    for system in table.systems if minors else ():
        for python in ("", *pythons):
            builder.fill_best_cells(system, python)
    return table


def list_systems(compat: Compat) -> tuple[TableSystem, ...]:
    """Return the systems that `recommend` distinguishes.

    Linux with a glibc that is too old for some release is a separate system for each such glibc.
    """
    oldest, *_, newest = sorted(map(versions.parse_numbers, _list_required_glibcs(compat)))
    ubuntu = {system.glibc: f" (Ubuntu {system.name})" for system in compat.pythons.systems}
    older = [f"{oldest[0]}.{minor}" for minor in range(newest[1] - 1, oldest[1] - 1, -1)]
    return (
        TableSystem(
            "linux", f"Linux, glibc {newest[0]}.{newest[1]} or newer", "linux", Host(), names_machine=True
        ),
        TableSystem("wsl", "Windows, in WSL 2", "windows", Host(is_wsl=True)),
        TableSystem("windows", "Windows", "windows", Host(system="Windows", machine="AMD64")),
        TableSystem("macos", "macOS", "linux", Host(system="Darwin")),
        *(
            TableSystem(
                f"linux-{glibc}",
                f"Linux, glibc {glibc}{ubuntu.get(glibc, '')}",
                "linux",
                Host(glibc=glibc),
                names_machine=True,
            )
            for glibc in older
        ),
    )


def _list_required_glibcs(compat: Compat) -> frozenset[str]:
    """Return the glibc versions that releases and NVIDIA's wheels require."""
    versions_needed = {entry.glibc for entry in list_candidates(compat)} | {
        entry.glibc for entry in compat.cudnn_ranges
    }
    return frozenset(glibc for glibc in versions_needed if glibc is not None)


def _find_cards(compat: Compat) -> dict[str, tuple[str, ...]]:
    """Return the unambiguous GPU names by compute capability, without GPUs that only ARM machines have.

    If several names mean the same GPU (`GeForce RTX 3060`, `NVIDIA GeForce RTX 3060`), the shortest is used.
    """
    names_by_capability: dict[str, dict[frozenset[str], str]] = {}
    for name in sorted({gpu.name for gpu in compat.gpus}, key=lambda text: (len(text), text)):
        try:
            card = parse_gpu(compat, name)
        except UsageError:
            continue
        if not card.other_capabilities and compat.arm64.find_kind(card.name, card.capability) is None:
            names_by_capability.setdefault(card.capability, {}).setdefault(extract_core_words(name), name)
    ordered = sorted(names_by_capability, key=versions.parse_capability, reverse=True)
    return {capability: tuple(sorted(names_by_capability[capability].values())) for capability in ordered}


# The slots of Host that properties of _WatchedHost hide.
_CARDS, _DRIVER = Host.__dict__["cards"], Host.__dict__["driver"]


class _WatchedHost(Host):
    """A host that records which of its attributes are read."""

    __slots__ = ("asked_cards", "asked_driver", "glibcs", "limits")

    asked_cards: bool
    """Whether the planner read the GPUs."""
    asked_driver: bool
    """Whether the planner read the driver."""
    limits: set[str]
    """The driver versions that the planner compared with."""
    glibcs: set[str]
    """The glibc versions that the planner compared with."""

    @classmethod
    def watch(cls, host: Host, cards: tuple[HostGpu, ...], driver: str | None) -> _WatchedHost:
        """Return a recording copy of `host` with these GPUs and this driver."""
        watched = cls(
            cards=cards,
            driver=driver,
            system=host.system,
            machine=host.machine,
            glibc=host.glibc,
            is_wsl=host.is_wsl,
        )
        for name, value in (
            ("asked_cards", False),
            ("asked_driver", False),
            ("limits", set()),
            ("glibcs", set()),
        ):
            object.__setattr__(watched, name, value)
        return watched

    @property  # attributes that are read very often stay plain, unrecorded slots
    def cards(self) -> tuple[HostGpu, ...]:
        object.__setattr__(self, "asked_cards", True)
        cards: tuple[HostGpu, ...] = _CARDS.__get__(self)
        return cards

    @property
    def driver(self) -> str | None:
        object.__setattr__(self, "asked_driver", True)
        driver: str | None = _DRIVER.__get__(self)
        return driver

    def has_driver_at_least(self, driver: str) -> bool:
        self.limits.add(driver)
        return super().has_driver_at_least(driver)

    def lacks_glibc(self, glibc: str) -> bool:
        self.glibcs.add(glibc)
        return super().lacks_glibc(glibc)


@dataclass(frozen=True, slots=True)
class _RecipeResult:
    """The result of one recipe for a minor, with placeholders in its texts."""

    option: int
    """The index of the option, or -1 if there is none."""
    rejected: tuple[Rejected, ...]
    """The rejected releases, if there is no option."""


@dataclass
class _RecipeAnswers:
    """The results of one recipe for each driver."""

    unknown: int
    """The result for an unknown driver."""
    glibcs: set[str]
    """The glibc versions that the planner compared with."""
    starts: list[VersionNumbers] = field(default_factory=list)
    """The driver versions at which the result changes, oldest first; empty if the driver was not read."""
    results: list[int] = field(default_factory=list)
    """The result for each start, which holds up to the next start."""
    limits: list[frozenset[VersionNumbers]] = field(default_factory=list)
    """The driver versions that the planner compared with, for each start."""
    results_by_driver: list[int] = field(default_factory=list)
    """The result for each index that `DriverSteps.find_index` returns; empty until the driver steps are known."""

    def get_answer(self, driver: VersionNumbers) -> int:
        return self.results[bisect_right(self.starts, driver) - 1] if self.starts else self.unknown


@dataclass(frozen=True, slots=True)
class _CardDrivers:
    """The drivers that support a GPU."""

    starts: list[VersionNumbers]
    """The driver versions at which the support changes, oldest first."""
    texts: list[int]
    """For each start, the index of the text that explains why the GPU is not supported, or -1 if it is."""
    ranges: list[tuple[VersionNumbers, VersionNumbers | None]]
    """(first version, excluded end) of each supported range; an end of None means no limit."""

    def get_text(self, driver: VersionNumbers) -> int:
        return self.texts[bisect_right(self.starts, driver) - 1]


LOWEST_VERSION: VersionNumbers = (0,)
"""A version below every real version."""
_MAX_NUMBER = 10**6
"""A number that is higher than every number in a version."""


def _make_example_driver(start: VersionNumbers) -> str:
    """Return a driver version slightly newer than `start` that cannot occur in a text by chance."""
    return f"{join_numbers(start)}.00.001"


class _TableBuilder:
    """A builder that runs the planner and deduplicates its texts, options, results and answers."""

    def __init__(self, compat: Compat, table: AnswerTable) -> None:
        self.compat, self.table = compat, table
        self._texts: dict[str, int] = {}
        self._options: dict[tuple[object, ...], int] = {}
        self._answers: dict[Answer, int] = {}
        self._added_options: list[Option] = []
        """One option for each entry of the table's options. Options with equal entries rank equally."""
        self._results: list[_RecipeResult] = []
        """The distinct results, to which all other attributes refer by index."""
        self._result_numbers: dict[tuple[object, ...], int] = {}
        self._combined_answers: dict[tuple[int, ...], int] = {}
        self._recipe_answers: dict[tuple[str, str, str | None, Recipe, str], _RecipeAnswers] = {}
        self._text_cache: dict[tuple[str, str | None, str | None, str | None], str] = {}
        self._refusal_texts: dict[tuple[Platform, str], list[int]] = {}
        self._required_glibcs = _list_required_glibcs(compat)
        self._system_by_glibc: dict[int, TableSystem] = {}
        """The first system that satisfies each count of the required glibc versions."""
        self._rows: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._best_rows: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}
        self._best_answers: dict[tuple[int, ...], int] = {}
        self._queries: list[tuple[str, str]] = []
        """The (minor, Python) pairs whose answers were collected."""
        self._card_drivers: dict[tuple[Platform, str], _CardDrivers] = {}
        self._limits: dict[Platform, set[VersionNumbers]] = {"linux": set(), "windows": set()}
        """The driver versions at which an answer can change, by platform."""
        for platform in self._limits:
            for capability in ("", *table.cards):
                self._card_drivers[platform, capability] = self._find_card_drivers(platform, capability)

    # ------------------------------------------------------------ running the planner

    def collect_answers(self, minor: str, python: str, *, has_wheel: bool) -> None:
        """Run the planner for one minor and Python on all systems, GPUs and drivers."""
        for system in self.table.systems:
            unknown = [
                self._get_recipe_answers(minor, python, "", system, recipe).unknown for recipe in RECIPES
            ]
            has_image = any(self._results[result].option >= 0 for result in unknown)
            if system.host.system == "Darwin" or not (has_wheel or has_image):
                answer = self._combine_results(tuple(unknown))
                self.table.cells[system.key, minor, python, ANY_GPU] = (answer, 1)
                continue
            for capability in self.table.cards:
                for recipe in RECIPES:
                    self._get_recipe_answers(minor, python, capability, system, recipe)
        self._queries.append((minor, python))

    def _get_recipe_answers(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> _RecipeAnswers:
        """Return the results of a recipe for each driver. Equivalent systems and GPUs share one object."""
        representative = self._find_equivalent_system(minor, python, capability, system, recipe)
        for gpu_key in (None, capability):  # None: the result does not depend on the GPU
            cached = self._recipe_answers.get((minor, python, gpu_key, recipe, representative.key))
            if cached is not None:
                return cached
        answers, is_any_gpu = self._run_driver_ranges(minor, python, capability, representative, recipe)
        self._recipe_answers[
            minor, python, None if is_any_gpu else capability, recipe, representative.key
        ] = answers
        return answers

    def _find_equivalent_system(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> TableSystem:
        """Return the first system that is equivalent to `system` for this recipe.

        The host's glibc does not matter to an image, nor to the planner if it satisfies every requirement.
        """
        first, wsl = self.table.systems[0], self.table.systems[1]
        if system.host.system == "Darwin":
            return system
        if recipe is not Recipe.VENV:
            return first if system.platform == "linux" else wsl
        glibc = system.host.glibc
        if glibc is None:
            return system
        compared = self._get_recipe_answers(minor, python, capability, first, recipe).glibcs
        if all(versions.is_at_least(glibc, required) for required in compared):
            return first
        return self._system_by_glibc.setdefault(
            sum(versions.is_at_least(glibc, required) for required in self._required_glibcs), system
        )

    def _run_driver_ranges(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> tuple[_RecipeAnswers, bool]:
        """Return the results for each range of drivers, and whether they are the same for every GPU."""
        unknown, watched = self._run_planner(minor, python, capability, system, recipe, None)
        answers, is_any_gpu = _RecipeAnswers(unknown, set(watched.glibcs)), not watched.asked_cards
        if not watched.asked_driver:
            return answers, is_any_gpu
        for range_start, range_end in self._card_drivers[system.platform, capability].ranges:
            start: VersionNumbers | None = range_start
            while start is not None and (range_end is None or start < range_end):
                result, watched = self._run_planner(
                    minor, python, capability, system, recipe, _make_example_driver(start)
                )
                is_any_gpu = is_any_gpu and not watched.asked_cards
                answers.glibcs |= watched.glibcs
                limits = {versions.parse_numbers(limit) for limit in watched.limits}
                self._limits[system.platform] |= limits
                answers.starts.append(start)
                answers.results.append(result)
                answers.limits.append(frozenset(limits))
                start = min((limit for limit in limits if limit > start), default=None)
        if not answers.starts:  # no known driver supports the GPU
            answers.starts, answers.results, answers.limits = [LOWEST_VERSION], [unknown], [frozenset()]
        return answers, is_any_gpu

    def _run_planner(
        self,
        minor: str,
        python: str,
        capability: str,
        system: TableSystem,
        recipe: Recipe,
        driver: str | None,
    ) -> tuple[int, _WatchedHost]:
        """Run the planner for one machine. Return the result's index, and the host that recorded the reads."""
        cards = (HostGpu(NAME_PLACEHOLDER, capability),) if capability else ()
        host = _WatchedHost.watch(system.host, cards, driver)
        request = Request(tensorflow=minor or None, python=python or None)
        option, rejections = find_best_option(self.compat, request, host, recipe)
        glibc = system.host.glibc

        def insert_placeholders(text: str) -> str:
            return self._insert_placeholders(text, capability or None, driver, glibc)

        rejected_releases: tuple[Rejected, ...] = ()
        option_index = -1
        if option is None:
            rejected_releases = tuple(
                Rejected(
                    rejection.recipe,
                    rejection.tensorflow,
                    tuple(_fill_reason(reason, insert_placeholders) for reason in rejection.reasons),
                )
                for rejection in rejections
            )
        else:
            option = adapt_to_machine(self.compat, option, request, host)
            if system.names_machine:
                answer = Recommendation(request, host, (option,), (), None)
                option = add_machine_arguments(
                    answer, [NAME_PLACEHOLDER] if capability else [], driver
                ).options[0]
            option_index = self._add_option(option, insert_placeholders)
        key = (
            option_index,
            *(
                (rejection.tensorflow, *((r.cause, r.text) for r in rejection.reasons))
                for rejection in rejected_releases
            ),
        )
        return _intern(
            self._result_numbers, self._results, key, _RecipeResult(option_index, rejected_releases)
        ), host

    def _find_card_drivers(self, platform: Platform, capability: str) -> _CardDrivers:
        """Return the drivers that support a GPU."""
        limits = {versions.parse_numbers(limit) for limit in list_refusal_limits(self.compat, platform)} | {
            LOWEST_VERSION
        }
        starts: list[VersionNumbers] = []
        texts: list[int] = []
        for start in sorted(limits) if capability else [LOWEST_VERSION]:
            text = (
                self._explain_unsupported(platform, capability, _make_example_driver(start))
                if capability
                else -1
            )
            if not texts or texts[-1] != text:
                starts.append(start)
                texts.append(text)
        self._limits[platform] |= set(starts) - {LOWEST_VERSION}
        ends = [*starts[1:], None]
        ranges = [
            (start, range_end) for start, text, range_end in zip(starts, texts, ends, strict=True) if text < 0
        ]
        return _CardDrivers(starts, texts, ranges)

    def _explain_unsupported(self, platform: Platform, capability: str, driver: str) -> int:
        """Return the index of the text that explains why the driver does not support the GPU, or -1."""
        refusal = (
            find_driver_refusal(self.compat, driver, HostGpu(NAME_PLACEHOLDER, capability), platform)
            if capability
            else None
        )
        return (
            -1
            if refusal is None
            else self._add_text(self._insert_placeholders(refusal[1], capability, driver, None))
        )

    # ------------------------------------------------------------ combining the results

    def fill_cells(self) -> None:
        """Fill the table's cells from the results that `collect_answers` gathered."""
        for platform, limits in self._limits.items():
            offered_drivers = {
                versions.parse_numbers(numbers) for numbers in list_refusal_limits(self.compat, platform)
            }
            branches = {numbers[:count] for numbers in limits for count in range(1, max(2, len(numbers)))}
            branches |= {numbers[:1] for numbers in offered_drivers if numbers[0] >= OLDEST_BRANCH}
            steps = [(numbers, join_numbers(numbers)) for numbers in limits]
            steps += [((*numbers, _MAX_NUMBER), f"{join_numbers(numbers)}.*") for numbers in branches]
            self.table.drivers[platform] = DriverSteps(tuple(text for _, text in sorted(steps)))
        for minor, python in self._queries:
            for system in self.table.systems:
                if (system.key, minor, python, ANY_GPU) in self.table.cells:
                    continue
                for capability in ("", *self.table.cards):
                    row = self._make_row(minor, python, capability, system)
                    self.table.cells[system.key, minor, python, capability] = row

    def _make_row(self, minor: str, python: str, capability: str, system: TableSystem) -> tuple[int, ...]:
        """Return the run-length encoded answers for each driver index."""
        answers_by_recipe = [
            self._get_recipe_answers(minor, python, capability, system, recipe) for recipe in RECIPES
        ]
        key = (system.platform, capability, *map(id, answers_by_recipe))
        if key not in self._rows:
            for recipe_answers, recipe in zip(answers_by_recipe, RECIPES, strict=True):
                if recipe_answers.starts and not recipe_answers.results_by_driver:
                    representative = self._find_equivalent_system(minor, python, capability, system, recipe)
                    self._fill_results_by_driver(
                        recipe_answers, minor, python, capability, representative, recipe
                    )
            answer_count = self.table.drivers[system.platform].answer_count
            columns = [
                recipe_answers.results_by_driver or [recipe_answers.unknown] * answer_count
                for recipe_answers in answers_by_recipe
            ]
            answers = []
            for text, *results in zip(
                self._list_refusal_texts(system.platform, capability), *columns, strict=True
            ):
                answers.append(
                    self._add_answer(((), (text,), -1))
                    if text >= 0
                    else self._combine_results(tuple(results))
                )
            self._rows[key] = encode_runs(answers)
        return self._rows[key]

    def _fill_results_by_driver(
        self,
        answers: _RecipeAnswers,
        minor: str,
        python: str,
        capability: str,
        system: TableSystem,
        recipe: Recipe,
    ) -> None:
        """Fill `answers.results_by_driver` with the result for each driver index of the platform."""
        refusals = self._list_refusal_texts(system.platform, capability)
        answers.results_by_driver = [answers.get_answer(LOWEST_VERSION)]
        for text, step in zip(refusals[1:], self.table.drivers[system.platform].steps, strict=False):
            if not step.endswith(".*"):
                answers.results_by_driver.append(answers.get_answer(versions.parse_numbers(step)))
                continue
            branch = step.removesuffix(".*")
            newest = (*versions.parse_numbers(branch), _MAX_NUMBER)
            index = bisect_right(answers.starts, newest) - 1
            must_run = index < 0 or any(
                limit[: len(newest) - 1] == newest[:-1] for limit in answers.limits[index]
            )
            # A branch step stands for its newest driver. It needs another run of the planner if the planner
            # compared with a version of this branch, or if the newest driver does not support the GPU.
            if text >= 0 or not (
                must_run or self._card_drivers[system.platform, capability].get_text(newest) >= 0
            ):
                answers.results_by_driver.append(answers.get_answer(newest))
            else:
                answers.results_by_driver.append(
                    self._run_planner(minor, python, capability, system, recipe, branch)[0]
                )
        answers.results_by_driver.append(answers.unknown)

    def _list_refusal_texts(self, platform: Platform, capability: str) -> list[int]:
        """Return the result of `_explain_unsupported` for each driver index of the platform."""
        if (platform, capability) not in self._refusal_texts:
            card_drivers = self._card_drivers[platform, capability]
            self._refusal_texts[platform, capability] = [
                card_drivers.get_text(LOWEST_VERSION),
                *(
                    self._explain_unsupported(platform, capability, step.removesuffix(".*"))
                    if step.endswith(".*")
                    else card_drivers.get_text(versions.parse_numbers(step))
                    for step in self.table.drivers[platform].steps
                ),
                -1,
            ]
        return self._refusal_texts[platform, capability]

    def fill_best_cells(self, system: TableSystem, python: str) -> None:
        """Fill the cells of one system and Python for any minor.

        If no minor works, the cells give the reasons of the newest minor that has a wheel.
        """
        table = self.table
        minors = [minor for minor in table.minors if (system.key, minor, python, ANY_GPU) not in table.cells]
        if not minors:  # the GPU matters to no minor, so use the answer of the newest one
            any_gpu_row = table.cells[system.key, table.minors[0], python, ANY_GPU]
            table.cells[system.key, "", python, ANY_GPU] = any_gpu_row
            return
        for capability in ("", *table.cards):
            rows = tuple(table.cells[system.key, minor, python, capability] for minor in minors)
            if rows not in self._best_rows:
                self._best_rows[rows] = self._make_best_row(rows)
            table.cells[system.key, "", python, capability] = self._best_rows[rows]

    def _make_best_row(self, rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the row of the best answers for each driver."""
        expanded = [
            [answer for answer, count in zip(row[::2], row[1::2], strict=True) for _ in range(count)]
            for row in rows
        ]
        best_answers = []
        for indexes in zip(*expanded, strict=True):
            if indexes not in self._best_answers:
                self._best_answers[indexes] = self._choose_best(
                    [self.table.answers[index] for index in indexes]
                )
            best_answers.append(self._best_answers[indexes])
        return encode_runs(best_answers)

    def _choose_best(self, answers: list[Answer]) -> int:
        """Return the index of an answer with the best options of all minors, which are given newest first."""
        by_recipe: dict[Recipe, list[int]] = {}
        for options, _, _ in answers:
            for index in options:
                by_recipe.setdefault(self._added_options[index].recipe, []).append(index)
        chosen = []
        for indexes in by_recipe.values():
            options_of_recipe = [self._added_options[index] for index in indexes]
            best = choose_preferred(options_of_recipe)
            chosen += [index for index in dict.fromkeys(indexes) if self._added_options[index] is best]
        ranked = self._rank(chosen)
        return self._add_answer((ranked, () if ranked else answers[0][1], -1))

    def _rank(self, options: Iterable[int]) -> tuple[int, ...]:
        """Return the indexes of the options, best first."""
        index_by_id = {id(self._added_options[index]): index for index in options}
        ranked = rank_options(
            Request(), Host(), [self._added_options[index] for index in index_by_id.values()]
        )
        return tuple(index_by_id[id(option)] for option in ranked[:MAX_OPTIONS])

    def _combine_results(self, result_indexes: tuple[int, ...]) -> int:
        """Return the index of the answer that combines the results of all recipes."""
        if result_indexes not in self._combined_answers:
            results = [self._results[item] for item in result_indexes]
            options = self._rank(item.option for item in results if item.option >= 0)
            reasons: tuple[int, ...] = ()
            no_venv = -1
            if not options:
                merged = merge_reasons(item for result in results for item in result.rejected)
                reasons = tuple(self._add_text(item.text) for item in merged[:MAX_REASONS])
            else:
                venv = next(
                    item for item, recipe in zip(results, RECIPES, strict=True) if recipe is Recipe.VENV
                )
                rejection = next(
                    (item for item in venv.rejected if item.reasons),
                    None,
                )
                no_venv = -1 if rejection is None else self._add_text(rejection.reasons[0].text)
            self._combined_answers[result_indexes] = self._add_answer((options, reasons, no_venv))
        return self._combined_answers[result_indexes]

    def _add_option(self, option: Option, insert_placeholders: Callable[[str], str]) -> int:
        """Add an option to the table and return its index."""

        def add_texts(strings: Iterable[str]) -> tuple[int, ...]:
            return tuple(self._add_text(insert_placeholders(item)) for item in strings)

        entry = (
            option.recipe.value,
            option.tensorflow,
            option.python,
            option.cuda,
            option.cudnn or "",
            self._add_text(option.base.image if option.base is not None else ""),
            -1 if option.size is None else option.size,
            add_texts(option.commands),
            add_texts(item.text for item in option.caveats if item.is_serious),
            add_texts(item.text for item in option.caveats if not item.is_serious),
        )
        index = _intern(self._options, self.table.options, entry, entry)
        if index == len(self._added_options):
            self._added_options.append(option)
        return index

    def _insert_placeholders(
        self, text: str, capability: str | None, driver: str | None, glibc: str | None
    ) -> str:
        """Return the result of `insert_text_placeholders`, from a cache."""
        key = (text, capability, driver, glibc)
        if key not in self._text_cache:
            self._text_cache[key] = insert_text_placeholders(text, capability, driver, glibc)
        return self._text_cache[key]

    def _add_text(self, text: str) -> int:
        return _intern(self._texts, self.table.texts, text, text)

    def _add_answer(self, answer: Answer) -> int:
        return _intern(self._answers, self.table.answers, answer, answer)


def _intern(index_by_key: dict[T, int], values: list[Any], key: T, value: Any) -> int:
    """Return the index of `key` in `values`. If the key is new, append its `value`."""
    if key not in index_by_key:
        index_by_key[key] = len(values)
        values.append(value)
    return index_by_key[key]


def _fill_reason(reason: Reason, insert_placeholders: Callable[[str], str]) -> Reason:
    return replace(reason, text=insert_placeholders(reason.text))
