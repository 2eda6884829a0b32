"""`recommend` against everything that the tables allow, on every machine if TFDOCTOR_LAB_FULL=1, else on some."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from planning import brute
from planning.machines import COMPAT, cached_planner, list_machines, make_host
from tfdoctor.core.findings import Severity
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning import Method, Recommendation, Request, make_predicted_facts, recommend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.planning import Option

PREFIXES = [f"{major}.{minor}" for major, minors in ((1, range(4, 16)), (2, range(22))) for minor in minors]
PYTHONS = ("2.7", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
METHODS = (None, Method.PIP, Method.CONTAINER)
LAB = bool(os.environ.get("TFDOCTOR_LAB_FULL"))
STEP = 1 if LAB else 191
"""The step through the machines; it is prime to the number of drivers, so that all cards and drivers occur."""


def rank(answer: Recommendation) -> tuple[int, object]:
    """Return a sort key; lower is better, and no option is the worst."""
    if not answer.options:
        return (99, ())
    option = answer.options[0]
    return (option.serious_count, tuple(-number for number in option.release.parsed.release))


def get_top(answer: Recommendation) -> tuple[str, int] | None:
    option = answer.options[0] if answer.options else None
    return None if option is None else (option.tensorflow, option.serious_count)


def find_top(installations: list[brute.Installation]) -> tuple[str, int] | None:
    best = max(installations, key=lambda item: item.order, default=None)
    return None if best is None else (best.version, best.serious)


def find_disagreements(machine: brute.BruteMachine, python: str) -> Iterator[str]:
    """Yield each plan for a machine that differs from brute force; some requests are for this Python."""
    host, installations = make_host(machine), brute.list_installations(machine)
    plans: dict[tuple[object, ...], Option] = {}
    for method in METHODS:
        matching = [
            item
            for item in installations
            if method is None or (item.recipe == "venv") is (method is Method.PIP)
        ]
        unrestricted = recommend(COMPAT, Request(method=method), host)
        if get_top(unrestricted) != find_top(matching):
            yield f"{machine} {method}: planned {get_top(unrestricted)}, found {find_top(matching)}"
        if {option.recipe.value for option in unrestricted.options} != {item.recipe for item in matching}:
            yield f"{machine} {method}: offers {[option.recipe.value for option in unrestricted.options]}"
        for option in unrestricted.options:
            expected = find_top([item for item in matching if item.recipe == option.recipe.value])
            if (option.tensorflow, option.serious_count) != expected:
                yield f"{machine} {option.recipe.value}: {option.tensorflow} {option.serious_count}, found {expected}"
        for tf in PREFIXES:
            restricted = recommend(COMPAT, Request(tensorflow=tf, method=method), host)
            allowed = [item for item in matching if item.version.startswith(f"{tf}.")]
            if get_top(restricted) != find_top(allowed):
                yield f"{machine} {method} --tf {tf}: planned {get_top(restricted)}, found {find_top(allowed)}"
            if rank(restricted) < rank(unrestricted):
                yield f"{machine} {method}: worse than with --tf {tf}"
            plans.update({(plan.recipe, plan.tensorflow, plan.python): plan for plan in restricted.options})
    for tf in (None, "1.15", "2.4", "2.10", "2.15"):
        restricted = recommend(COMPAT, Request(tensorflow=tf, python=python), host)
        allowed = [
            item
            for item in installations
            if item.python == python and item.version.startswith(f"{tf or ''}.".lstrip("."))
        ]
        if get_top(restricted) != find_top(allowed):
            yield f"{machine} {tf} --python {python}: planned {get_top(restricted)}, found {find_top(allowed)}"
        plans.update({(plan.recipe, plan.tensorflow, plan.python): plan for plan in restricted.options})
    for option in plans.values():
        yield from find_check_errors(machine, option)


def find_check_errors(machine: brute.BruteMachine, option: Option) -> Iterator[str]:
    """Yield the errors that `check` would report for the finished plan."""
    host = make_host(machine)
    report = diagnose(make_predicted_facts(COMPAT, option, host), COMPAT)
    errors = [finding.code for finding in report.findings if finding.severity is Severity.ERROR]
    if errors or report.verdict.gpu_usable is not True:
        yield f"{machine} {option.recipe.value} {option.tensorflow}: {errors or report.verdict.summary}"


@pytest.mark.few(1)
@pytest.mark.parametrize("system", brute.DRIVERS)
@pytest.mark.timeout(36_000 if LAB else 300)
def test_plans_match_brute_force(system: str) -> None:
    """An unrestricted request gets the best option, never a worse one than a restricted request.

    A conflict means that nothing works, and each option works.
    """
    problems: list[str] = []
    with cached_planner():
        for machine, python in zip(list_machines(system)[::STEP], itertools.cycle(PYTHONS), strict=False):
            problems += find_disagreements(machine, python)
            assert len(problems) < 20, problems
    assert not problems
