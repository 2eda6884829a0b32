"""Build the answer table by running the planner for every combination of inputs.

Equivalent inputs share one call of the planner, and texts that differ only in a name share one text with
placeholders. To find out which inputs matter, the planner gets a host that records which attributes are read
(`_TracingHost`):

* Two drivers are equivalent if the planner compared the driver with no version between them. The same holds for
  two glibc versions.
* All GPUs are equivalent if the planner did not read the GPUs.

If the request names no TensorFlow, the best option is the best of the options for all minors.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tfdoctor.compat.gpus import extract_core_words
from tfdoctor.core import versions
from tfdoctor.core.errors import UsageError
from tfdoctor.planning.answer_table import (
    ANY_GPU,
    GPU_NAME_PLACEHOLDER,
    OLDEST_DRIVER_BRANCH,
    AnswerTable,
    DriverSteps,
    TableSystem,
    encode_run_lengths,
    insert_text_placeholders,
    join_numbers,
)
from tfdoctor.planning.arguments import add_machine_arguments, parse_gpu
from tfdoctor.planning.models import Recipe, Recommendation, Rejection, Request
from tfdoctor.planning.recipes import RECIPES, adapt_to_machine
from tfdoctor.planning.recommend import MAX_OPTIONS, find_best_option, merge_reasons, rank_options
from tfdoctor.prediction.fit.compatibility import choose_preferred, list_candidates
from tfdoctor.prediction.fit.drivers import find_driver_refusal, list_refusal_limits
from tfdoctor.prediction.fit.models import Host, HostGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tfdoctor.compat import Compat, Platform
    from tfdoctor.planning.answer_table import Answer, VersionNumbers
    from tfdoctor.planning.models import Option
    from tfdoctor.prediction.fit.models import Reason

T = TypeVar("T")

__all__ = ["build_answer_table", "list_systems"]

MAX_REASONS = 4
"""Limit for the reasons in an answer, of which the most important come first."""
LOWEST_VERSION: VersionNumbers = (0,)
"""A version below every real version."""
_MAX_NUMBER = 10**6
"""A number that is higher than every number in a version."""


def build_answer_table(
    compat: Compat,
    on_minor: Callable[[int, int, str], None] = lambda *_: None,
    *,
    minors: Sequence[str] | None = None,
    capabilities: Sequence[str] | None = None,
) -> AnswerTable:
    """Return the answer table, which takes seconds to build.

    `on_minor` is called with (number, count, minor) before the answers of a minor are computed. The table includes only the given
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
    for number, minor in enumerate(minors, 1):
        on_minor(number, len(minors), minor)
        minor_pythons = {
            version for release in releases if release.minor == minor for version in release.linux_pythons
        }
        for python in ("", *pythons):
            builder.collect_results(minor, python, has_wheel=not python or python in minor_pythons)
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
    ubuntu_by_glibc = {system.glibc: f" (Ubuntu {system.name})" for system in compat.pythons.systems}
    # The glibc versions from the newest required one (excluded) down to the oldest.
    older_glibcs = [f"{oldest[0]}.{minor}" for minor in range(newest[1] - 1, oldest[1] - 1, -1)]
    return (
        TableSystem(
            "linux",
            f"Linux, glibc {newest[0]}.{newest[1]} or newer",
            "linux",
            Host(),
            needs_machine_arguments=True,
        ),
        TableSystem("wsl", "Windows, in WSL 2", "windows", Host(is_wsl=True)),
        TableSystem("windows", "Windows", "windows", Host(system="Windows", machine="AMD64")),
        TableSystem("macos", "macOS", "linux", Host(system="Darwin")),
        *(
            TableSystem(
                f"linux-{glibc}",
                f"Linux, glibc {glibc}{ubuntu_by_glibc.get(glibc, '')}",
                "linux",
                Host(glibc=glibc),
                needs_machine_arguments=True,
            )
            for glibc in older_glibcs
        ),
    )


