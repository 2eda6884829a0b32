"""TFD313, known-problem."""

from __future__ import annotations

from rules.make_facts import (
    healthy,
    run,
    with_cards,
    with_tensorflow,
)
from tfdoctor.findings import OutcomeKind
from tfdoctor.rules import (
    known_problem,
)


def test_problems_of_this_release_and_these_cards():
    assert not run(known_problem.RULE, with_cards(healthy("2.21.0"), "8.6")).findings
    outcome = run(known_problem.RULE, with_cards(healthy("2.21.0"), "12.0"))
    assert "xla-does-not-know-blackwell" in str(outcome.findings)
    # told by TFD111 in more detail, from the machine itself
    assert not run(known_problem.RULE, with_cards(healthy("2.18.1"), "12.0")).findings


def test_problems_need_a_known_release():
    facts = with_tensorflow(healthy(), version="2.30.0")
    assert run(known_problem.RULE, facts).kind is OutcomeKind.COULD_NOT_CHECK
