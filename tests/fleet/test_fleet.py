"""Many hosts' results: which are alike, and what the odd one has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.made import answer, gather_results, with_value
from tfdoctor.causes.codes import FLEET
from tfdoctor.findings import Severity
from tfdoctor.fleet import Gathered, UnusableError, evaluate_fleet, read_result
from tfdoctor.fleet.codes import KINDS
from tfdoctor.render.fleet import fleet_json, render_fleet
from tfdoctor.render.html.fleet import fleet_html

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs/schemas/fleet.schema.json").read_text(encoding="utf-8")
)
HEALTHY = "healthy-two-gpus"


def healthy(count: int) -> dict[str, dict[str, Any]]:
    return {f"node{number:03d}": answer(HEALTHY, number) for number in range(count)}


def find_matches(answers: dict[str, dict[str, Any]], name: str) -> list[Any]:
    return [one for one in evaluate_fleet("folder", gather_results(answers)).findings if one.name == name]


def test_hosts_that_are_alike_are_one_group_and_nothing_is_found() -> None:
    told = evaluate_fleet("folder", gather_results(healthy(5)))
    assert [len(one.hosts) for one in told.groups] == [5]
    assert told.findings == ()
    assert (
        told.summary == "5 of 5 hosts answered; on all of them TensorFlow will use its GPUs; all are alike."
    )


def test_the_one_with_another_driver_is_named() -> None:
    answers = {**healthy(4), "odd": answer("driver-too-old-for-libcuda", 99)}
    told = evaluate_fleet("folder", gather_results(answers))
    assert told.groups[1].hosts == ("odd",)
    assert told.groups[1].differs["driver", "NVIDIA driver"] == ("450.80.02", "550.54.14")
    unused = next(one for one in told.findings if one.name == "gpu-unused")
    assert (unused.hosts, unused.severity) == (("odd",), Severity.ERROR)
    assert "driver-too-old" in unused.message
    assert fleet_json(told)["groups"][1]["differs"]["driver"] == "450.80.02"


def test_what_follows_from_another_difference_is_not_told() -> None:
    odd = with_value(answer(HEALTHY, 9), "driver", "NVIDIA driver", "560.1")
    odd = with_value(odd, "driver", "kernel module", "560.1")
    told = evaluate_fleet("folder", gather_results({**healthy(3), "odd": odd}))
    assert list(told.groups[1].differs) == [("driver", "NVIDIA driver")]


def test_a_hosts_own_name_in_its_paths_is_no_difference() -> None:
    answers = {
        name: with_value(one, "paths", "preloaded", f"/scratch/{name}/lib/libx.so")
        for name, one in healthy(4).items()
    }
    assert len(evaluate_fleet("folder", gather_results(answers)).groups) == 1


def test_what_seldom_matters_makes_no_group() -> None:
    odd = answer(HEALTHY, 9)
    odd["values"].append({"area": "paths", "name": "nvcc", "value": "12.9", "little": True})
    assert len(evaluate_fleet("folder", gather_results({**healthy(3), "odd": odd})).groups) == 1


def test_what_is_not_known_makes_no_group() -> None:
    odd = answer(HEALTHY, 9)
    odd["values"].append({"area": "kernel", "name": "log", "value": None, "unknown": "not permitted"})
    assert len(evaluate_fleet("folder", gather_results({**healthy(3), "odd": odd})).groups) == 1


@pytest.mark.parametrize(
    ("area", "name", "what"),
    [("TensorFlow", "TensorFlow", "TensorFlow"), ("packages", "nvidia-nccl-cu12", "NCCL")],
)
def test_versions_that_one_job_needs_alike(area: str, name: str, what: str) -> None:
    answers = {**healthy(4), "odd": with_value(answer(HEALTHY, 9), area, name, "1.2.3")}
    (one,) = find_matches(answers, "versions-differ")
    assert one.hosts == ("odd",)
    assert one.message.startswith(f"{what} is not the same everywhere")
    assert "1.2.3 on 1 host" in one.message


def make_one_card(number: int) -> dict[str, Any]:
    """A host of the healthy kind without its second card."""
    made = answer(HEALTHY, number)
    driver = made["facts"]["driver"]
    for part, key in (("nvml", "devices"), ("smi", "gpus"), ("cuda", "devices")):
        del driver[part]["known"][key][1:]
    del driver["pci"]["known"][1:]
    return made


def test_a_card_is_missing_where_nearly_all_twins_have_it() -> None:
    (one,) = find_matches({**healthy(6), "odd": make_one_card(9)}, "card-missing")
    assert one.hosts == ("odd",)
    assert "1 of this model, NVIDIA GeForce RTX 3090; its 6 twins have 2" in one.message


def test_no_card_is_missing_where_many_have_the_smaller_number() -> None:
    answers = {**healthy(6), **{f"small{number}": make_one_card(number + 20) for number in range(4)}}
    assert not find_matches(answers, "card-missing")
    assert any("4 hosts have 1" in one.message for one in find_matches(answers, "cards-differ"))


@pytest.mark.parametrize(
    ("name", "usual", "slow"),
    [
        ("lanes of PCI Express", "16", "4"),
        ("highest clock", "1980 MHz", "1410 MHz"),
        ("power limit", "400 W", "250 W"),
    ],
)
def test_a_card_that_is_slower_than_its_twins(name: str, usual: str, slow: str) -> None:
    label = f"NVIDIA GeForce RTX 3090 0: {name}"
    answers = {host: with_value(one, "cards", label, usual) for host, one in healthy(4).items()}
    assert not find_matches(answers, "card-slowed")
    answers["odd"] = with_value(answer(HEALTHY, 9), "cards", label, slow)
    (one,) = find_matches(answers, "card-slowed")
    assert one.hosts == ("odd",)


@pytest.mark.parametrize(
    ("name", "value"),
    [("MIG", "on"), ("ECC", "off"), ("compute mode", "exclusive"), ("lanes of PCI Express", "4")],
)
def test_no_difference_of_a_card_goes_untold(name: str, value: str) -> None:
    label = f"NVIDIA GeForce RTX 3090 0: {name}"
    answers = {**healthy(3), "odd": with_value(answer(HEALTHY, 9), "cards", label, value)}
    (one,) = find_matches(answers, "host-differs")
    assert (one.hosts, one.severity) == (("odd",), Severity.WARNING)
    assert f"{name} {value}, elsewhere" in one.message


def test_another_model_is_told_once() -> None:
    answers = {**healthy(3), "odd": answer("healthy-one-gpu", 9)}
    assert not [one for one in find_matches(answers, "host-differs") if "MIG" in one.message]


def test_a_card_with_faults_is_named_and_a_healthy_one_not() -> None:
    answers = {**healthy(3), "odd": answer("memory-errors-in-the-log", 9)}
    (one,) = find_matches(answers, "card-faults")
    assert one.hosts == ("odd",)


def test_the_same_card_under_two_names() -> None:
    (one,) = find_matches(
        {"a": answer(HEALTHY, 1), "b": answer(HEALTHY, 1), "c": answer(HEALTHY, 2)}, "same-card-twice"
    )
    assert one.hosts == ("a", "b")


@pytest.mark.parametrize(
    ("at", "skewed"), [(1000.0, False), (1011.0, False), (1060.0, True), (900.0, True), (None, False)]
)
def test_a_clock_is_wrong_where_it_was_outside_of_the_question(at: float | None, skewed: bool) -> None:
    made = Gathered()
    one = answer(HEALTHY, at=at)
    made.add("a", read_result(json.dumps(one).encode()), asked=999.0, came=1010.0)
    told = [one for one in evaluate_fleet("ssh", made).findings if one.name == "clock-skew"]
    assert bool(told) is skewed


def test_hosts_without_an_answer_are_told_first_and_by_kind() -> None:
    made = gather_results(healthy(2))
    made.silent("gone", "lost", "no route")
    made.silent("slow", "timeout", "")
    made.silent("odd", "failed", "what it wrote is no JSON")
    told = evaluate_fleet("ssh", made)
    assert [(one.name, one.hosts) for one in told.findings] == [
        ("host-silent", ("gone",)),
        ("host-silent", ("slow",)),
        ("answer-unusable", ("odd",)),
    ]
    assert [(one.name, one.state, one.group) for one in told.hosts] == [
        ("gone", "lost", None),
        ("node000", "ok", 1),
        ("node001", "ok", 1),
        ("odd", "failed", None),
        ("slow", "timeout", None),
    ]


@pytest.mark.parametrize(
    ("usable", "cause", "word", "message"),
    [
        (False, None, "not used", "TensorFlow will not use the GPUs"),
        (
            None,
            "libs-not-installed",
            "unknown",
            "it could not be determined whether TensorFlow uses the GPUs",
        ),
        (False, "inconclusive", "not used", "TensorFlow will not use the GPUs"),
    ],
)
def test_one_verdict_in_text_table_and_page(
    usable: bool | None, cause: str | None, word: str, message: str
) -> None:
    one = answer(HEALTHY)
    one["verdict"] = {**one["verdict"], "gpu_usable": usable, "cause": cause}
    told = evaluate_fleet("ssh", gather_results({"a": one}))
    screen, page = render_fleet(told), fleet_html(told).decode()
    assert message in screen
    assert message in page
    assert f" {word} " in screen.partition("such as")[2]
    assert word in page


LIES: list[Any] = [
    b"",
    b"hello",
    b"[" * 100_000,
    b"\xff\xfe",
    b"5",
    b"{}",
    b'{"schema_version": 1, "tool": {"name": "other"}}',
    b"x" * (5 << 20),
]


def test_a_greeting_before_the_answer_is_passed_over() -> None:
    content = json.dumps(answer(HEALTHY), indent=2).encode()
    assert read_result(b"Welcome to node7!\r\n{maintenance} on Sunday\n" + content).usable
    for rest in (content[:20_000], b"}", b"[" * 100_000):
        with pytest.raises(UnusableError):
            read_result(b"Welcome to node7!\n{\n" + rest)


@pytest.mark.parametrize("content", LIES, ids=range(len(LIES)))
def test_what_is_no_result_is_refused(content: bytes) -> None:
    with pytest.raises(UnusableError):
        read_result(content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", 2),
        ("values", None),
        ("values", [{"area": "a", "name": "b", "value": 5}]),
        ("values", [{"area": "a", "name": "b", "value": "c"}] * 4000),
        ("findings", None),
        ("facts", 5),
        ("verdict", {"gpu_usable": "yes", "cause": None, "summary": ""}),
        ("verdict", {"gpu_usable": False, "cause": "bad luck", "summary": ""}),
        ("prediction", {"gpu_registered": False, "gpu_count": 0}),
        ("prediction", {"gpu_registered": True, "gpu_count": -5}),
        ("prediction", {"gpu_registered": True, "gpu_count": True}),
        ("prediction", {"gpu_registered": True, "gpu_count": 0}),
    ],
)
def test_a_result_that_is_wrong_or_contradicts_itself_is_refused(key: str, value: object) -> None:
    assert read_result(json.dumps(answer(HEALTHY)).encode()).usable
    with pytest.raises(UnusableError):
        read_result(json.dumps(answer(HEALTHY, **{key: value})).encode())


def test_an_error_of_tfdoctor_there_is_told_in_its_words() -> None:
    content = {
        "schema_version": 1,
        "error": {"code": 2, "kind": "usage", "message": "no such Python", "hint": ""},
    }
    with pytest.raises(UnusableError, match="no such Python"):
        read_result(json.dumps(content).encode())


def test_control_characters_of_a_host_reach_no_terminal() -> None:
    odd = with_value(answer(HEALTHY, 9), "driver", "NVIDIA driver", "\x1b[31m5\x07\u202e")
    made = gather_results({**healthy(3), "odd": odd})
    made.silent("bad\x1b[2J", "failed", "why\x07")
    told = evaluate_fleet("folder", made)
    for text in (render_fleet(told, verbose=True), fleet_html(told).decode()):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(answer(HEALTHY))), JSON)
def test_no_answer_makes_the_reader_stumble(key: str, value: object) -> None:
    try:
        made = Gathered()
        made.add("a", read_result(json.dumps(answer(HEALTHY, **{key: value})).encode()))
    except UnusableError:
        return
    told = evaluate_fleet("folder", made)
    render_fleet(told)
    jsonschema.validate(fleet_json(told), SCHEMA)


def test_the_screen_stays_one_screen_however_many_kinds_there_are() -> None:
    answers = healthy(3) | {
        f"odd{number}": with_value(answer(HEALTHY, number + 50), "system", "distribution", f"Linux {number}")
        for number in range(60)
    }
    told = evaluate_fleet("folder", gather_results(answers))
    assert len(told.groups) == 61
    screen = render_fleet(told)
    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 80
    assert "in 56 more kinds" in screen
    jsonschema.validate(fleet_json(told), SCHEMA)
    assert b"odd59" in fleet_html(told)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (
            ["gpu-000-17.cluster.example.org", "gpu-odd-3.cluster.example.org"],
            ["1 gpu-000-17", "2 gpu-odd-3"],
        ),
        (["10.0.0.1", "10.1.0.1"], ["1 10.0.0.1", "2 10.1.0.1"]),
        (["a.x", "b.y"], ["1 a.x", "2 b.y"]),
    ],
)
def test_the_grid_names_what_tells_hosts_apart(names: list[str], shown: list[str]) -> None:
    usual, odd = names
    answers = {usual: answer(HEALTHY, 1), odd: answer("kernel-updated", 2)}
    screen = render_fleet(evaluate_fleet("folder", gather_results(answers)))
    assert all(f"  {one}  " in screen for one in shown)
    assert len({line.index("=") for line in screen.splitlines() if " used " in line and " = " in line}) <= 2


def test_every_name_has_a_code_and_a_page() -> None:
    assert {one.name for one in KINDS} == set(FLEET)
    assert set(SCHEMA["properties"]["findings"]["items"]["properties"]["name"]["enum"]) == set(FLEET)