def _list_required_glibcs(compat: Compat) -> frozenset[str]:
    """Return the glibc versions that releases and NVIDIA's wheels require."""
    required_versions = {entry.glibc for entry in list_candidates(compat)} | {
        entry.glibc for entry in compat.cudnn_ranges
    }
    return frozenset(glibc for glibc in required_versions if glibc is not None)


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


# The slots of Host, which properties of _TracingHost hide. Their `__get__` reads the hidden value.
_CARDS_SLOT, _DRIVER_SLOT = Host.__dict__["cards"], Host.__dict__["driver"]


class _TracingHost(Host):
    """A host that records which of its attributes are read."""

    __slots__ = ("compared_drivers", "compared_glibcs", "was_driver_read", "were_cards_read")

    were_cards_read: bool
    """Whether the planner read the GPUs."""
    was_driver_read: bool
    """Whether the planner read the driver."""
    compared_drivers: set[str]
    """The driver versions that the planner compared with."""
    compared_glibcs: set[str]
    """The glibc versions that the planner compared with."""

    @classmethod
    def copy_from(cls, host: Host, cards: tuple[HostGpu, ...], driver: str | None) -> _TracingHost:
        """Return a recording copy of `host` with these GPUs and this driver."""
        copy = cls(
            cards=cards,
            driver=driver,
            system=host.system,
            machine=host.machine,
            glibc=host.glibc,
            is_wsl=host.is_wsl,
        )
        for name, value in (
            ("were_cards_read", False),
            ("was_driver_read", False),
            ("compared_drivers", set()),
            ("compared_glibcs", set()),
        ):
            object.__setattr__(copy, name, value)
        return copy

    # Only the attributes below are recorded: the others are read very often, and stay plain slots.
    @property
    def cards(self) -> tuple[HostGpu, ...]:
        object.__setattr__(self, "were_cards_read", True)
        cards: tuple[HostGpu, ...] = _CARDS_SLOT.__get__(self)
        return cards

    @property
    def driver(self) -> str | None:
        object.__setattr__(self, "was_driver_read", True)
        driver: str | None = _DRIVER_SLOT.__get__(self)
        return driver

    def has_driver_at_least(self, driver: str) -> bool:
        self.compared_drivers.add(driver)
        return super().has_driver_at_least(driver)

    def lacks_glibc(self, glibc: str) -> bool:
        self.compared_glibcs.add(glibc)
        return super().lacks_glibc(glibc)


@dataclass(frozen=True, slots=True)
class _RecipeResult:
    """The result of one recipe for a minor, with placeholders in its texts."""

    option_index: int
    """The index of the option, or -1 if there is none."""
    rejections: tuple[Rejection, ...]
    """The rejected releases, if there is no option."""


@dataclass
class _RecipeResults:
    """The results of one recipe for one minor and Python, for each driver."""

    unknown_driver_result: int
    """The result for an unknown driver."""
    compared_glibcs: set[str]
    """The glibc versions that the planner compared with."""
    start_drivers: list[VersionNumbers] = field(default_factory=list)
    """The driver versions at which the result changes, oldest first; empty if the driver was not read."""
    results: list[int] = field(default_factory=list)
    """The result for each of `start_drivers`, which holds up to the next one."""
    compared_drivers: list[frozenset[VersionNumbers]] = field(default_factory=list)
    """The driver versions that the planner compared with, for each of `start_drivers`."""
    results_by_index: list[int] = field(default_factory=list)
    """The result for each index that `DriverSteps.find_driver_index` returns; empty until the driver steps are known."""

    def get_result(self, driver: VersionNumbers) -> int:
        if not self.start_drivers:
            return self.unknown_driver_result
        return self.results[bisect_right(self.start_drivers, driver) - 1]


