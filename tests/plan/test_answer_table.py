"""The table of the explorer: each answer is the planner's, put together again with the names that were asked for."""

from __future__ import annotations

import dataclasses
import random
from functools import cache

import pytest

from tfdoctor import versions
from tfdoctor.compat import Compat
from tfdoctor.fit import Host
from tfdoctor.plan import Request, recommend
from tfdoctor.plan.answer_table import ANY_CARD, Verdicts, fill_text
from tfdoctor.plan.answer_table_builder import verdicts
from tfdoctor.plan.arguments import address_commands, find_named_card
from tfdoctor.render.html.explorer import pack_table

MINORS = ("2.21", "2.10", "1.15")
CARDS = ("GeForce RTX 5090", "GeForce RTX 3060", "Tesla P40", "")


@cache
def table() -> Verdicts:
    """For a few cards and minors: all of it takes half a minute, and tests/browser compares that."""
    return verdicts(Compat.load(), minors=MINORS, capabilities=("12.0", "8.6", "6.1"))


def drivers(found: Verdicts) -> list[str]:
    """Each driver at which an answer may change, what is next to it, branches, parts of versions, and none."""
    exact = {
        step.removesuffix(".*") if step.endswith(".*") else step
        for one in found.drivers.values()
        for step in one.steps
    }
    near = set()
    for one in exact:
        *front, last = versions.numbers(one)
        near |= {".".join(map(str, (*front, last + by))) for by in (-1, 1) if last + by >= 0}
        near.add(f"{one}.1")
    return sorted({*exact, *near, "", "100", "537", "535.183.01", "0525", "999.9"})


@pytest.mark.few(4)
@pytest.mark.parametrize("system", ["linux", "linux-2.16", "linux-2.25", "wsl", "windows", "macos"])
@pytest.mark.parametrize(
    ("minor", "python"), [("2.21", "3.11"), ("2.10", ""), ("1.15", "3.8"), ("2.21", "2.7")]
)
def test_each_driver_has_the_planners_answer(minor: str, python: str, system: str) -> None:
    compat, found = Compat.load(), table()
    chosen = next(one for one in found.systems if one.word == system)
    drawn = random.Random(f"{minor} {python} {system}")
    asked = [(card, driver) for card in CARDS for driver in drivers(found)]
    for card, driver in drawn.sample(asked, 250):
        named = (find_named_card(compat, card),) if card else ()
        capability = named[0].capability if named else ""
        host: Host = dataclasses.replace(chosen.host, cards=named, driver=driver or None)
        answer = recommend(compat, Request(minor, python or None), host, nearest=False)
        if chosen.addressed:
            answer = address_commands(answer, [card] if card else [], driver or None)
        options, reasons, _ = found.answers[found.answer(system, minor, python, capability, driver)]
        shown = [found.options[number] for number in options]

        def text(number: int, asked: tuple[str, str, str] = (card, capability, driver)) -> str:
            name, capability, driver = asked
            glibc = chosen.host.glibc or ""
            return fill_text(
                found.texts[number], name=name, capability=capability, driver=driver, glibc=glibc
            )

        asking = (card, driver)
        assert [(one[0], one[1], one[2]) for one in shown] == [
            (one.recipe.value, one.tensorflow, one.python) for one in answer.options
        ], asking
        for one, option in zip(shown, answer.options, strict=True):
            assert tuple(map(text, one[7])) == option.commands, asking
            assert [*map(text, one[8])] == [caveat.text for caveat in option.caveats if caveat.serious]
            assert [*map(text, one[9])] == [caveat.text for caveat in option.caveats if not caveat.serious]
        told = {reason.text for one in answer.rejected for reason in one.reasons}
        assert bool(reasons) is (answer.conflict is not None), asking
        assert {text(number) for number in reasons} <= told, asking


def test_the_best_of_all_is_the_best_of_the_minors() -> None:
    compat, found = Compat.load(), table()
    options, _, _ = found.answers[found.answer("linux", "", "", "8.6", "550.90.07")]
    card = find_named_card(compat, "GeForce RTX 3060")
    best = recommend(compat, Request("2.21"), Host(cards=(card,), driver="550.90.07"), nearest=False).options[
        0
    ]
    assert found.options[options[0]][:2] == (best.recipe.value, best.tensorflow)


def test_a_name_of_several_cards_is_not_in_the_table() -> None:
    found = verdicts(Compat.load(), minors=(), capabilities=None)
    names = {name for every in found.cards.values() for name in every}
    compat = Compat.load()
    assert len(names) > 500
    assert not any(find_named_card(compat, name).others for name in sorted(names)[::40])


def test_a_card_is_offered_once() -> None:
    """`GeForce RTX 3060` and `NVIDIA GeForce RTX 3060` are one."""
    found = verdicts(Compat.load(), minors=(), capabilities=None)
    plain = [name.removeprefix("NVIDIA ").removeprefix("GeForce ") for name in found.cards["8.6"]]
    assert "RTX 3060" in plain
    assert len(plain) == len(set(plain))


def test_the_packed_table_has_a_row_for_each_driver() -> None:
    found = table()
    made = pack_table(found, [])
    assert made["minors"] == list(MINORS)
    places = {one.places for one in found.drivers.values()}
    for row in made["rows"]:
        runs = [run.partition(".") for run in row.split(" ")]
        assert sum(int(times or "1", 36) for _, _, times in runs) in {*places, 1}
        assert all(0 <= int(answer, 36) < len(made["answers"]) for answer, _, _ in runs)
    alone = [key for key in found.cells if key[3] == ANY_CARD]
    assert ("linux", "2.21", "2.7", ANY_CARD) in alone
    assert ("macos", "2.21", "3.11", ANY_CARD) in alone
