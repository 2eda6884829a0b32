"""Requests of users, and the releases that `recommend` must give them."""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from planning.wishes import FURTHER_CASES, USER_CASES, RequestCase
from tfdoctor.cli.machine import select_host
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning import Method, Recipe, Recommendation, Request, make_predicted_facts, recommend
from tfdoctor.planning.arguments import make_plan, parse_gpu, parse_python_version
from tfdoctor.prediction.fit.models import Host, HostGpu, Reason
from tfdoctor.render.plan import make_recommendation_json, render_recommendation
from tfdoctor.verification.simulate.request import parse_memory_mib

COMPAT = Compat.load()
HOSTS = Path(__file__).parents[1] / "hosts"


def parse_options(typed: str) -> dict[str, list[str]]:
    arguments = shlex.split(typed)
    options: dict[str, list[str]] = defaultdict(list)
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        options[name.removeprefix("--")].append(value)
    return options


def plan_for(typed: str) -> Recommendation:
    options = parse_options(typed)
    recording = HOSTS / options["from"][0] if options["from"] else None
    host = select_host(
        COMPAT, gpus=options["gpu"], driver=next(iter(options["driver"]), None), recording_path=recording
    )
    method = Method(options["method"][0]) if options["method"] else None
    python = parse_python_version(next(iter(options["python-version"]), None))
    request = Request(tensorflow=next(iter(options["tf"]), None), python=python, method=method)
    return make_plan(COMPAT, request, host)


@pytest.mark.few(20)
@pytest.mark.parametrize("wish", [*USER_CASES, *FURTHER_CASES], ids=lambda wish: wish.typed)
def test_request_gets_the_expected_release(wish: RequestCase) -> None:
    if wish.answer == "ask":
        with pytest.raises(UsageError) as error:
            plan_for(wish.typed)
        assert "several cards" in error.value.message
        assert error.value.hint is not None
        assert "--gpu 3.0" in error.value.hint or "--gpu 2.1" in error.value.hint
        return
    answer = plan_for(wish.typed)
    if wish.answer == "arm64":
        assert answer.conflict is not None
        assert [reason.cause for reason in answer.conflict.reasons] == [Cause.CPU_ONLY_BUILD]
        assert not answer.conflict.suggestions
        assert answer.cpu_remedy is not None
        return
    if wish.answer == "cpu":
        assert answer.cpu_remedy is not None
        assert "pip install" in answer.cpu_remedy.commands[-1]
        screen = render_recommendation(answer)
        assert "No NVIDIA GPU found here" in " ".join(screen.split())
        assert screen.index("Without a GPU") < screen.index("virtual environment")
        return
    assert answer.cpu_remedy is None
    if wish.answer == "-":
        assert answer.conflict is not None
        return
    first = answer.options[0]
    assert first.tensorflow == wish.answer
    assert wish.recipe in (None, first.recipe.value)


def make_host(cards: tuple[str, ...], driver: str | None) -> Host:
    return Host(tuple(HostGpu(f"compute capability {card}", card) for card in cards), driver)


# ---------------------------------------------------------------- texts


def render_plan_for(typed: str) -> str:
    return " ".join(render_recommendation(plan_for(typed), width=200).split())


def test_driver_branch_means_its_newest_version() -> None:
    text = render_plan_for("--gpu A100 --driver 450")
    assert "the newest driver of branch 450" in text
    caveats = plan_for("--gpu A100 --driver 450").options[0].caveats
    assert any(
        "driver branch 450 must be 450.80.02 or newer" in caveat.text and not caveat.is_serious
        for caveat in caveats
    )
    assert not any(
        "driver branch" in entry.text
        for entry in plan_for("--gpu A100 --driver 450.80.02").options[0].caveats
    )


@pytest.mark.parametrize("text", ["12.4", "12", "8.6", "99.1"])
def test_cuda_version_is_no_driver(text: str) -> None:
    with pytest.raises(UsageError) as error:
        plan_for(f"--gpu A100 --driver {text}")
    assert "CUDA" in (error.value.hint or "")


def test_driver_without_support_for_the_card() -> None:
    answer = plan_for('--gpu "GTX 1060" --driver 590')
    assert answer.conflict is not None
    assert "the last branch for compute capability 6.1 is 580" in answer.conflict.reasons[0].text
    assert any("another driver" in request.text for request in answer.conflict.suggestions)


def test_card_shown_by_the_driver_is_supported() -> None:
    """An observation outweighs a table."""
    host = replace(make_host(("3.5",), "550.54.14"), has_driver_gpus=True)
    assert recommend(COMPAT, Request(), host).options[0].tensorflow == "2.14.1"
    assert recommend(COMPAT, Request(), replace(host, has_driver_gpus=False)).conflict is not None


