"""`recommend` against what trying everything finds (brute.py), which shares no code with it."""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from plan import brute
from plan.wishes import ASKED, MORE, Wish
from tfdoctor.cli.machine import host_for
from tfdoctor.compat import Compat
from tfdoctor.errors import UsageError
from tfdoctor.findings import Cause
from tfdoctor.fit import Card, Host, Reason
from tfdoctor.plan import Method, Recipe, Recommendation, Request, make_predicted_facts, recommend
from tfdoctor.plan.arguments import check_python, make_plan
from tfdoctor.render.plan import recommendation_json, render_recommendation
from tfdoctor.report.diagnose import diagnose

COMPAT = Compat.load()
HOSTS = Path(__file__).parents[1] / "hosts"
LAB = bool(os.environ.get("TFDOCTOR_LAB_FULL"))


def options_of(typed: str) -> dict[str, list[str]]:
    words = shlex.split(typed)
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in zip(words[::2], words[1::2], strict=True):
        found[name.removeprefix("--")].append(value)
    return found


def answer_to(typed: str) -> Recommendation:
    given = options_of(typed)
    facts = HOSTS / given["facts"][0] if given["facts"] else None
    host = host_for(COMPAT, gpus=given["gpu"], driver=next(iter(given["driver"]), None), facts=facts)
    method = Method(given["method"][0]) if given["method"] else None
    python = check_python(next(iter(given["python"]), None))
    request = Request(tensorflow=next(iter(given["tf"]), None), python=python, method=method)
    return make_plan(COMPAT, request, host)


@pytest.mark.few(20)
@pytest.mark.parametrize("wish", [*ASKED, *MORE], ids=lambda wish: wish.typed)
def test_wishes(wish: Wish) -> None:
    if wish.answer == "ask":
        with pytest.raises(UsageError) as error:
            answer_to(wish.typed)
        assert "several cards" in error.value.message
        assert error.value.hint is not None
        assert "--gpu 3.0" in error.value.hint or "--gpu 2.1" in error.value.hint
        return
    answer = answer_to(wish.typed)
    if wish.answer == "arm64":
        assert answer.conflict is not None
        assert [reason.cause for reason in answer.conflict.reasons] == [Cause.CPU_ONLY_BUILD]
        assert not answer.conflict.nearest
        assert answer.without_gpu is not None
        return
    if wish.answer == "cpu":
        assert answer.without_gpu is not None
        assert "pip install" in answer.without_gpu.commands[-1]
        shown = render_recommendation(answer)
        assert "No NVIDIA card was found" in " ".join(shown.split())
        assert shown.index("Without a GPU") < shown.index("virtual environment")
        return
    assert answer.without_gpu is None
    if wish.answer == "-":
        assert answer.conflict is not None
        return
    first = answer.options[0]
    assert first.tensorflow == wish.answer
    assert wish.recipe in (None, first.recipe.value)


@pytest.mark.few(12)
@pytest.mark.parametrize(
    "wish", [one for one in (*ASKED, *MORE) if one.answer[0] in "12-"], ids=lambda wish: wish.typed
)
def test_the_table_is_what_trying_everything_finds(wish: Wish) -> None:
    given = options_of(wish.typed)
    machine = brute.Machine(tuple(wish.cards.split()), wish.driver, windows="wsl" in wish.typed)
    one = {name: next(iter(given[name]), None) for name in ("tf", "python", "method")}
    way = brute.best(machine, **one)
    assert (way.version if way is not None else "-") == wish.answer


# ---------------------------------------------------------------- every release by its name


def host_of(cards: tuple[str, ...], driver: str | None) -> Host:
    return Host(tuple(Card(f"compute capability {card}", card) for card in cards), driver)


def disagreements(cards: tuple[str, ...], driver: str | None, tf: str | None) -> list[str]:
    """What the planner says of a machine that is not so."""
    answer = recommend(COMPAT, Request(tensorflow=tf), host_of(cards, driver))
    way = brute.best(brute.Machine(cards, driver), tf=tf)
    what = f"{cards} {driver} --tf {tf}"
    if way is None or not answer.options:
        said = [option.tensorflow for option in answer.options]
        return [] if way is None and not said else [f"{what}: planned {said}, found {way}"]
    first = answer.options[0]
    if (first.tensorflow, first.serious) != (way.version, way.serious):
        return [f"{what}: planned {first.tensorflow} ({first.recipe.value}, {first.serious}), found {way}"]
    return []


@pytest.mark.parametrize("cards", [("7.0",), ("8.6",)])
def test_every_version_by_its_name(cards: tuple[str, ...]) -> None:
    named = [row["version"] for row in brute.releases()][:: 1 if LAB else 3]
    wrong = [text for version in {*named, "1.15.0"} for text in disagreements(cards, None, version)]
    assert not wrong


# ---------------------------------------------------------------- what is told


def summarize_answer(typed: str) -> str:
    return " ".join(render_recommendation(answer_to(typed), width=200).split())


def test_a_branch_is_its_newest_driver_and_that_is_said() -> None:
    text = summarize_answer("--gpu A100 --driver 450")
    assert "the newest driver of branch 450" in text
    caveats = answer_to("--gpu A100 --driver 450").options[0].caveats
    assert any("450.80.02 or newer is needed" in caveat.text and not caveat.serious for caveat in caveats)
    assert not any(
        "is meant" in one.text for one in answer_to("--gpu A100 --driver 450.80.02").options[0].caveats
    )


