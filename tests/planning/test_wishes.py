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
from tfdoctor.images.read.bases import find_base_contents
from tfdoctor.planning import Method, Recipe, Recommendation, Request, make_predicted_facts, recommend
from tfdoctor.planning.arguments import add_machine_arguments, make_plan, parse_gpu, parse_python_version
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
    assert (answer.cpu_remedy is not None) is (wish.answer == "old")
    if wish.answer in ("-", "old"):
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
    assert "a driver of branch 450" in text
    caveats = plan_for("--gpu A100 --driver 450").options[0].caveats
    assert any(
        "of branch 450, only driver 450.80.02 or newer works" in caveat.text and not caveat.is_serious
        for caveat in caveats
    )
    assert not any(
        "of branch" in entry.text for entry in plan_for("--gpu A100 --driver 450.80.02").options[0].caveats
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


@pytest.mark.parametrize(("card", "is_newer"), [("B300", True), ("B200", False), ("H100", False)])
def test_image_older_than_the_card_is_said_to_be(card: str, is_newer: bool) -> None:
    text = " ".join(render_plan_for(f"--gpu {card} --driver 580 --tf 2.17.0 --method container").split())
    assert ("CUDA 12.8 is older than" in text) is is_newer


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
        (
            "--gpu K80 --tf 2.15",
            ["another TensorFlow: ", "a different card, such as RTX 40 (compute capability 8.9): "],
        ),
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
        (suggestion.keeps_gpus, suggestion.keeps_driver)
        == (
            not suggestion.text.startswith("a different"),
            not suggestion.text.startswith(("a newer", "another driver")),
        )
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
    own = recommend(COMPAT, Request("2.4.3", python="3.8", recipe=Recipe.OFFICIAL, base="mine:1"), Host())
    assert own.options[0].python == "3.8"
    conflict = recommend(COMPAT, Request("2.4.3", python="3.8", recipe=Recipe.OFFICIAL), Host()).conflict
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


def render_refusal(typed: str) -> str:
    """Return the screen of a conflict on one line."""
    answer = plan_for(typed)
    assert answer.conflict is not None, typed
    return render_plan_for(typed)


@pytest.mark.parametrize(
    ("typed", "image"),
    [
        ("--gpu T4 --tf 2.15 --driver 470", "24.05-tf2-py3"),
        ("--gpu T4 --tf 1.14 --method container --driver 410", "19.10-py3"),
        ("--gpu A100 --tf 1.15.2", "20.06-tf1-py3"),
    ],
)
def test_images_of_nvidia_for_older_drivers(typed: str, image: str) -> None:
    options = plan_for(typed).options
    images = [option.base.image.rpartition(":")[2] for option in options if option.base is not None]
    assert image in images, images


def test_forward_compatibility_is_for_data_center_cards() -> None:
    assert plan_for('--gpu "RTX 2080 Ti" --tf 2.15 --driver 470').conflict is not None
    assert "branch 550 from 550.54 on runs it" in render_plan_for("--gpu GH200 --driver 550")
    assert "branch 550" not in render_plan_for("--gpu GH200 --driver 570")


def test_images_that_do_not_have_the_release_are_no_reason() -> None:
    for typed in ('--gpu "RTX 3090" --tf 1.14', '--gpu "RTX 5090" --tf 1.15'):
        conflict = plan_for(typed).conflict
        assert conflict is not None
        assert not any("is known" in reason.text for reason in conflict.reasons), conflict.reasons


def test_ambiguous_card_is_asked_for_if_only_the_alternatives_differ() -> None:
    with pytest.raises(UsageError) as error:
        plan_for('--gpu "GTX 750 Ti" --tf 2.3 --driver 470')
    hint = error.value.hint or ""
    assert "no way for TensorFlow 2.3; TensorFlow 1.4.1 works; --gpu 5.0" in hint
    assert "no way for TensorFlow 2.3; TensorFlow 2.14.1 works" in hint


def test_release_that_is_not_out_is_called_so() -> None:
    text = render_refusal('--gpu "RTX 4070" --tf 2.22')
    assert "Why TensorFlow 2.22 is not out yet: the package index has only 2.22.0rc0 → " in text


@pytest.mark.parametrize("name", ["nightly", "tf-nightly"])
def test_nightly_is_a_package_of_its_own(name: str) -> None:
    with pytest.raises(UsageError) as error:
        plan_for(f'--gpu "RTX 4090" --tf {name}')
    assert "a package of its own, tf-nightly" in error.value.message
    assert "pip install 'tf-nightly[and-cuda]'" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("name", "vendor", "advice"),
    [
        ("Radeon RX 7900 XTX", "AMD", "ROCm"),
        ("RX 580", "AMD", "ROCm"),
        ("Instinct MI300X", "AMD", "ROCm"),
        ("Intel Arc A770", "Intel", "intel-extension-for-tensorflow"),
        ("Apple M2", "Apple", "tensorflow-metal"),
        ("M5 Pro", "Apple", "tensorflow-metal"),
    ],
)
def test_other_makers_are_named(name: str, vendor: str, advice: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_gpu(COMPAT, name)
    assert f"`{name}` is by {vendor}. " in error.value.message
    assert advice in (error.value.hint or "")


def test_no_gpu_of_nvidia_is_of_another_maker() -> None:
    assert all(parse_gpu(COMPAT, gpu.name) for gpu in COMPAT.gpus)
    with pytest.raises(UsageError) as error:
        parse_gpu(COMPAT, "RX 4090")  # RTX, mistyped
    assert "RTX 4090" in (error.value.hint or "")


def test_driver_of_windows_makes_a_plan_for_wsl() -> None:
    host = select_host(COMPAT, gpus=["RTX 3060"], driver="546.12", recording_path=None)
    assert host.is_wsl
    text = render_plan_for('--gpu "RTX 3060" --driver 546.12 --tf 2.15')
    assert "a driver of Windows: this is for Linux under WSL 2, because TensorFlow 2.10 was the last" in text
    assert not select_host(COMPAT, gpus=["RTX 3060"], driver="545.23.06", recording_path=None).is_wsl


def test_card_older_than_every_release_gets_the_cpu() -> None:
    text = render_refusal('--gpu "GeForce GT 540M" --driver 390')
    assert "is older than every TensorFlow with GPU code: the oldest cards that one uses have 3.0" in text
    assert "2.21.0 ignores" not in text
    assert "Without a GPU: TensorFlow 2.21.0" in text


def test_reason_against_every_release_is_the_only_one() -> None:
    text = render_refusal("--gpu K80 --driver 535")
    assert (
        "Why driver 535 does not drive the Tesla K80: the last branch for compute capability 3.7 is 470 → "
        in text
    )
    text = render_refusal('--gpu "RTX 4070" --python-version 3.14')
    assert "Why no TensorFlow has a wheel for Python 3.14; the newest, 2.21.0, has them for 3.10, " in text
    text = render_refusal('--gpu "RTX 5090" --python-version 3.9 --method pip')
    assert "Why the newest: TensorFlow 2.21.0 has no wheel for Python 3.9" in text
    assert (
        "Why an older one: GeForce RTX 5090 (compute capability 12.0): 2.16 to 2.20 fail on Blackwell" in text
    )


def test_suggestions_keep_what_they_do_not_change() -> None:
    typed = parse_options("--gpu T4 --tf 1.15 --driver 390.157")
    answer = add_machine_arguments(plan_for("--gpu T4 --tf 1.15 --driver 390.157"), typed["gpu"], "390.157")
    assert answer.conflict is not None
    (newer_driver,) = answer.conflict.suggestions
    assert newer_driver.option.commands[0].endswith(" --gpu T4")
    answer = add_machine_arguments(plan_for('--gpu "RTX 3090" --tf 1.14 --driver 535'), ["RTX 3090"], "535")
    assert answer.conflict is not None
    commands = {item.text.partition(":")[0]: item.option.commands[0] for item in answer.conflict.suggestions}
    assert commands["another TensorFlow"].endswith(" --gpu 'RTX 3090' --driver 535")
    assert commands["a different card, such as RTX 20 (compute capability 7.5)"].endswith(
        "official --driver 535"
    )
    assert "the best TensorFlow for the GeForce RTX 3090" in commands


@pytest.mark.parametrize(
    ("tensorflow", "base", "python"),
    [
        ("2.18", "debian:12", "3.11"),
        ("2.13", "ubuntu:18.04", "3.8"),
        ("2.18", "python:3.9-slim", "3.9"),
        ("2.21", "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04", "3.12"),
        ("2.21", "ubuntu:18.04", None),
        ("2.20", "ubuntu:26.04", None),
        ("2.21", "debian:9", None),
        ("2.21", "unknown.example/base:1", "3.13"),
    ],
)
def test_python_of_the_base_is_used(tensorflow: str, base: str, python: str | None) -> None:
    contents = find_base_contents(base, COMPAT)
    assert (contents is None) == base.startswith("unknown")
    request = Request(tensorflow, method=Method.CONTAINER, base=base, base_contents=contents)
    answer = recommend(COMPAT, request, Host())
    if python is not None:
        assert answer.options[0].python == python
        assert answer.options[0].base is not None
        has_packages = base in ("debian:12", "ubuntu:18.04") or "nvidia" in base
        packages = (f"python{python}", f"python{python}-venv") if has_packages else ()
        assert answer.options[0].base.python_packages == packages
        return
    assert answer.conflict is not None
    assert answer.conflict.reasons[0].text.startswith(f"{base} has Python 3.")
    assert any(suggestion.text.startswith("another base: ") for suggestion in answer.conflict.suggestions)


def test_base_without_tensorflow_has_no_official_recipe() -> None:
    contents = find_base_contents("ubuntu:18.04", COMPAT)
    request = Request("1.14", method=Method.CONTAINER, base="ubuntu:18.04", base_contents=contents)
    assert not recommend(COMPAT, request, Host()).options
    official = recommend(COMPAT, replace(request, recipe=Recipe.OFFICIAL), Host())
    assert official.conflict is not None
    assert (
        "builds on an image of tensorflow/tensorflow, which ubuntu:18.04 is not"
        in official.conflict.reasons[0].text
    )


def test_limits_of_the_code_are_named_for_any_card() -> None:
    screen = " ".join(render_recommendation(recommend(COMPAT, Request("2.21"), Host())).split())
    assert "TensorFlow 2.21.0 has machine code for P100 to H100 (compute capability 6.0 to 9.0)" in screen
    assert "machine code for P100" not in render_plan_for("--gpu T4 --tf 2.21")


def test_machine_without_a_gpu_is_not_told_that_a_gpu_build_is_best() -> None:
    screen = render_plan_for("--from no-card-no-driver")
    assert "With a GPU" in screen
    assert "Best" not in screen
