"""What a rule declares: what it needs, where its findings show, what they go with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rules.make_facts import healthy
from tfdoctor.compat import Compat
from tfdoctor.findings import Cause, OutcomeKind
from tfdoctor.predict import predict
from tfdoctor.report.areas import find_area, make_areas
from tfdoctor.rules import ALL_RULES, RULE_OF
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Rule, RuleContext, require_value

if TYPE_CHECKING:
    from tfdoctor.rules.base import Need, Result

COMPAT = Compat.load()


@pytest.fixture(scope="module")
def context() -> RuleContext:
    facts = healthy()
    return RuleContext(facts, COMPAT, predict(facts, COMPAT))


def rule(*needs: Need) -> Rule:
    def check(_: RuleContext) -> Result:
        asked.append("check")
        return ()

    asked.clear()
    return Rule("TFD999", "nothing", "Nothing", (Cause.INCONCLUSIVE,), check, needs=needs)


asked: list[str] = []


def met(_: RuleContext) -> None:
    asked.append("met")


def absent(_: RuleContext) -> NotApplicable:
    asked.append("absent")
    return NotApplicable("there is none")


def unknown(_: RuleContext) -> CouldNotCheck:
    return CouldNotCheck("nobody knows")


def crashes(_: RuleContext) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("needs", "kind", "order"),
    [
        ((), OutcomeKind.CLEAN, ["check"]),
        ((met, met), OutcomeKind.CLEAN, ["met", "met", "check"]),
        ((met, absent, met, unknown), OutcomeKind.NOT_APPLICABLE, ["met", "absent"]),
        ((unknown, absent), OutcomeKind.COULD_NOT_CHECK, []),
        ((crashes, met), OutcomeKind.CRASHED, []),
    ],
)
def test_the_first_need_that_is_not_met_is_the_outcome(
    context: RuleContext, needs: tuple[Need, ...], kind: OutcomeKind, order: list[str]
) -> None:
    assert rule(*needs).run(context).kind is kind
    assert asked == order


def test_what_a_need_has_made_sure_of() -> None:
    assert require_value(0) == 0
    with pytest.raises(LookupError):
        require_value(None)


def test_each_finding_shows_in_an_area_that_is_printed(context: RuleContext) -> None:
    printed = {area.name for area in make_areas(context.facts, context.build, ())}
    for one in ALL_RULES:
        about_the_report = one.code.startswith("TFD9")
        assert (one.shown_in is None) if about_the_report else (one.shown_in in printed), one.code
        finding = one.finding(one.causes[0], 0, "x")
        assert find_area(finding) == one.shown_in
    assert RULE_OF["TFD203"].shown_in == "Loader"
    assert RULE_OF["TFD101"].shown_in == "Driver"


def test_what_is_beside_and_what_tells_of_the_python() -> None:
    assert {one.code for one in ALL_RULES if one.beside} == {f"TFD40{number}" for number in range(2, 7)}
    assert {one.code for one in ALL_RULES if one.no_python} == {"TFD317", "TFD319"}


def test_rules_are_in_order_and_unique():
    codes = [rule.code for rule in ALL_RULES]
    assert codes == sorted(set(codes))
