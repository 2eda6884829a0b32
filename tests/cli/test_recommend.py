"""`tfdoctor recommend` at the command line."""

from __future__ import annotations

import re
import shlex
import socket
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cli.planner import Tfdoctor, is_clean, validate
from tfdoctor.cli.machine import host_for
from tfdoctor.compat import Compat
from tfdoctor.findings import Cause
from tfdoctor.fit import Card, Host
from tfdoctor.plan import Recipe, Request, recommend
from tfdoctor.plan.arguments import make_plan
from tfdoctor.render.paragraphs import Page
from tfdoctor.render.plan import render_recommendation, show_option, size_text

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
ADA = ("--gpu", "RTX 4090", "--driver", "530.30.02")


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    return Tfdoctor(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("--gpu", "8.6"), 0),
        (("--gpu", "Tesla K80", "--driver", "470.82"), 0),
        (("--gpu", "8.6", "--driver", "390"), 1),
        (("--tf", "1.14", *ADA), 1),
        (("--tf", "2.10", "--python", "3.12", "--gpu", "8.6"), 1),
        (("--tf", "2.10", "--python", "3.10.13", "--gpu", "0x2204", "--method", "container"), 0),
        (("--tf", "2.15.0.post1", "--gpu", "RTX 3060", "--gpu", "7.5", "--method", "pip"), 0),
        (("--tf", "==2.15.*", "--gpu", "12.0", "--driver", "470.82"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_json(tfdoctor: Tfdoctor, args: tuple[str, ...], status: int) -> None:
    if "0x2204" in args:  # a PCI id as lspci prints it
        args = tuple("10de:2204" if arg == "0x2204" else arg for arg in args)
    ended = tfdoctor("recommend", "--json", *args)
    assert (ended.status, ended.err) == (status, "")
    validate(ended.json, "recommend")
    assert (ended.json["conflict"] is not None) is (status == 1)
    assert [option["rank"] for option in ended.json["options"]] == list(
        range(1, len(ended.json["options"]) + 1)
    )


def test_the_schema_has_either_options_or_a_conflict(tfdoctor: Tfdoctor) -> None:
    answer: dict[str, Any] = tfdoctor("recommend", "--json", "--gpu", "8.6").json
    for wrong in ({**answer, "options": []}, {**answer, "conflict": {"reasons": [], "nearest": []}}):
        with pytest.raises(jsonschema.ValidationError):
            validate(wrong, "recommend")
    del answer["options"][0]["reasons"]
    with pytest.raises(jsonschema.ValidationError):
        validate(answer, "recommend")


def test_a_conflict_names_the_cause_and_the_way_out(tfdoctor: Tfdoctor) -> None:
    answer = tfdoctor("recommend", "--json", "--tf", "1.14", *ADA).json
    assert answer["conflict"]["reasons"][0]["cause"] == Cause.GPU_TOO_NEW.value
    bases = [one["option"]["base_image"] for one in answer["conflict"]["nearest"]]
    assert "nvcr.io/nvidia/tensorflow:23.03-tf1-py3" in bases
    told = tfdoctor("recommend", "--tf", "1.14", *ADA)
    assert told.status == 1
    assert f"tfdoctor build --tf 1.15.5 --recipe ngc {shlex.join(ADA)}\n" in re.sub(r" \\\n +", " ", told.out)
    other = next(one for one in answer["conflict"]["nearest"] if one["text"].startswith("a different card"))
    assert "--gpu" not in other["option"]["commands"][0]


def test_a_recorded_machine(tfdoctor: Tfdoctor) -> None:
    answer = tfdoctor("recommend", "--json", "--facts", str(HOSTS / "kepler-k40"))
    validate(answer.json, "recommend")
    assert answer.json["host"]["gpus"][0]["compute_capability"] == "3.5"
    named = tfdoctor("recommend", "--json", "--facts", str(HOSTS / "kepler-k40"), "--driver", "390.157")
    assert named.json["host"]["driver"] == "390.157"


def test_this_machine_without_a_network(tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX, f"asked {address}"
        connect(self, address)

    def refuse_names(*args: Any, **kwargs: Any) -> None:
        pytest.fail(f"looked up {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse_names)
    ended = tfdoctor("recommend", "--json")
    assert ended.status in (0, 1)
    validate(ended.json, "recommend")


def test_it_is_quick(tfdoctor: Tfdoctor) -> None:
    tfdoctor("recommend", "--gpu", "8.6")  # the tables are read
    began = time.process_time()
    assert tfdoctor("recommend", "--gpu", "8.6", "--driver", "550.54.14").status == 0
    assert time.process_time() - began < 1.5
    began = time.process_time()
    assert tfdoctor("recommend", "--gpu", "8.6", "--driver", "390").status == 1
    assert time.process_time() - began < 6, "all releases in all ways, and all ways out"


@pytest.mark.parametrize("text", ["GTX 1060,GTX 1080", "8.6, 8.9", "T4 and V100", "T4 + V100"])
def test_several_cards_are_named_one_by_one(tfdoctor: Tfdoctor, text: str) -> None:
    ended = tfdoctor("recommend", "--gpu", text)
    assert ended.status == 2
    assert "Several cards: --gpu once for each." in ended.err


def test_reasons_in_one_line_are_one_sentence(tfdoctor: Tfdoctor) -> None:
    ended = tfdoctor("recommend", "--gpu", "A100", "--driver", "470.256.02", "-v")
    said = " ".join(ended.out.split())
    assert "still installs libcudnn8; " in said
    assert ".;" not in said


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("--tf", "2.x"), "--tf"),
        (("--tf", ""), "--tf"),
        (("--tf", "99"), "--tf"),
        (("--tf", "\x1b[31m2"), "--tf"),
        (("--gpu", "no such card"), "--gpu"),
        (("--gpu", ""), "--gpu"),
        (("--gpu", "8..6"), "--gpu"),
        (("--gpu", "8.²"), "--gpu"),
        (("--gpu", "\x1b]0;x\x07"), "--gpu"),
        (("--driver", "new", "--gpu", "8.6"), "--driver"),
        (("--driver", "v550", "--gpu", "8.6"), "--driver"),
        (("--driver", "550\n", "--gpu", "8.6"), "--driver"),
        (("--driver", "", "--gpu", "8.6"), "--driver"),
        (("--python", "3", "--gpu", "8.6"), "--python"),
        (("--python", "v3.11", "--gpu", "8.6"), "--python"),
        (("--python", "3.11rc1", "--gpu", "8.6"), "--python"),
        (("--python", "three", "--gpu", "8.6"), "--python"),
        (("--method", "conda"), "--method"),
        (("--facts", "/nowhere"), "/nowhere"),
        (("--facts", "/nowhere", "--gpu", "8.6"), "--facts"),
        (("--no-such-option",), "--no-such-option"),
    ],
    ids=lambda value: ascii(" ".join(value)) if isinstance(value, tuple) else value,
)
def test_a_wrong_request(tfdoctor: Tfdoctor, args: tuple[str, ...], word: str) -> None:
    ended = tfdoctor("recommend", *args)
    assert (ended.status, ended.out) == (2, "")
    assert word in ended.err
    assert "Traceback" not in ended.err
    assert is_clean(ended.err)
    told = tfdoctor("recommend", "--json", *args)
    assert (told.status, told.err) == (2, "")
    validate(told.json, "error")
    assert told.json["error"]["code"] == 2


# ---------------------------------------------------------------- in a terminal


def commands_of(answer: Any) -> set[str]:
    shown = list(answer.options)
    shown += [one.option for one in (answer.conflict.nearest if answer.conflict else ())]
    return {command for option in shown for command in option.commands}


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("verbose", [False, True])
def test_widths(width: int, verbose: bool) -> None:
    compat = Compat.load()
    for wish, machine in (
        (None, Host(cards=(Card("GeForce RTX 3060", "8.6"),), driver="550.54.14")),
        ("1.14", Host(cards=(Card("GeForce RTX 4090", "8.9"),))),
        ("2.16.1", Host()),
    ):
        answer = recommend(compat, Request(tensorflow=wish), machine)
        text = render_recommendation(answer, verbose=verbose, width=width)
        assert is_clean(text)
        commands = commands_of(answer)
        lines = re.sub(r" \\\n +", " ", text).splitlines()  # continued, as a shell takes it
        assert answer.options[3:] or commands <= {line.strip() for line in lines}, (
            "a command is never wrapped"
        )
        long = [line for line in lines if len(line) > max(width, 20) and line.strip() not in commands]
        # An image's name is one word: nothing wraps it.
        assert all(re.search(r"\S{15,}", line) for line in long)
        assert width < 80 or not [line for line in long if line.strip().split()[0] not in ("tfdoctor", "uv")]


def test_hostile_names_do_nothing_to_the_terminal() -> None:
    card = Card("\x1b[31mRTX\u202e 3060\n\x07", "8.6")
    answer = recommend(Compat.load(), Request(base="x"), Host(cards=(card,), driver="550"))
    assert is_clean(render_recommendation(answer, verbose=True))
    page = Page(80, coloured=False)
    show_option(page, answer.options[0], whole=True)
    assert is_clean(page.text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 kB"), (1500, "2 kB"), (130_000_000, "130 MB"), (6_100_000_000, "6.1 GB"), (-1, "0 kB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text


def test_for_any_card_it_is_told_which_are_too_new() -> None:
    """`recommend` where no card is known, or where none is there."""
    old = render_recommendation(recommend(Compat.load(), Request(tensorflow="1.14"), Host()))
    assert "1 the libraries of CUDA 10.0 end at compute capability 7.5" in " ".join(old.split())
    turing = Host(cards=(Card("Tesla T4", "7.5"),))
    assert "end at" not in render_recommendation(recommend(Compat.load(), Request(tensorflow="1.14"), turing))


@pytest.mark.parametrize("card", ["RTX 5090", "RTX 3060", "Tesla K80", "H100"])
@pytest.mark.parametrize("driver", [None, "535"])
def test_the_commands_name_the_cards_and_the_driver_that_were_named(
    tfdoctor: Tfdoctor, card: str, driver: str | None
) -> None:
    """Wherever they are typed, and then they give what was promised."""
    where = ["--gpu", card, *(["--driver", driver] if driver else [])]
    answer = tfdoctor("recommend", "--json", *where).json
    for option in answer["options"][:3]:
        words = shlex.split(option["commands"][0])
        assert words[-len(where) :] == where
        recipe = Recipe(words[words.index("--recipe") + 1]) if "--recipe" in words else Recipe.VENV
        request = Request(words[words.index("--tf") + 1], recipe=recipe, method=recipe.method)
        host = host_for(Compat.load(), gpus=[card], driver=driver, facts=None)
        assert make_plan(Compat.load(), request, host).options[0].tensorflow == option["tensorflow"]


def test_footnotes_are_those_of_the_rows() -> None:
    answer = recommend(Compat.load(), Request(), Host(cards=(Card("GeForce RTX 5090", "12.0"),)))
    text = render_recommendation(answer)
    rows = re.findall(r"^([✓!]) (\S+) .*?((?:\d, )*\d)$", text, re.MULTILINE)
    notes = re.findall(r"^  (\d)  ", text, re.MULTILINE)
    assert len(rows) == 3
    assert sorted({number for _, _, numbers in rows for number in numbers.split(", ")}) == notes
    for option, (sign, release, numbers) in zip(answer.options, rows, strict=False):
        assert (sign == "!", release) == (bool(option.serious), option.tensorflow)
        assert len(numbers.split(", ")) >= option.serious
    for width in (70, 80, 120):
        wide = render_recommendation(answer, width=width)
        assert all(len(line) <= width for line in wide.splitlines())
        assert "tfdoctor install --tf 2.21.0" in wide


def test_a_driver_that_is_too_old_for_the_card_is_the_reason() -> None:
    """Not what speaks against releases that nobody asked for."""
    host = Host(cards=(Card("GeForce RTX 4090", "8.9"),), driver="470.82")
    text = " ".join(render_recommendation(recommend(Compat.load(), Request(), host)).split())
    assert re.findall("Why (.{20})", text) == ["driver 470.82 is old"]


def test_reasons_in_a_row_are_one_sentence() -> None:
    answer = recommend(Compat.load(), Request(), Host(cards=(Card("GeForce RTX 5090", "12.0"),)))
    assert ".;" not in render_recommendation(answer, verbose=True)