@pytest.mark.parametrize("text", ["12.4", "12", "8.6", "99.1"])
def test_a_version_of_cuda_is_no_driver(text: str) -> None:
    with pytest.raises(UsageError) as error:
        answer_to(f"--gpu A100 --driver {text}")
    assert "CUDA" in (error.value.hint or "")


def test_a_driver_that_no_longer_drives_the_card() -> None:
    answer = answer_to('--gpu "GTX 1060" --driver 590')
    assert answer.conflict is not None
    assert "the last branch for compute capability 6.1 is 580" in answer.conflict.reasons[0].text
    assert any("another driver" in one.text for one in answer.conflict.nearest)


def test_a_card_that_the_driver_shows_is_driven() -> None:
    """A table is no witness against what is seen."""
    seen = replace(host_of(("3.5",), "550.54.14"), shown=True)
    assert recommend(COMPAT, Request(), seen).options[0].tensorflow == "2.14.1"
    assert recommend(COMPAT, Request(), replace(seen, shown=False)).conflict is not None


@pytest.mark.few(0)
def test_a_name_of_several_cards_with_one_answer_is_answered() -> None:
    answer = answer_to('--gpu "Quadro M4000M"')
    assert answer.host.cards[0].others == ("5.2",)
    assert "(5.0 or 5.2)" in summarize_answer('--gpu "Quadro M4000M"')
    shown = recommendation_json(answer)["host"]["gpus"][0]
    assert (shown["compute_capability"], shown["other_compute_capabilities"]) == ("5.0", ["5.2"])


def test_the_question_says_what_it_decides() -> None:
    with pytest.raises(UsageError) as error:
        answer_to('--gpu "GTX 750 Ti"')
    hint = error.value.hint or ""
    assert "--gpu 5.0" in hint
    assert "TensorFlow 2.16.2" in hint
    assert "10de:" in hint


def test_below_wsl_it_says_so() -> None:
    assert "under WSL, where the Windows driver counts" in summarize_answer("--facts wsl2-healthy")


@pytest.mark.parametrize(
    ("typed", "image"),
    [
        ('--gpu "Jetson Orin Nano"', "25.02-tf2-py3-igpu"),
        ('--gpu "Jetson Nano"', "l4t-tensorflow:r32.7.1-tf2.7-py3"),
        ("--gpu GH200", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
        ("--gpu GB10", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
    ],
)
def test_boards_are_told_what_nvidia_has(typed: str, image: str) -> None:
    text = summarize_answer(typed)
    assert image in text
    assert "✓" not in text
    assert "not opened" in text
    assert "pip install tensorflow" in text


def test_a_card_that_other_machines_have_is_on_no_board() -> None:
    for name, capability in (
        ("NVIDIA H100", "9.0"),
        ("NVIDIA B200", "10.0"),
        ("B300", "10.3"),
        ("RTX 5090", "12.0"),
    ):
        assert COMPAT.arm64.kind_of(name, capability) is None


def test_a_machine_with_a_card_has_no_cpu_way() -> None:
    for name in ("healthy-one-gpu", "wsl2-healthy", "smi-hangs", "docker-desktop"):
        assert answer_to(f"--facts {name}").without_gpu is None


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("--facts no-card-no-driver", "tensorflow==2.21.0"),
        ("--facts no-card-no-driver --tf 1.14", "tensorflow==1.14.0"),
        ("--facts no-card-no-driver --tf 2.10 --python 3.8", "tensorflow==2.10.1"),
        ("--gpu GH200", "tensorflow"),
        ("--gpu GH200 --tf 2.18", "tensorflow==2.18.1"),
    ],
)
def test_the_way_without_a_gpu_is_to_what_was_asked_for(typed: str, wanted: str) -> None:
    way = answer_to(typed).without_gpu
    assert way is not None
    assert wanted in way.commands[-1].split()


@pytest.mark.parametrize(
    "typed", ["--gpu GH200 --tf 2.4", "--facts no-card-no-driver --tf 2.21 --python 3.8"]
)
def test_there_may_be_none(typed: str) -> None:
    assert answer_to(typed).without_gpu is None


@pytest.mark.parametrize("version", ["1.14.0", "1.15.0", "2.3.4"])
def test_check_says_why_a_card_is_not_offered_what_would_start(version: str) -> None:
    """Its kernels compile on capability 8.0, and CUDA 10's libraries end at 7.5: both commands say so."""
    told_by_plan = [reason.text for reason in _conflict(version, "8.0")]
    assert any("end at compute capability 7.5" in text for text in told_by_plan)
    option = recommend(COMPAT, Request(tensorflow=version), host_of(("7.5",), None)).options[0]
    report = diagnose(make_predicted_facts(COMPAT, option, host_of(("8.0",), None)), COMPAT)
    told_by_check = [finding.explanation for finding in report.findings if finding.code == "TFD111"]
    assert len(told_by_check) == 1
    assert "end at compute capability 7.5" in told_by_check[0]


def _conflict(version: str, card: str) -> tuple[Reason, ...]:
    answer = recommend(COMPAT, Request(tensorflow=version), host_of((card,), None))
    assert answer.conflict is not None
    return answer.conflict.reasons


def test_recipes_are_known_to_both() -> None:
    assert {*brute.RECIPES} == {recipe.value for recipe in Recipe}