@dataclass(frozen=True, slots=True)
class _CardDrivers:
    """The drivers that support a GPU."""

    start_drivers: list[VersionNumbers]
    """The driver versions at which the support changes, oldest first."""
    refusal_texts: list[int]
    """For each of `start_drivers`, the index of the text that explains why the GPU is not supported, or -1 if it is."""
    supported_ranges: list[tuple[VersionNumbers, VersionNumbers | None]]
    """(first version, excluded end) of each supported range; an end of None means no limit."""

    def get_refusal_text(self, driver: VersionNumbers) -> int:
        return self.refusal_texts[bisect_right(self.start_drivers, driver) - 1]


def _make_example_driver(start: VersionNumbers) -> str:
    """Return a driver version slightly newer than `start` that cannot occur in a text by chance."""
    return f"{join_numbers(start)}.00.001"


class _TableBuilder:
    """A builder that runs the planner and deduplicates its texts, options, results and answers."""

    def __init__(self, compat: Compat, table: AnswerTable) -> None:
        self.compat, self.table = compat, table
        self._text_indexes: dict[str, int] = {}
        self._option_indexes: dict[tuple[object, ...], int] = {}
        self._answer_indexes: dict[Answer, int] = {}
        self._added_options: list[Option] = []
        """One option for each entry of the table's options. Options with equal entries rank equally."""
        self._results: list[_RecipeResult] = []
        """The distinct results, to which all other attributes refer by index."""
        self._result_indexes: dict[tuple[object, ...], int] = {}
        self._combined_answer_cache: dict[tuple[int, ...], int] = {}
        self._recipe_result_cache: dict[tuple[str, str, str | None, Recipe, str], _RecipeResults] = {}
        self._text_cache: dict[tuple[str, str | None, str | None, str | None], str] = {}
        self._refusal_text_cache: dict[tuple[Platform, str], list[int]] = {}
        self._required_glibcs = _list_required_glibcs(compat)
        self._system_by_glibc_count: dict[int, TableSystem] = {}
        """By number of required glibc versions that a system satisfies: the first such system."""
        self._row_cache: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._best_row_cache: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}
        self._best_answer_cache: dict[tuple[int, ...], int] = {}
        self._collected_queries: list[tuple[str, str]] = []
        """The (minor, Python) pairs whose answers were collected."""
        self._card_drivers: dict[tuple[Platform, str], _CardDrivers] = {}
        self._driver_limits: dict[Platform, set[VersionNumbers]] = {"linux": set(), "windows": set()}
        """The driver versions at which an answer can change, by platform."""
        for platform in self._driver_limits:
            for capability in ("", *table.gpu_names):
                self._card_drivers[platform, capability] = self._find_card_drivers(platform, capability)

    # ------------------------------------------------------------ running the planner

    def collect_results(self, minor: str, python: str, *, has_wheel: bool) -> None:
        """Run the planner for one minor and Python on all systems, GPUs and drivers."""
        for system in self.table.systems:
            unknown_results = [
                self._get_recipe_results(minor, python, "", system, recipe).unknown_driver_result
                for recipe in RECIPES
            ]
            has_image = any(self._results[result].option_index >= 0 for result in unknown_results)
            if system.host.system == "Darwin" or not (has_wheel or has_image):
                answer = self._combine_results(tuple(unknown_results))
                self.table.answer_rows[system.key, minor, python, ANY_GPU] = (answer, 1)
                continue
            for capability in self.table.gpu_names:
                for recipe in RECIPES:
                    self._get_recipe_results(minor, python, capability, system, recipe)
        self._collected_queries.append((minor, python))

    def _get_recipe_results(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> _RecipeResults:
        """Return the results of a recipe for each driver. Equivalent systems and GPUs share one object."""
        representative = self._find_equivalent_system(minor, python, capability, system, recipe)
        for gpu_key in (None, capability):  # None: the result does not depend on the GPU
            cached = self._recipe_result_cache.get((minor, python, gpu_key, recipe, representative.key))
            if cached is not None:
                return cached
        recipe_results, is_same_for_all_gpus = self._run_driver_ranges(
            minor, python, capability, representative, recipe
        )
        self._recipe_result_cache[
            minor, python, None if is_same_for_all_gpus else capability, recipe, representative.key
        ] = recipe_results
        return recipe_results

    def _find_equivalent_system(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> TableSystem:
        """Return the first system that is equivalent to `system` for this recipe.

        The host's glibc does not matter to an image. It does not matter to a virtual environment, either, if it
        satisfies every version that the planner compared with.
        """
        newest_linux, wsl = self.table.systems[0], self.table.systems[1]
        if system.host.system == "Darwin":
            return system
        if recipe is not Recipe.VENV:
            return newest_linux if system.platform == "linux" else wsl
        glibc = system.host.glibc
        if glibc is None:
            return system
        compared_glibcs = self._get_recipe_results(
            minor, python, capability, newest_linux, recipe
        ).compared_glibcs
        if all(versions.is_at_least(glibc, required) for required in compared_glibcs):
            return newest_linux
        # Systems that satisfy equally many of the required versions satisfy the same ones.
        return self._system_by_glibc_count.setdefault(
            sum(versions.is_at_least(glibc, required) for required in self._required_glibcs), system
        )

    def _run_driver_ranges(
        self, minor: str, python: str, capability: str, system: TableSystem, recipe: Recipe
    ) -> tuple[_RecipeResults, bool]:
        """Return the results of a recipe, and whether they are the same for every GPU."""
        unknown_driver_result, tracing_host = self._run_planner(
            minor, python, capability, system, recipe, None
        )
        recipe_results = _RecipeResults(unknown_driver_result, set(tracing_host.compared_glibcs))
        is_same_for_all_gpus = not tracing_host.were_cards_read
        if not tracing_host.was_driver_read:
            return recipe_results, is_same_for_all_gpus
        for range_start, range_end in self._card_drivers[system.platform, capability].supported_ranges:
            start: VersionNumbers | None = range_start
            while start is not None and (range_end is None or start < range_end):
                result, tracing_host = self._run_planner(
                    minor, python, capability, system, recipe, _make_example_driver(start)
                )
                is_same_for_all_gpus = is_same_for_all_gpus and not tracing_host.were_cards_read
                recipe_results.compared_glibcs |= tracing_host.compared_glibcs
                limits = {versions.parse_numbers(limit) for limit in tracing_host.compared_drivers}
                self._driver_limits[system.platform] |= limits
                recipe_results.start_drivers.append(start)
                recipe_results.results.append(result)
                recipe_results.compared_drivers.append(frozenset(limits))
                # The result can change only at a version that the planner compared with.
                start = min((limit for limit in limits if limit > start), default=None)
        if not recipe_results.start_drivers:  # no known driver supports the GPU
            recipe_results.start_drivers = [LOWEST_VERSION]
            recipe_results.results = [unknown_driver_result]
            recipe_results.compared_drivers = [frozenset()]
        return recipe_results, is_same_for_all_gpus

    def _run_planner(
        self,
        minor: str,
        python: str,
        capability: str,
        system: TableSystem,
        recipe: Recipe,
        driver: str | None,
    ) -> tuple[int, _TracingHost]:
        """Run the planner for one machine. Return the result's index, and the host that recorded the reads."""
        cards = (HostGpu(GPU_NAME_PLACEHOLDER, capability),) if capability else ()
        host = _TracingHost.copy_from(system.host, cards, driver)
        request = Request(tensorflow=minor or None, python=python or None)
        option, rejections = find_best_option(self.compat, request, host, recipe)
        glibc = system.host.glibc

        def insert_placeholders(text: str) -> str:
            return self._insert_placeholders(text, capability or None, driver, glibc)

        placeholder_rejections: tuple[Rejection, ...] = ()
        option_index = -1
        if option is None:
            placeholder_rejections = tuple(
                Rejection(
                    rejection.recipe,
                    rejection.tensorflow,
                    tuple(
                        _insert_reason_placeholders(reason, insert_placeholders)
                        for reason in rejection.reasons
                    ),
                )
                for rejection in rejections
            )
        else:
            option = adapt_to_machine(self.compat, option, request, host)
            if system.needs_machine_arguments:
                recommendation = Recommendation(
                    request=request, host=host, options=(option,), rejections=(), conflict=None
                )
                option = add_machine_arguments(
                    recommendation, [GPU_NAME_PLACEHOLDER] if capability else [], driver
                ).options[0]
            option_index = self._add_option(option, insert_placeholders)
        key = (
            option_index,
            *(
                (rejection.tensorflow, *((reason.cause, reason.text) for reason in rejection.reasons))
                for rejection in placeholder_rejections
            ),
        )
        return _intern(
            self._result_indexes, self._results, key, _RecipeResult(option_index, placeholder_rejections)
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
        self._driver_limits[platform] |= set(starts) - {LOWEST_VERSION}
        ends = [*starts[1:], None]
        ranges = [
            (start, range_end) for start, text, range_end in zip(starts, texts, ends, strict=True) if text < 0
        ]
        return _CardDrivers(starts, texts, ranges)

    def _explain_unsupported(self, platform: Platform, capability: str, driver: str) -> int:
        """Return the index of the text that explains why the driver does not support the GPU, or -1."""
        refusal = (
            find_driver_refusal(self.compat, driver, HostGpu(GPU_NAME_PLACEHOLDER, capability), platform)
            if capability
            else None
        )
        if refusal is None:
            return -1
        _, reason, _ = refusal
        return self._add_text(self._insert_placeholders(reason, capability, driver, None))

    # ------------------------------------------------------------ combining the results

    def fill_cells(self) -> None:
        """Fill the table's cells from the results that `collect_results` gathered."""
        for platform, limits in self._driver_limits.items():
            offered_drivers = {
                versions.parse_numbers(numbers) for numbers in list_refusal_limits(self.compat, platform)
            }
            # Every prefix of a version is a branch, such as 525 and 525.60 for 525.60.13.
            branches = {numbers[:count] for numbers in limits for count in range(1, max(2, len(numbers)))}
            branches |= {numbers[:1] for numbers in offered_drivers if numbers[0] >= OLDEST_DRIVER_BRANCH}
            steps = [(numbers, join_numbers(numbers)) for numbers in limits]
            # A branch stands for its newest driver, so it comes after all of its versions.
            steps += [((*numbers, _MAX_NUMBER), f"{join_numbers(numbers)}.*") for numbers in branches]
            self.table.driver_steps[platform] = DriverSteps(tuple(text for _, text in sorted(steps)))
        for minor, python in self._collected_queries:
            for system in self.table.systems:
                if (system.key, minor, python, ANY_GPU) in self.table.answer_rows:
                    continue
                for capability in ("", *self.table.gpu_names):
                    row = self._make_row(minor, python, capability, system)
                    self.table.answer_rows[system.key, minor, python, capability] = row

    def _make_row(self, minor: str, python: str, capability: str, system: TableSystem) -> tuple[int, ...]:
        """Return the run-length encoded answers for each driver index."""
        results_by_recipe = [
            self._get_recipe_results(minor, python, capability, system, recipe) for recipe in RECIPES
        ]
        # Equal results share one object, so the id() is enough.
        key = (system.platform, capability, *map(id, results_by_recipe))
        if key not in self._row_cache:
            for recipe_results, recipe in zip(results_by_recipe, RECIPES, strict=True):
                if recipe_results.start_drivers and not recipe_results.results_by_index:
                    representative = self._find_equivalent_system(minor, python, capability, system, recipe)
                    self._fill_results_by_index(
                        recipe_results, minor, python, capability, representative, recipe
                    )
            answer_count = self.table.driver_steps[system.platform].answer_count
            columns = [
                recipe_results.results_by_index or [recipe_results.unknown_driver_result] * answer_count
                for recipe_results in results_by_recipe
            ]
            answers = []
            for refusal_text, *results in zip(
                self._list_refusal_texts(system.platform, capability), *columns, strict=True
            ):
                answers.append(
                    self._add_answer(((), (refusal_text,), -1))
                    if refusal_text >= 0
                    else self._combine_results(tuple(results))
                )
            self._row_cache[key] = encode_run_lengths(answers)
        return self._row_cache[key]

    def _fill_results_by_index(
        self,
        recipe_results: _RecipeResults,
        minor: str,
        python: str,
        capability: str,
        system: TableSystem,
        recipe: Recipe,
    ) -> None:
        """Fill `results_by_index` with the result for each driver index of the platform."""
        refusals = self._list_refusal_texts(system.platform, capability)
        recipe_results.results_by_index = [recipe_results.get_result(LOWEST_VERSION)]
        for refusal_text, step in zip(
            refusals[1:], self.table.driver_steps[system.platform].steps, strict=False
        ):
            if not step.endswith(".*"):
                recipe_results.results_by_index.append(
                    recipe_results.get_result(versions.parse_numbers(step))
                )
                continue
            branch = step.removesuffix(".*")
            newest = (*versions.parse_numbers(branch), _MAX_NUMBER)
            index = bisect_right(recipe_results.start_drivers, newest) - 1
            is_compared = index < 0 or any(
                limit[: len(newest) - 1] == newest[:-1] for limit in recipe_results.compared_drivers[index]
            )
            # A branch step stands for its newest driver. It needs another run of the planner if the planner
            # compared with a version of this branch, or if `newest` is a driver that does not support the GPU.
            # If the branch itself is refused, the result is not used.
            if refusal_text >= 0 or not (
                is_compared or self._card_drivers[system.platform, capability].get_refusal_text(newest) >= 0
            ):
                recipe_results.results_by_index.append(recipe_results.get_result(newest))
            else:
                recipe_results.results_by_index.append(
                    self._run_planner(minor, python, capability, system, recipe, branch)[0]
                )
        recipe_results.results_by_index.append(recipe_results.unknown_driver_result)

    def _list_refusal_texts(self, platform: Platform, capability: str) -> list[int]:
        """Return the result of `_explain_unsupported` for each driver index of the platform."""
        if (platform, capability) not in self._refusal_text_cache:
            card_drivers = self._card_drivers[platform, capability]
            self._refusal_text_cache[platform, capability] = [
                card_drivers.get_refusal_text(LOWEST_VERSION),
                *(
                    self._explain_unsupported(platform, capability, step.removesuffix(".*"))
                    if step.endswith(".*")
                    else card_drivers.get_refusal_text(versions.parse_numbers(step))
                    for step in self.table.driver_steps[platform].steps
                ),
                -1,
            ]
        return self._refusal_text_cache[platform, capability]

    def fill_best_cells(self, system: TableSystem, python: str) -> None:
        """Fill the cells of one system and Python for any minor.

        If no minor works, the cells give the reasons of the newest minor that has a wheel.
        """
        table = self.table
        minors = [
            minor for minor in table.minors if (system.key, minor, python, ANY_GPU) not in table.answer_rows
        ]
        if not minors:  # the GPU matters to no minor, so use the answer of the newest one
            any_gpu_row = table.answer_rows[system.key, table.minors[0], python, ANY_GPU]
            table.answer_rows[system.key, "", python, ANY_GPU] = any_gpu_row
            return
        for capability in ("", *table.gpu_names):
            rows = tuple(table.answer_rows[system.key, minor, python, capability] for minor in minors)
            if rows not in self._best_row_cache:
                self._best_row_cache[rows] = self._make_best_row(rows)
            table.answer_rows[system.key, "", python, capability] = self._best_row_cache[rows]

    def _make_best_row(self, rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the row of the best answers for each driver index, given one row for each minor."""
        expanded = [
            [answer for answer, count in zip(row[::2], row[1::2], strict=True) for _ in range(count)]
            for row in rows
        ]
        best_answers = []
        for indexes in zip(*expanded, strict=True):
            if indexes not in self._best_answer_cache:
                self._best_answer_cache[indexes] = self._choose_best(
                    [self.table.answers[index] for index in indexes]
                )
            best_answers.append(self._best_answer_cache[indexes])
        return encode_run_lengths(best_answers)

    def _choose_best(self, answers: list[Answer]) -> int:
        """Return the index of an answer with the best options of all minors, which are given newest first."""
        by_recipe: dict[Recipe, list[int]] = {}
        for option_indexes, _, _ in answers:
            for index in option_indexes:
                by_recipe.setdefault(self._added_options[index].recipe, []).append(index)
        chosen = []
        for indexes in by_recipe.values():
            options_of_recipe = [self._added_options[index] for index in indexes]
            best = choose_preferred(options_of_recipe)
            chosen += [index for index in dict.fromkeys(indexes) if self._added_options[index] is best]
        ranked = self._rank_options(chosen)
        _, newest_minor_reasons, _ = answers[0]
        return self._add_answer((ranked, () if ranked else newest_minor_reasons, -1))

    def _rank_options(self, option_indexes: Iterable[int]) -> tuple[int, ...]:
        """Return the indexes of the options, best first."""
        index_by_id = {id(self._added_options[index]): index for index in option_indexes}
        ranked = rank_options(
            Request(), Host(), [self._added_options[index] for index in index_by_id.values()]
        )
        return tuple(index_by_id[id(option)] for option in ranked[:MAX_OPTIONS])

    def _combine_results(self, result_indexes: tuple[int, ...]) -> int:
        """Return the index of the answer that combines the results of all recipes."""
        if result_indexes not in self._combined_answer_cache:
            results = [self._results[index] for index in result_indexes]
            options = self._rank_options(
                result.option_index for result in results if result.option_index >= 0
            )
            reasons: tuple[int, ...] = ()
            venv_reason = -1
            if not options:
                merged = merge_reasons(rejection for result in results for rejection in result.rejections)
                reasons = tuple(self._add_text(reason.text) for reason in merged[:MAX_REASONS])
            else:
                venv_result = next(
                    result for result, recipe in zip(results, RECIPES, strict=True) if recipe is Recipe.VENV
                )
                venv_rejection = next(
                    (rejection for rejection in venv_result.rejections if rejection.reasons),
                    None,
                )
                if venv_rejection is not None:
                    venv_reason = self._add_text(venv_rejection.reasons[0].text)
            self._combined_answer_cache[result_indexes] = self._add_answer((options, reasons, venv_reason))
        return self._combined_answer_cache[result_indexes]

    def _add_option(self, option: Option, insert_placeholders: Callable[[str], str]) -> int:
        """Add an option to the table and return its index."""

        def add_texts(strings: Iterable[str]) -> tuple[int, ...]:
            return tuple(self._add_text(insert_placeholders(string)) for string in strings)

        entry = (
            option.recipe.value,
            option.tensorflow,
            option.python,
            option.cuda,
            option.cudnn or "",
            self._add_text(option.base.image if option.base is not None else ""),
            -1 if option.size_bytes is None else option.size_bytes,
            add_texts(option.commands),
            add_texts(caveat.text for caveat in option.caveats if caveat.is_serious),
            add_texts(caveat.text for caveat in option.caveats if not caveat.is_serious),
        )
        index = _intern(self._option_indexes, self.table.options, entry, entry)
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
        return _intern(self._text_indexes, self.table.texts, text, text)

    def _add_answer(self, answer: Answer) -> int:
        return _intern(self._answer_indexes, self.table.answers, answer, answer)


def _intern(index_by_key: dict[T, int], values: list[Any], key: T, value: Any) -> int:
    """Return the index in `values` of the value for `key`. If the key is new, append `value`."""
    if key not in index_by_key:
        index_by_key[key] = len(values)
        values.append(value)
    return index_by_key[key]


def _insert_reason_placeholders(reason: Reason, insert_placeholders: Callable[[str], str]) -> Reason:
    return replace(reason, text=insert_placeholders(reason.text))
