"""`tfdoctor recommend` on the command line."""

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
from tfdoctor.cli.machine import select_host
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.planning import Recipe, Request, recommend
from tfdoctor.planning.arguments import make_plan
from tfdoctor.prediction.fit.models import Host, HostGpu
from tfdoctor.render.paragraphs import Page
from tfdoctor.render.plan import format_bytes, print_option, render_recommendation

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
ADA_MACHINE = ("--gpu", "RTX 4090", "--driver", "530.30.02")


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    return Tfdoctor(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("--gpu", "8.6"), 0),
        (("--gpu", "Tesla K80", "--driver", "470.82"), 0),
        (("--gpu", "8.6", "--driver", "390"), 1),
        (("--tf", "1.14", *ADA_MACHINE), 1),
        (("--tf", "2.10", "--python-version", "3.12", "--gpu", "8.6"), 1),
        (("--tf", "2.10", "--python-version", "3.10.13", "--gpu", "10de:2204", "--method", "container"), 0),
        (("--tf", "2.15.0.post1", "--gpu", "RTX 3060", "--gpu", "7.5", "--method", "pip"), 0),
        (("--tf", "==2.15.*", "--gpu", "12.0", "--driver", "470.82"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_json_follows_the_schema(tfdoctor: Tfdoctor, args: tuple[str, ...], status: int) -> None:
    result = tfdoctor("recommend", "--json", *args)
    assert (result.status, result.err) == (status, "")
    validate(result.json, "recommend")
    assert (result.json["conflict"] is not None) is (status == 1)
    assert [option["rank"] for option in result.json["options"]] == list(
        range(1, len(result.json["options"]) + 1)
    )


def test_schema_requires_options_or_a_conflict(tfdoctor: Tfdoctor) -> None:
    answer: dict[str, Any] = tfdoctor("recommend", "--json", "--gpu", "8.6").json
    for invalid in ({**answer, "options": []}, {**answer, "conflict": {"reasons": [], "nearest": []}}):
        with pytest.raises(jsonschema.ValidationError):
            validate(invalid, "recommend")
    del answer["options"][0]["reasons"]
    with pytest.raises(jsonschema.ValidationError):
        validate(answer, "recommend")


def test_conflict_has_a_cause_and_alternatives(tfdoctor: Tfdoctor) -> None:
    answer = tfdoctor("recommend", "--json", "--tf", "1.14", *ADA_MACHINE).json
    assert answer["conflict"]["reasons"][0]["cause"] == Cause.GPU_TOO_NEW.value
    bases = [alternative["option"]["base_image"] for alternative in answer["conflict"]["nearest"]]
    assert "nvcr.io/nvidia/tensorflow:23.03-tf1-py3" in bases
    text_result = tfdoctor("recommend", "--tf", "1.14", *ADA_MACHINE)
    assert text_result.status == 1
    assert f"tfdoctor build --tf 1.15.5 --recipe ngc {shlex.join(ADA_MACHINE)}\n" in re.sub(
        r" \\\n +", " ", text_result.out
    )
    other_card = next(
        alternative
        for alternative in answer["conflict"]["nearest"]
        if alternative["text"].startswith("a different card")
    )
    assert "--gpu" not in other_card["option"]["commands"][0]


def test_recorded_machine(tfdoctor: Tfdoctor) -> None:
    result = tfdoctor("recommend", "--json", "--from", str(HOSTS / "kepler-k40"))
    validate(result.json, "recommend")
    assert result.json["host"]["gpus"][0]["compute_capability"] == "3.5"
    with_driver = tfdoctor("recommend", "--json", "--from", str(HOSTS / "kepler-k40"), "--driver", "390.157")
    assert with_driver.json["host"]["driver"] == "390.157"


def test_this_machine_without_a_network(tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX, f"asked {address}"
        connect(self, address)

    def refuse_names(*args: Any, **kwargs: Any) -> None:
        pytest.fail(f"looked up {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse_names)
    result = tfdoctor("recommend", "--json")
    assert result.status in (0, 1)
    validate(result.json, "recommend")


def test_recommend_is_fast(tfdoctor: Tfdoctor) -> None:
    tfdoctor("recommend", "--gpu", "8.6")  # load the tables
    start = time.process_time()
    assert tfdoctor("recommend", "--gpu", "8.6", "--driver", "550.54.14").status == 0
    assert time.process_time() - start < 1.5
    start = time.process_time()
    assert tfdoctor("recommend", "--gpu", "8.6", "--driver", "390").status == 1
    assert time.process_time() - start < 6, "all releases in all ways, and all ways out"


@pytest.mark.parametrize("text", ["GTX 1060,GTX 1080", "8.6, 8.9", "T4 and V100", "T4 + V100"])
def test_several_gpus_need_several_options(tfdoctor: Tfdoctor, text: str) -> None:
    result = tfdoctor("recommend", "--gpu", text)
    assert result.status == 2
    assert "Several cards: --gpu once for each." in result.err


def test_reasons_are_joined_to_one_sentence(tfdoctor: Tfdoctor) -> None:
    result = tfdoctor("recommend", "--gpu", "A100", "--driver", "470.256.02", "-v")
    output = " ".join(result.out.split())
    assert "still installs libcudnn8; " in output
    assert ".;" not in output


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
        (("--python-version", "3", "--gpu", "8.6"), "--python-version"),
        (("--python-version", "v3.11", "--gpu", "8.6"), "--python-version"),
        (("--python-version", "3.11rc1", "--gpu", "8.6"), "--python-version"),
        (("--python-version", "three", "--gpu", "8.6"), "--python-version"),
        (("--method", "conda"), "--method"),
        (("--from", "/nowhere"), "/nowhere"),
        (("--from", "/nowhere", "--gpu", "8.6"), "--from"),
        (("--no-such-option",), "--no-such-option"),
    ],
    ids=lambda value: ascii(" ".join(value)) if isinstance(value, tuple) else value,
)
def test_invalid_request_is_refused(tfdoctor: Tfdoctor, args: tuple[str, ...], word: str) -> None:
    result = tfdoctor("recommend", *args)
    assert (result.status, result.out) == (2, "")
    assert word in result.err
    assert "Traceback" not in result.err
    assert is_clean(result.err)
    json_result = tfdoctor("recommend", "--json", *args)
    assert (json_result.status, json_result.err) == (2, "")
    validate(json_result.json, "error")
    assert json_result.json["error"]["code"] == 2


# ---------------------------------------------------------------- text output


def list_commands(answer: Any) -> set[str]:
    """Return the commands of all options and of the nearest alternatives."""
    options = list(answer.options)
    options += [
        alternative.option for alternative in (answer.conflict.suggestions if answer.conflict else ())
    ]
    return {command for option in options for command in option.commands}


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("verbose", [False, True])
def test_output_fits_the_width_except_commands(width: int, verbose: bool) -> None:
    compat = Compat.load()
    for tensorflow, host in (
        (None, Host(cards=(HostGpu("GeForce RTX 3060", "8.6"),), driver="550.54.14")),
        ("1.14", Host(cards=(HostGpu("GeForce RTX 4090", "8.9"),))),
        ("2.16.1", Host()),
    ):
        answer = recommend(compat, Request(tensorflow=tensorflow), host)
        text = render_recommendation(answer, verbose=verbose, width=width)
        assert is_clean(text)
        commands = list_commands(answer)
        lines = re.sub(r" \\\n +", " ", text).splitlines()  # join continued lines
        assert answer.options[3:] or commands <= {line.strip() for line in lines}, (
            "a command is never wrapped"
        )
        long_lines = [line for line in lines if len(line) > max(width, 20) and line.strip() not in commands]
        # An image's name is one word: nothing wraps it.
        assert all(re.search(r"\S{15,}", line) for line in long_lines)
        assert width < 80 or not [
            line for line in long_lines if line.strip().split()[0] not in ("tfdoctor", "uv")
        ]


def test_control_characters_of_names_are_removed() -> None:
    card = HostGpu("\x1b[31mRTX\u202e 3060\n\x07", "8.6")
    answer = recommend(Compat.load(), Request(base="x"), Host(cards=(card,), driver="550"))
    assert is_clean(render_recommendation(answer, verbose=True))
    page = Page(80, coloured=False)
    print_option(page, answer.options[0], complete=True)
    assert is_clean(page.text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 kB"), (1500, "2 kB"), (130_000_000, "130 MB"), (6_100_000_000, "6.1 GB"), (-1, "0 kB")],
)
def test_size_text(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_newest_supported_capability_is_named() -> None:
    """Name the newest compute capability that the release supports if no GPU is known."""
    text = render_recommendation(recommend(Compat.load(), Request(tensorflow="1.14"), Host()))
    assert "1 CUDA 10.0 supports GPUs up to compute capability 7.5" in " ".join(text.split())
    turing = Host(cards=(HostGpu("Tesla T4", "7.5"),))
    assert "supports GPUs up to" not in render_recommendation(
        recommend(Compat.load(), Request(tensorflow="1.14"), turing)
    )


@pytest.mark.parametrize("card", ["RTX 5090", "RTX 3060", "Tesla K80", "H100"])
@pytest.mark.parametrize("driver", [None, "535"])
def test_commands_have_the_machine_options(tfdoctor: Tfdoctor, card: str, driver: str | None) -> None:
    """Repeat the machine's options in the commands, so that they give the same release anywhere."""
    machine_options = ["--gpu", card, *(["--driver", driver] if driver else [])]
    answer = tfdoctor("recommend", "--json", *machine_options).json
    for option in answer["options"][:3]:
        arguments = shlex.split(option["commands"][0])
        assert arguments[-len(machine_options) :] == machine_options
        recipe = (
            Recipe(arguments[arguments.index("--recipe") + 1]) if "--recipe" in arguments else Recipe.VENV
        )
        request = Request(arguments[arguments.index("--tf") + 1], recipe=recipe, method=recipe.method)
        host = select_host(Compat.load(), gpus=[card], driver=driver, recording_path=None)
        assert make_plan(Compat.load(), request, host).options[0].tensorflow == option["tensorflow"]


def test_footnotes_belong_to_the_releases() -> None:
    answer = recommend(Compat.load(), Request(), Host(cards=(HostGpu("GeForce RTX 5090", "12.0"),)))
    text = render_recommendation(answer)
    releases = re.findall(r"^([✓!]) (\S+) .*?((?:\d, )*\d)$", text, re.MULTILINE)
    notes = re.findall(r"^  (\d)  ", text, re.MULTILINE)
    assert len(releases) == 3
    assert sorted({number for _, _, numbers in releases for number in numbers.split(", ")}) == notes
    for option, (sign, release, numbers) in zip(answer.options, releases, strict=False):
        assert (sign == "!", release) == (bool(option.serious_count), option.tensorflow)
        assert len(numbers.split(", ")) >= option.serious_count
    for width in (70, 80, 120):
        wide = render_recommendation(answer, width=width)
        assert all(len(line) <= width for line in wide.splitlines())
        assert "tfdoctor install --tf 2.21.0" in wide


def test_old_driver_is_the_reason() -> None:
    """Ignore problems of releases that the user did not request."""
    host = Host(cards=(HostGpu("GeForce RTX 4090", "8.9"),), driver="470.82")
    text = " ".join(render_recommendation(recommend(Compat.load(), Request(), host)).split())
    assert re.findall("Why (.{20})", text) == ["driver 470.82 is old"]


def test_reasons_of_a_release_are_one_sentence() -> None:
    answer = recommend(Compat.load(), Request(), Host(cards=(HostGpu("GeForce RTX 5090", "12.0"),)))
    assert ".;" not in render_recommendation(answer, verbose=True)


@pytest.mark.parametrize(
    "arguments",
    [["recommend", "--gpu", "T4"], ["verify", "--python", "/usr/bin/python3", "--simulate", "T4"]],
)
def test_driver_branch_newer_than_the_tables_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    tfdoctor = Tfdoctor(monkeypatch, capsys)
    result = tfdoctor(*arguments, "--driver", "999")
    assert result.status == 2
    assert "no driver of branch 999 is known" in result.err
    assert tfdoctor("recommend", "--gpu", "T4", "--driver", "600.10.01").status == 0


def test_release_without_tested_packages_is_not_said_to_have_no_wheel(tfdoctor: Tfdoctor) -> None:
    result = tfdoctor("recommend", "--tf", "2.22.0rc0", "--gpu", "RTX 4090")
    text = " ".join(result.out.split())
    assert "no pinned and tested packages exist for TensorFlow 2.22.0rc0" in text
    assert "no wheel" not in text


def test_machine_options_are_printed_once(tfdoctor: Tfdoctor) -> None:
    """A suggestion of another release repeats the GPU and the driver of the request, in its words, and once."""
    answer = tfdoctor("recommend", "--json", "--tf", "1.14", "--gpu", "A100", "--driver", "470").json
    text = str(answer)
    assert "--gpu A100 --driver 470" in text
    assert "--gpu 8.0" not in text
    screen = " ".join(tfdoctor("recommend", "--tf", "1.14", "--gpu", "A100", "--driver", "470").out.split())
    assert "--recipe ngc --gpu A100 --driver 470" in screen
    assert "--driver 470 --gpu" not in screen


def test_images_of_different_owners_have_different_names() -> None:
    """The images of TensorFlow and of NVIDIA are both called "tensorflow", in different registries."""
    names: dict[str, str] = {}
    for version in ("1.15.5", "2.4.4", "2.14.1", "2.17.0"):
        for recipe in (Recipe.OFFICIAL, Recipe.NGC, Recipe.CUDA_BASE):
            plan = recommend(Compat.load(), Request(version, recipe=recipe), Host(), with_suggestions=False)
            for option in plan.options:
                assert option.base is not None
                text = re.sub(r"(?s).*?✓ ", "", render_recommendation(plan, width=100))
                name = re.search(r"(?:\S+'s (?:CUDA )?)?image", text)
                assert name is not None, text
                names[option.base.image.rpartition(":")[0]] = name[0]
    assert names == {
        "nvcr.io/nvidia/tensorflow": "NVIDIA's image",
        "tensorflow/tensorflow": "TensorFlow's image",
        "nvidia/cuda": "NVIDIA's CUDA image",
    }


def test_jetson_is_one_screen() -> None:
    for card in ("Jetson AGX Orin", "Jetson Nano", "GH200"):
        for version in (None, "2.15"):
            host = select_host(Compat.load(), gpus=[card], driver=None, recording_path=None)
            text = render_recommendation(recommend(Compat.load(), Request(version), host))
            assert len(text.splitlines()) <= 24, text


@pytest.mark.parametrize("words", ["recommend", "install --dry-run", "build --dry-run"])
def test_commands_agree_on_a_release_that_is_too_old_for_the_card(tfdoctor: Tfdoctor, words: str) -> None:
    """Each says that the card is too new, offers the release that works, and names the card in its command."""
    text = " ".join(tfdoctor(*words.split(), "--tf", "1.14", "--gpu", "RTX 3090").out.split())
    assert "CUDA 10.0 supports GPUs up to compute capability 7.5" in text
    assert "tfdoctor build --tf 1.15.5 --recipe ngc --gpu 'RTX 3090'" in text
