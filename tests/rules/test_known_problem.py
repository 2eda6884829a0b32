"""TFD313, known-problem."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    context,
    healthy,
    run,
    with_cards,
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


def test_condition_on_the_python():
    machine = context(healthy())
    problem = replace(Compat.load().problems[0], conditions={"python": f"=={machine.python.version}"})
    assert known_problem.is_problem_present(machine, problem)
    assert not known_problem.is_problem_present(machine, replace(problem, conditions={"python": "<2"}))
    without_python = context(replace(healthy(), python=Unknown("not asked")))
    assert not known_problem.is_problem_present(without_python, problem)
