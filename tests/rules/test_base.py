"""The attributes of rules: needs, area of the report, and flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rules.make_facts import healthy
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause, OutcomeKind
from tfdoctor.diagnosis.areas import find_area, make_areas
from tfdoctor.prediction.stages import predict
from tfdoctor.rules import ALL_RULES, RULES_BY_CODE
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Rule, RuleContext, get_required_value

if TYPE_CHECKING:
    from tfdoctor.rules.base import Prerequisite, Result

COMPAT = Compat.load()


@pytest.fixture(scope="module")
def context() -> RuleContext:
    facts = healthy()
    return RuleContext(facts, COMPAT, predict(facts, COMPAT))


def make_rule(*needs: Prerequisite) -> Rule:
    def check(_: RuleContext) -> Result:
        calls.append("check")
        return ()

    calls.clear()
    return Rule("TFD999", "nothing", "Nothing", (Cause.INCONCLUSIVE,), check, needs=needs)


calls: list[str] = []


def met(_: RuleContext) -> None:
    calls.append("met")


def absent(_: RuleContext) -> NotApplicable:
    calls.append("absent")
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
def test_first_unmet_need_is_the_outcome(
    context: RuleContext, needs: tuple[Prerequisite, ...], kind: OutcomeKind, order: list[str]
) -> None:
    assert make_rule(*needs).run(context).kind is kind
    assert calls == order


def test_require_value_rejects_none() -> None:
    assert get_required_value(0) == 0
    with pytest.raises(LookupError):
        get_required_value(None)


def test_each_finding_is_in_a_printed_area(context: RuleContext) -> None:
    printed = {area.name for area in make_areas(context.facts, context.build, ())}
    for rule in ALL_RULES:
        is_about_report = rule.code.startswith("TFD9")
        assert (rule.summary_area is None) if is_about_report else (rule.summary_area in printed), rule.code
        finding = rule.make_finding(rule.causes[0], 0, "x")
        assert find_area(finding) == rule.summary_area
    assert RULES_BY_CODE["TFD203"].summary_area == "Loader"
    assert RULES_BY_CODE["TFD101"].summary_area == "Driver"


def test_flags_of_engine_and_python_rules() -> None:
    assert {rule.code for rule in ALL_RULES if rule.containers_only} == {
        f"TFD40{number}" for number in range(2, 7)
    }
    assert {rule.code for rule in ALL_RULES if rule.explains_broken_python} == {"TFD317", "TFD319"}


def test_rules_are_in_order_and_unique():
    codes = [rule.code for rule in ALL_RULES]
    assert codes == sorted(set(codes))