@pytest.mark.few(0)
def test_ambiguous_card_with_one_answer_is_planned() -> None:
    answer = plan_for('--gpu "Quadro M4000M"')
    assert answer.host.cards[0].other_capabilities == ("5.2",)
    assert "(5.0 or 5.2)" in render_plan_for('--gpu "Quadro M4000M"')
    gpu = make_recommendation_json(answer)["host"]["gpus"][0]
    assert (gpu["compute_capability"], gpu["other_compute_capabilities"]) == ("5.0", ["5.2"])


def test_ambiguous_card_error_explains_the_choices() -> None:
    with pytest.raises(UsageError) as error:
        plan_for('--gpu "GTX 750 Ti"')
    hint = error.value.hint or ""
    assert "--gpu 5.0" in hint
    assert "TensorFlow 2.16.2" in hint
    assert "10de:" in hint


def test_wsl_is_named() -> None:
    assert "under WSL, where the Windows driver counts" in render_plan_for("--from wsl2-healthy")


@pytest.mark.parametrize(
    ("typed", "image"),
    [
        ('--gpu "Jetson Orin Nano"', "25.02-tf2-py3-igpu"),
        ('--gpu "Jetson Nano"', "l4t-tensorflow:r32.7.1-tf2.7-py3"),
        ("--gpu GH200", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
        ("--gpu GB10", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
    ],
)
def test_arm_boards_get_the_image_of_nvidia(typed: str, image: str) -> None:
    text = render_plan_for(typed)
    assert image in text
    assert "✓" not in text
    assert "(not tested by tfdoctor)" in text
    assert "More: add -v (" in text
    assert "pip install tensorflow" in text


def test_x86_cards_are_no_arm_boards() -> None:
    for name, capability in (
        ("NVIDIA H100", "9.0"),
        ("NVIDIA B200", "10.0"),
        ("B300", "10.3"),
        ("RTX 5090", "12.0"),
    ):
        assert COMPAT.arm64.find_kind(name, capability) is None


def test_machine_with_a_gpu_gets_no_cpu_option() -> None:
    for name in ("healthy-one-gpu", "wsl2-healthy", "smi-hangs", "docker-desktop"):
        assert plan_for(f"--from {name}").cpu_remedy is None


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("--from no-card-no-driver", "tensorflow==2.21.0"),
        ("--from no-card-no-driver --tf 1.14", "tensorflow==1.14.0"),
        ("--from no-card-no-driver --tf 2.10 --python-version 3.8", "tensorflow==2.10.1"),
        ("--gpu GH200", "tensorflow"),
        ("--gpu GH200 --tf 2.18", "tensorflow==2.18.1"),
    ],
)
def test_cpu_option_installs_the_requested_release(typed: str, wanted: str) -> None:
    option = plan_for(typed).cpu_remedy
    assert option is not None
    assert wanted in option.commands[-1].split()


@pytest.mark.parametrize(
    "typed", ["--gpu GH200 --tf 2.4", "--from no-card-no-driver --tf 2.21 --python-version 3.8"]
)
def test_cpu_option_can_be_missing(typed: str) -> None:
    assert plan_for(typed).cpu_remedy is None


@pytest.mark.parametrize("version", ["1.14.0", "1.15.0", "2.3.4"])
def test_check_and_plan_agree_on_cuda_10_libraries(version: str) -> None:
    """Its kernels compile on capability 8.0, and CUDA 10's libraries end at 7.5: both commands report it."""
    plan_texts = [reason.text for reason in _conflict_reasons(version, "8.0")]
    assert any("GPUs up to compute capability 7.5" in text for text in plan_texts)
    option = recommend(COMPAT, Request(tensorflow=version), make_host(("7.5",), None)).options[0]
    report = diagnose(make_predicted_facts(COMPAT, option, make_host(("8.0",), None)), COMPAT)
    check_texts = [finding.explanation for finding in report.findings if finding.code == "TFD111"]
    assert len(check_texts) == 1
    assert "GPUs up to compute capability 7.5" in check_texts[0]


