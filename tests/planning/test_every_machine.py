"""`recommend` gives the best of everything that works, on every machine if TFDOCTOR_LAB_FULL=1, else on some."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from planning.test_plan import COMPAT, find_check_errors, make_host
from tfdoctor.core import versions
from tfdoctor.planning import Method, Option, Recipe, Request, recommend
from tfdoctor.planning.recipes import RECIPES, try_recipe
from tfdoctor.prediction.fit.compatibility import list_candidates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.compat import Platform
    from tfdoctor.prediction.fit.models import Host

CARDS = (
    *((generation.capability,) for generation in COMPAT.cards.generations),
    *(("3.7", "8.0"), ("8.9", "5.0"), ("7.5", "12.0"), ("9.0", "8.0"), ("6.1", "7.0")),
)
STEP = 1 if os.environ.get("TFDOCTOR_LAB_FULL") else 97
"""The step through the machines; it is prime to the number of drivers, so that all cards and drivers occur."""


def list_drivers(system: Platform) -> list[str | None]:
    """Return None, and each driver that a table names as a minimum, the one before it, and its branch."""
    limits = {getattr(release, system) for release in COMPAT.cuda_releases} - {None}
    limits |= {image.driver for image in COMPAT.images.ngc_images} - {None}
    limits |= {entry.first_branch_without for entry in COMPAT.cards.unsupported_gpus}
    drivers: dict[str | None, None] = {None: None}
    for limit in sorted(limits, key=versions.make_sort_key):
        *front, last = versions.parse_numbers(limit)
        previous = (*front, last - 1) if last else (front[0] - 1,)
        drivers |= dict.fromkeys((".".join(map(str, previous)), limit, limit.partition(".")[0]))
    return [*drivers]


def describe_best(options: Iterable[Option]) -> tuple[int, str] | None:
    """Return the number of serious caveats and the release of the best option; None if there is none."""
    unranked = [*options]
    if not unranked:
        return None
    fewest = min(option.serious_count for option in unranked)
    best = [option.tensorflow for option in unranked if option.serious_count == fewest]
    return fewest, max(best, key=versions.parse)


def find_disagreements(host: Host) -> list[str]:
    """Return the requests for a machine whose answer is not the best of all releases and recipes."""
    works = [
        option
        for release, recipe in itertools.product(list_candidates(COMPAT, None), RECIPES)
        if isinstance(option := try_recipe(COMPAT, release, Request(), host, recipe), Option)
    ]
    machine = f"{[card.capability for card in host.cards]} {host.driver}"
    problems = []
    for method in (None, *Method):
        matching = [option for option in works if method in (None, option.method)]
        answer = recommend(COMPAT, Request(method=method), host, with_suggestions=False)
        if describe_best(answer.options[:1]) != describe_best(matching):
            problems.append(f"{machine} {method}: {answer.options[:1]}, but {describe_best(matching)}")
        for option in answer.options:
            same_recipe = [other for other in matching if other.recipe is option.recipe]
            if describe_best([option]) != describe_best(same_recipe):
                problems.append(f"{machine} {option.recipe}: {option.tensorflow}")
            problems += find_check_errors(option.release, option.recipe, host) or []
        if {option.recipe for option in answer.options} != {option.recipe for option in matching}:
            problems.append(f"{machine} {method}: {[option.recipe for option in answer.options]}")
    return problems


@pytest.mark.parametrize("is_wsl", [False, True])
@pytest.mark.timeout(36_000 if STEP == 1 else 300)
def test_best_of_all_releases_and_recipes_is_recommended(is_wsl: bool) -> None:
    """A conflict means that nothing works, and `check` would find no error in an option."""
    problems: list[str] = []
    drivers = list_drivers("windows" if is_wsl else "linux")
    for cards, driver in [*itertools.product(CARDS, drivers)][::STEP]:
        problems += find_disagreements(make_host(*cards, driver=driver, is_wsl=is_wsl))
        assert len(problems) < 20, problems
    assert not problems


def test_expected_recipes_exist() -> None:
    assert {*RECIPES} == {*Recipe}
