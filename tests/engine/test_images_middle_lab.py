"""Real images of TensorFlow 2.10, whose wheel has no extra: as those of test_images_lab.py.

Opt-in as all that needs real wheels (TFDOCTOR_LAB=1).
"""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.images import MARKS, Built, derived, docker_ground, make, verify
from lab.same_images import same_again

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.engine import LabEngine

pytestmark = MARKS

PACKAGES = "/opt/tensorflow/lib/python3.9/site-packages"
MIDDLE = ("--tf", "2.10", "--python", "3.9", "--recipe", "pip-cuda", "--package", "colorama==0.4.6")


@pytest.fixture(scope="module")
def middle(lab_engine: LabEngine) -> Iterator[Built]:
    """With NVIDIA's wheels for CUDA 11 beside it, on Python 3.9."""
    yield make(lab_engine.url, "tfdoctor-lab/middle:1", "--base", lab_engine.base("bullseye"), *MIDDLE)
    docker_ground(lab_engine).remove("tfdoctor-lab/middle:1")


def test_tensorflow_2_10_lists_two(lab_engine: LabEngine, middle: Built) -> None:
    lab_engine.gpus(2)
    code, answer = verify(lab_engine.url, middle.tag, "--stages", "visible", "--expect-gpus", "2")
    assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]


def test_two_cards_that_are_not_there(lab_engine: LabEngine, middle: Built) -> None:
    """Of two capabilities, and in little more time than cards that are there take."""
    took = []
    for words in (("--expect-gpus", "2"), ("--simulate", "A100", "--simulate", "GTX 1060")):
        lab_engine.gpus(2)
        began = time.monotonic()
        code, answer = verify(lab_engine.url, middle.tag, "--stages", "visible", *words)
        took.append(time.monotonic() - began)
        assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]
    assert took[1] < 3 * took[0], took


@pytest.mark.skipif(not environments.list_everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="an old glibc takes the package ziglang"
)
def test_an_image_computes_in_software(lab_engine: LabEngine, middle: Built) -> None:
    """TensorFlow's own kernels in the container, without a GPU; nothing of it stays in the image."""
    code, answer = verify(lab_engine.url, middle.tag, "--simulate", "A100", "--simulate", "GTX 1060")
    stages = {one["name"]: (one["status"], one["detail"]) for one in answer["stages"]}
    assert (code, answer["verdict"]["gpu_usable"]) == (0, None), answer
    assert [stages[name][0] for name in ("visible", "compute", "cudnn")] == ["passed"] * 3, stages
    assert stages["compute"][1].startswith("in software: GPU:0 computes correctly"), stages
    assert answer["gpus"]["computed"] == 2


@pytest.mark.parametrize(
    ("card", "driver", "cause"),
    [
        pytest.param("RTX 4090", "470", "no-device", id="a driver from before the card"),
        pytest.param("GTX 680", "470", "gpu-too-old", id="no kernels for it"),
    ],
)
def test_what_a_card_that_is_not_there_would_meet(
    lab_engine: LabEngine, middle: Built, card: str, driver: str | None, cause: str
) -> None:
    words = ("--simulate", card, *(("--driver", driver) if driver else ()))
    code, answer = verify(lab_engine.url, middle.tag, *words)
    assert (code, answer["verdict"]["cause"]) == (1, cause), answer


def test_an_image_that_is_broken_in_another_way_than_the_tests_of_advice(
    lab_engine: LabEngine, middle: Built
) -> None:
    """A truncated file that the loader's cache does not have: the hook makes it anew as the container starts."""
    ground = docker_ground(lab_engine)
    half = f"RUN cd {PACKAGES}/nvidia/cublas/lib && head -c 1000000 libcublasLt.so.11 >x && mv x libcublasLt.so.11"
    plugin = f"RUN mkdir {PACKAGES}/tensorflow-plugins && echo junk >{PACKAGES}/tensorflow-plugins/libown.so"
    for steps, codes in ((half, ["TFD209"]), (plugin, ["TFD320"])):
        tag = derived(lab_engine.url, middle.tag, ground.list_named("other:1"), f"{steps}\nUSER 1000")
        code, answer = verify(lab_engine.url, tag, "--stages", "visible")
        ground.remove(tag)
        assert (code, answer["verdict"]["cause"]) == (1, "damaged-file"), answer
        assert [one["code"] for one in answer["findings"]] == codes


def test_what_an_entrypoint_does_is_not_known(lab_engine: LabEngine, middle: Built) -> None:
    """It hides the cards, and is not run: that is said."""
    ground = docker_ground(lab_engine)
    script = "printf '#!/bin/sh\\nCUDA_VISIBLE_DEVICES=7 exec \"$@\"\\n' >/entry && chmod 755 /entry"
    steps = f'RUN {script}\nENTRYPOINT ["tini", "--", "/entry"]'
    tag = derived(lab_engine.url, middle.tag, ground.list_named("entry:1"), steps)
    code, answer = verify(lab_engine.url, tag, "--stages", "runtime")
    ground.remove(tag)
    assert code == 0
    assert answer["stages"][0]["detail"].endswith("; its ENTRYPOINT (/entry) is not run")


@pytest.mark.skipif(
    not environments.list_everything(), reason="minutes, and four gigabytes: TFDOCTOR_LAB_FULL=1"
)
def test_two_builds_of_wheels_give_the_same_files_and_layers(
    lab_engine: LabEngine, middle: Built, tmp_path: Path
) -> None:
    words = (*MIDDLE, "--base", lab_engine.base("bullseye"))
    same_again(docker_ground(lab_engine), middle, words, tmp_path)