def _conflict_reasons(version: str, card: str) -> tuple[Reason, ...]:
    answer = recommend(COMPAT, Request(tensorflow=version), make_host((card,), None))
    assert answer.conflict is not None
    return answer.conflict.reasons


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        ("--gpu T4 --tf 1.15 --method pip", ["another method: ", "the best TensorFlow "]),
        (
            "--gpu T4 --tf 2.10 --python-version 3.12",
            ["another Python: ", "another TensorFlow: ", "the best TensorFlow "],
        ),
        (
            "--gpu T4 --tf 1.14 --python-version 3.12 --method pip",
            ["another method and another Python: ", "the best TensorFlow "],
        ),
        ("--gpu K80 --tf 2.15", ["another TensorFlow: ", "a different card: "]),
        ("--gpu A100 --driver 450 --tf 2.15", ["another TensorFlow: ", "a newer driver, "]),
        ("--gpu K80 --driver 525", ["another driver, of branch 470 "]),
    ],
)
def test_suggestions_relax_one_thing_each(typed: str, texts: list[str]) -> None:
    conflict = plan_for(typed).conflict
    assert conflict is not None
    suggested = [suggestion.text for suggestion in conflict.suggestions]
    assert 0 < len(suggested) <= 4
    missing = [text for text in texts if not any(suggestion.startswith(text) for suggestion in suggested)]
    assert not missing, suggested
    assert all(
        suggestion.is_same_machine
        is not suggestion.text.startswith(("a newer", "another driver", "a different"))
        for suggestion in conflict.suggestions
    )


def test_choices_of_an_ambiguous_card_have_examples() -> None:
    with pytest.raises(UsageError) as error:
        plan_for('--gpu "GTX 750 Ti"')
    first, second = (part for part in (error.value.hint or "").split("; ") if "--gpu" in part)
    assert ("--gpu 3.0" in first, "--gpu 5.0" in second) == (True, True), error.value.hint
    ids = [part.partition("10de:")[2][:4] for part in (first, second)]
    capabilities = [gpu.capability if (gpu := COMPAT.find_gpu_by_pci_id(pci_id)) else None for pci_id in ids]
    assert capabilities == ["3.0", "5.0"]


@pytest.mark.parametrize(
    ("text", "name", "others"),
    [
        ("8.6", "compute capability 8.6", ()),
        ("10de:2684", "NVIDIA GeForce RTX 4090", ()),
        ("rtx 4090", "GeForce RTX 4090", ()),
        ("GTX 750 Ti", "GeForce GTX 750 Ti", ("5.0",)),
        ("OEM", "OEM", ("2.1", "3.0", "5.2", "8.6")),
        ("4090", COMPAT.find_gpus_by_name("4090").gpus[0].name, ()),  # type: ignore[union-attr]
    ],
)
def test_names_of_gpus(text: str, name: str, others: tuple[str, ...]) -> None:
    card = parse_gpu(COMPAT, text)
    assert (card.name, card.other_capabilities) == (name, others)


def test_base_of_the_user_may_have_another_python() -> None:
    own = recommend(COMPAT, Request("2.4.4", python="3.8", recipe=Recipe.OFFICIAL, base="mine:1"), Host())
    assert own.options[0].python == "3.8"
    conflict = recommend(COMPAT, Request("2.4.4", python="3.8", recipe=Recipe.OFFICIAL), Host()).conflict
    assert conflict is not None
    assert "has Python 3.6, and not 3.8" in conflict.reasons[0].text
    newest = recommend(COMPAT, Request("1.4.1", recipe=Recipe.PIP_CUDA, base="mine:1"), Host())
    assert newest.options or newest.conflict


@pytest.mark.parametrize(
    ("text", "name", "memory"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20),
        ("H100 MIG 1g.10gb", "H100 MIG 1g.10gb", 10),
        ("A100 mig 1g.5gb+me", "NVIDIA A100 MIG 1g.5gb+me", 5),
    ],
)
def test_mig_instance_is_a_gpu(text: str, name: str, memory: int) -> None:
    gpu = parse_gpu(COMPAT, text)
    assert gpu.name == name
    assert gpu.capability == ("9.0" if "H100" in text else "8.0")
    assert parse_memory_mib(gpu) == memory << 10
    options = recommend(COMPAT, Request(), Host(cards=(gpu,)), with_suggestions=False).options
    assert any("one MIG instance" in caveat.text for caveat in options[0].caveats)
    with pytest.raises(UsageError):
        parse_gpu(COMPAT, "MIG 3g.20gb")


def test_own_builds_of_nvidia_are_an_answer() -> None:
    host = Host(cards=(parse_gpu(COMPAT, "GB10"),), machine="aarch64")
    assert recommend(COMPAT, Request(), host).has_other_builds
    assert not recommend(COMPAT, Request(tensorflow="2.21"), host).has_other_builds
    assert not recommend(COMPAT, Request(), Host(machine="aarch64")).has_other_builds
