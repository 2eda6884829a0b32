"""TFD313, known-problem."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    context,
    healthy,
    run,
    with_cards,
    with_python,
    with_tensorflow,
)
from tfdoctor.compat import Compat
from tfdoctor.core.facts import Unknown
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.rules import (
    known_problem,
)


def test_problem_depends_on_release_and_gpu():
    assert not run(known_problem.RULE, with_cards(healthy("2.21.0"), "8.6")).findings
    outcome = run(known_problem.RULE, with_cards(healthy("2.21.0"), "12.0"))
    assert "xla-does-not-know-blackwell" in str(outcome.findings)
    # TFD111 reports this in more detail, based on the machine.
    assert not run(known_problem.RULE, with_cards(healthy("2.18.1"), "12.0")).findings


def test_check_of_an_unknown_release_could_not_run():
    facts = with_tensorflow(healthy(), version="2.30.0")
    assert run(known_problem.RULE, facts).kind is OutcomeKind.COULD_NOT_CHECK


@pytest.mark.parametrize(
    ("conditions", "is_present"),
    [
        ({}, True),
        ({"python": "==3.11.7"}, True),
        ({"python": "<2"}, False),
        ({"platform": "linux"}, True),
        ({"platform": "windows"}, False),
        ({"capability": ">=9.0"}, True),
        ({"capability": "<9.0"}, False),
        ({"capability": "odd"}, False),
        ({"extra": "and-cuda"}, True),
        ({"platform": "linux", "python": "<2"}, False),
        ({"unheard-of": "1"}, False),
    ],
)
def test_every_condition_must_hold(conditions, is_present):
    facts = with_python(healthy(), installed={"nvidia-cudnn-cu12": "9.3.0"})
    problem = replace(Compat.load().problems[0], id="any", conditions=conditions)
    assert known_problem.is_problem_present(context(facts), problem) is is_present


@pytest.mark.parametrize("conditions", [{"python": ">=2"}, {"extra": "and-cuda"}])
def test_condition_on_an_unknown_python_is_not_met(conditions):
    problem = replace(Compat.load().problems[0], conditions=conditions)
    without_python = context(replace(healthy(), python=Unknown("not asked")))
    assert not known_problem.is_problem_present(without_python, problem)
