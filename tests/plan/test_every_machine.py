"""`recommend` against everything that the tables allow, on every machine; without TFDOCTOR_LAB_FULL=1 on some."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from plan import brute
from plan.machines import COMPAT, host_of, machines, run_remembered
from tfdoctor.findings import Severity
from tfdoctor.plan import Method, Recommendation, Request, make_predicted_facts, recommend
from tfdoctor.report.diagnose import diagnose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.plan import Option

PREFIXES = [f"{major}.{minor}" for major, minors in ((1, range(4, 16)), (2, range(22))) for minor in minors]
PYTHONS = ("2.7", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
METHODS = (None, Method.PIP, Method.CONTAINER)
LAB = bool(os.environ.get("TFDOCTOR_LAB_FULL"))
STEP = 1 if LAB else 191
"""Every which machine; prime to the number of drivers, so that all cards and all drivers come by."""


def order(answer: Recommendation) -> tuple[int, object]:
    """Lower is better; nothing is the worst."""
    if not answer.options:
        return (99, ())
    first = answer.options[0]
    return (first.serious, tuple(-number for number in first.release.parsed.release))


def summarize_answer(answer: Recommendation) -> tuple[str, int] | None:
    first = answer.options[0] if answer.options else None
    return None if first is None else (first.tensorflow, first.serious)


def find_matches(ways: list[brute.Way]) -> tuple[str, int] | None:
    best = max(ways, key=lambda way: way.order, default=None)
    return None if best is None else (best.version, best.serious)


def wrong_of(machine: brute.Machine, python: str) -> Iterator[str]:
    """What the planner says of a machine that is not so; `python`: one that is asked for, too."""
    host, every = host_of(machine), brute.list_every(machine)
    plans: dict[tuple[object, ...], Option] = {}
    for method in METHODS:
        ways = [way for way in every if method is None or (way.recipe == "venv") is (method is Method.PIP)]
        free = recommend(COMPAT, Request(method=method), host)
        if summarize_answer(free) != find_matches(ways):
            yield f"{machine} {method}: planned {summarize_answer(free)}, found {find_matches(ways)}"
        if {option.recipe.value for option in free.options} != {way.recipe for way in ways}:
            yield f"{machine} {method}: offers {[option.recipe.value for option in free.options]}"
        for option in free.options:
            top = find_matches([way for way in ways if way.recipe == option.recipe.value])
            if (option.tensorflow, option.serious) != top:
                yield f"{machine} {option.recipe.value}: {option.tensorflow} {option.serious}, found {top}"
        for tf in PREFIXES:
            wished = recommend(COMPAT, Request(tensorflow=tf, method=method), host)
            meant = [way for way in ways if way.version.startswith(f"{tf}.")]
            if summarize_answer(wished) != find_matches(meant):
                yield f"{machine} {method} --tf {tf}: planned {summarize_answer(wished)}, found {find_matches(meant)}"
            if order(wished) < order(free):
                yield f"{machine} {method}: worse than with --tf {tf}"
            plans.update({(one.recipe, one.tensorflow, one.python): one for one in wished.options})
    for tf in (None, "1.15", "2.4", "2.10", "2.15"):
        wished = recommend(COMPAT, Request(tensorflow=tf, python=python), host)
        meant = [
            way
            for way in every
            if way.python == python and way.version.startswith(f"{tf or ''}.".lstrip("."))
        ]
        if summarize_answer(wished) != find_matches(meant):
            yield f"{machine} {tf} --python {python}: planned {summarize_answer(wished)}, found {find_matches(meant)}"
        plans.update({(one.recipe, one.tensorflow, one.python): one for one in wished.options})
    for option in plans.values():
        yield from errors_of(machine, option)


def errors_of(machine: brute.Machine, option: Option) -> Iterator[str]:
    """What `check` would say of the finished plan."""
    host = host_of(machine)
    report = diagnose(make_predicted_facts(COMPAT, option, host), COMPAT)
    bad = [finding.code for finding in report.findings if finding.severity is Severity.ERROR]
    if bad or report.verdict.gpu_usable is not True:
        yield f"{machine} {option.recipe.value} {option.tensorflow}: {bad or report.verdict.summary}"


@pytest.mark.few(1)
@pytest.mark.parametrize("system", brute.DRIVERS)
@pytest.mark.timeout(36_000 if LAB else 300)
def test_what_is_said_of_a_machine_is_so(system: str) -> None:
    """Without a wish the best there is, never worse than with one; "no way" where there is none; what works, works."""
    wrong: list[str] = []
    with run_remembered():
        for machine, python in zip(machines(system)[::STEP], itertools.cycle(PYTHONS), strict=False):
            wrong += wrong_of(machine, python)
            assert len(wrong) < 20, wrong
    assert not wrong
