"""The table of the explorer: each answer is the planner's, put together again with the names that were asked for."""

from __future__ import annotations

import shlex
from functools import cache

import pytest

from tfdoctor.compat import Compat
from tfdoctor.fit import Host
from tfdoctor.plan import Request, recommend
from tfdoctor.plan.asked import addressed, named_card
from tfdoctor.plan.verdicts import (
    ANY_CARD,
    CAPABILITY,
    DRIVER,
    NAME,
    QUOTED,
    Verdicts,
    verdicts,
)
from tfdoctor.render.html.explorer import packed

MINORS = ("2.21", "2.10", "1.15")


@cache
def table() -> Verdicts:
    """For a few cards and minors: all of it takes a minute, and tests/browser compares that."""
    return verdicts(Compat.load(), minors=MINORS, capabilities=("12.0", "8.6", "6.1"))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("minor", "python"), [("2.21", "3.11"), ("2.10", ""), ("1.15", "3.8"), ("2.21", "2.7")]
)
@pytest.mark.parametrize("card", ["GeForce RTX 5090", "GeForce RTX 3060", "Tesla P40", ""])
def test_each_driver_has_the_planners_answer(minor: str, python: str, card: str) -> None:
    compat, found = Compat.load(), table()
    capability = named_card(compat, card).capability if card else ""
    for driver in (*found.drivers, ""):
        host = Host(cards=(named_card(compat, card),) if card else (), driver=driver or None)
        answer = recommend(compat, Request(minor, python or None), host, nearest=False)
        answer = addressed(answer, [card] if card else [], driver or None)

        def text(number: int, driver: str = driver) -> str:
            said = found.texts[number].replace(NAME, card).replace(QUOTED, shlex.quote(card))
            return said.replace(CAPABILITY, capability).replace(DRIVER, driver)

        options, reasons, _ = found.answers[found.answer(minor, python, capability, driver)]
        shown = [found.options[number] for number in options]
        assert [(one[0], one[1], one[2]) for one in shown] == [
            (one.recipe.value, one.tensorflow, one.python) for one in answer.options
        ], driver
        for one, option in zip(shown, answer.options, strict=True):
            assert tuple(map(text, one[7])) == option.commands
            assert [*map(text, one[8])] == [caveat.text for caveat in option.caveats if caveat.serious]
        told = {reason.text for one in answer.rejected for reason in one.reasons}
        assert bool(reasons) is (answer.conflict is not None)
        assert {text(number) for number in reasons} <= told


def test_the_best_of_all_is_the_best_of_the_minors() -> None:
    compat, found = Compat.load(), table()
    options, _, _ = found.answers[found.answer("", "", "8.6", "550")]
    card = named_card(compat, "GeForce RTX 3060")
    best = recommend(compat, Request("2.21"), Host(cards=(card,), driver="550"), nearest=False).options[0]
    assert found.options[options[0]][:2] == (best.recipe.value, best.tensorflow)


def test_a_name_of_several_cards_is_not_in_the_table() -> None:
    found = verdicts(Compat.load(), minors=(), capabilities=None)
    names = {name for every in found.cards.values() for name in every}
    compat = Compat.load()
    assert len(names) > 500
    assert not any(named_card(compat, name).others for name in sorted(names)[::40])


def test_the_packed_table_has_a_row_for_each_driver() -> None:
    found = table()
    made = packed(found, [])
    assert made["minors"] == list(MINORS)
    for row in made["rows"]:
        assert sum(row[1::2]) in (len(found.drivers) + 1, 1)
        assert all(0 <= answer < len(made["answers"]) for answer in row[::2])
    alone = [key for key in found.cells if key[2] == ANY_CARD]
    assert ("2.21", "2.7", ANY_CARD) in alone
