"""The explorer's answer table: each answer is the planner's, with the requested names filled in."""

from __future__ import annotations

import dataclasses
import random
from functools import cache

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.planning import Request, answer_table_builder, recommend
from tfdoctor.planning.answer_table import ANY_GPU, AnswerTable, DriverSteps, replace_placeholders
from tfdoctor.planning.answer_table_builder import build_answer_table
from tfdoctor.planning.arguments import add_machine_arguments, parse_gpu
from tfdoctor.prediction.fit.models import Host
from tfdoctor.render.html.explorer import pack_table

MINORS = ("2.21", "2.10", "1.15")
CARD_NAMES = ("GeForce RTX 5090", "GeForce RTX 3060", "Tesla P40", "")


@cache
def load_table() -> AnswerTable:
    """Return the table of a few cards and minors; the whole takes half a minute, and tests/browser compares it."""
    return build_answer_table(Compat.load(), minors=MINORS, capabilities=("12.0", "8.6", "6.1"))


def list_drivers(table: AnswerTable) -> list[str]:
    """Return each driver at which an answer may change, its neighbours, branches, partial versions and ""."""
    exact = {
        step.removesuffix(".*") if step.endswith(".*") else step
        for item in table.driver_steps.values()
        for step in item.steps
    }
    neighbours = set()
    for item in exact:
        *front, last = versions.parse_numbers(item)
        neighbours |= {".".join(map(str, (*front, last + delta))) for delta in (-1, 1) if last + delta >= 0}
        neighbours.add(f"{item}.1")
    return sorted({*exact, *neighbours, "", "100", "537", "535.183.01", "0525", "999.9"})


@pytest.mark.few(4)
@pytest.mark.parametrize("system", ["linux", "linux-2.16", "linux-2.25", "wsl", "windows", "macos"])
@pytest.mark.parametrize(
    ("minor", "python"), [("2.21", "3.11"), ("2.10", ""), ("1.15", "3.8"), ("2.21", "2.7")]
)
def test_table_answers_match_the_planner(minor: str, python: str, system: str) -> None:
    compat, table = Compat.load(), load_table()
    host_system = next(item for item in table.systems if item.key == system)
    rng = random.Random(f"{minor} {python} {system}")
    request = [(card, driver) for card in CARD_NAMES for driver in list_drivers(table)]
    for card, driver in rng.sample(request, 250):
        cards = (parse_gpu(compat, card),) if card else ()
        capability = cards[0].capability if cards else ""
        host: Host = dataclasses.replace(host_system.host, cards=cards, driver=driver or None)
        answer = recommend(compat, Request(minor, python or None), host, with_suggestions=False)
        if host_system.needs_machine_arguments:
            answer = add_machine_arguments(answer, [card] if card else [], driver or None)
        options, reasons, _ = table.answers[
            table.find_answer_index(system, minor, python, capability, driver)
        ]
        table_options = [table.options[number] for number in options]

        def text(number: int, request: tuple[str, str, str] = (card, capability, driver)) -> str:
            name, capability, driver = request
            glibc = host_system.host.glibc or ""
            return replace_placeholders(
                table.texts[number], name=name, capability=capability, driver=driver, glibc=glibc
            )

        case = (card, driver)
        assert [(item[0], item[1], item[2]) for item in table_options] == [
            (item.recipe.value, item.tensorflow, item.python) for item in answer.options
        ], case
        for item, option in zip(table_options, answer.options, strict=True):
            assert tuple(map(text, item[7])) == option.commands, case
            assert [*map(text, item[8])] == [caveat.text for caveat in option.caveats if caveat.is_serious]
            assert [*map(text, item[9])] == [
                caveat.text for caveat in option.caveats if not caveat.is_serious
            ]
        planner_reasons = {reason.text for item in answer.rejections for reason in item.reasons}
        assert bool(reasons) is (answer.conflict is not None), case
        assert {text(number) for number in reasons} <= planner_reasons, case


def test_every_option_is_in_an_answer() -> None:
    table = load_table()
    used = {number for options, _, _ in table.answers for number in options}
    unused = [option[:3] for number, option in enumerate(table.options) if number not in used]
    assert not unused


def test_best_release_without_a_minor() -> None:
    compat, table = Compat.load(), load_table()
    options, _, _ = table.answers[table.find_answer_index("linux", "", "", "8.6", "550.90.07")]
    card = parse_gpu(compat, "GeForce RTX 3060")
    best = recommend(
        compat, Request("2.21"), Host(cards=(card,), driver="550.90.07"), with_suggestions=False
    ).options[0]
    assert table.options[options[0]][:2] == (best.recipe.value, best.tensorflow)


def test_ambiguous_card_names_are_left_out() -> None:
    table = build_answer_table(Compat.load(), minors=(), capabilities=None)
    names = {name for card_names in table.gpu_names.values() for name in card_names}
    compat = Compat.load()
    assert len(names) > 500
    assert not any(parse_gpu(compat, name).other_capabilities for name in sorted(names)[::40])


def test_card_is_listed_once() -> None:
    """`GeForce RTX 3060` and `NVIDIA GeForce RTX 3060` are the same card."""
    table = build_answer_table(Compat.load(), minors=(), capabilities=None)
    short_names = [name.removeprefix("NVIDIA ").removeprefix("GeForce ") for name in table.gpu_names["8.6"]]
    assert "RTX 3060" in short_names
    assert len(short_names) == len(set(short_names))


def test_packed_table_has_an_answer_for_each_driver() -> None:
    table = load_table()
    packed = pack_table(table, [])
    assert packed["minors"] == list(MINORS)
    places = {item.answer_count for item in table.driver_steps.values()}
    for row in packed["rows"]:
        runs = [run.partition(".") for run in row.split(" ")]
        assert sum(int(times or "1", 36) for _, _, times in runs) in {*places, 1}
        assert all(0 <= int(answer, 36) < len(packed["answers"]) for answer, _, _ in runs)
    without_card = [key for key in table.answer_rows if key[3] == ANY_GPU]
    assert ("linux", "2.21", "2.7", ANY_GPU) in without_card
    assert ("macos", "2.21", "3.11", ANY_GPU) in without_card


def test_progress_has_a_count() -> None:
    calls: list[tuple[int, int, str]] = []
    build_answer_table(
        Compat.load(), lambda *progress: calls.append(progress), minors=("2.10", "2.4"), capabilities=("8.6",)
    )
    assert calls == [(1, 2, "2.10"), (2, 2, "2.4")]


def test_systems_have_every_glibc_that_lacks_some_release() -> None:
    compat = Compat.load()
    required = [
        versions.parse_numbers(glibc)[1] for glibc in answer_table_builder._list_required_glibcs(compat)
    ]
    keys = [system.key for system in answer_table_builder.list_systems(compat)]
    glibcs = [f"linux-2.{minor}" for minor in range(max(required) - 1, min(required) - 1, -1)]
    assert keys == ["linux", "wsl", "windows", "macos", *glibcs]


def test_index_of_a_driver_and_the_offered_branches() -> None:
    table = DriverSteps(("374.*", "375.*", "390.30", "450.80.02", "450.*", "525.60.13", "525.60.*"))
    assert table.branches == ("375", "450")
    drivers = (
        "100",
        "374",
        "375",
        "375.1",
        "390.30",
        "391",
        "450.80.02",
        "450.99",
        "450",
        "525.60.13",
        "525",
        "",
    )
    assert [table.find_driver_index(driver) for driver in drivers] == [0, 1, 2, 0, 3, 3, 4, 4, 5, 6, 4, 8]
