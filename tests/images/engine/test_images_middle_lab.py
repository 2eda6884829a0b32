"""Tests of real images of TensorFlow 2.10, whose wheel has no CUDA extra; see test_images_lab.py.

Opt-in, like all tests that need real wheels (TFDOCTOR_LAB=1).
"""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.images import MARKS, BuiltImage, derive_image, make, make_docker_engine, verify
from lab.same_images import assert_same_build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.engine import LabEngine

pytestmark = MARKS

PACKAGES = "/opt/tensorflow/lib/python3.9/site-packages"
MIDDLE = ("--tf", "2.10", "--python-version", "3.9", "--recipe", "pip-cuda", "--package", "colorama==0.4.6")


@pytest.fixture(scope="module")
def middle(lab_engine: LabEngine) -> Iterator[BuiltImage]:
    """Yield an image of TensorFlow 2.10 with NVIDIA's wheels for CUDA 11, on Python 3.9."""
    yield make(
        lab_engine.url, "tfdoctor-lab/middle:1", "--base", lab_engine.make_base_image("bullseye"), *MIDDLE
    )
    make_docker_engine(lab_engine).remove("tfdoctor-lab/middle:1")


def test_tensorflow_2_10_lists_two_gpus(lab_engine: LabEngine, middle: BuiltImage) -> None:
    lab_engine.set_gpu_count(2)
    code, answer = verify(lab_engine.url, middle.tag, "--stages", "visible", "--gpu-count", "2")
    assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]


def test_two_simulated_gpus_are_visible(lab_engine: LabEngine, middle: BuiltImage) -> None:
    """The two differ in compute capability, and take less than three times as long as the stand-in GPUs."""
    seconds = []
    for arguments in (("--gpu-count", "2"), ("--simulate", "A100", "--simulate", "GTX 1060")):
        lab_engine.set_gpu_count(2)
        start = time.monotonic()
        code, answer = verify(lab_engine.url, middle.tag, "--stages", "visible", *arguments)
        seconds.append(time.monotonic() - start)
        assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]
    assert seconds[1] < 3 * seconds[0], seconds


@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="an old glibc takes the package ziglang"
)
def test_an_image_computes_in_software(lab_engine: LabEngine, middle: BuiltImage) -> None:
    """TensorFlow's own kernels run in the container without a GPU."""
    code, answer = verify(lab_engine.url, middle.tag, "--simulate", "A100", "--simulate", "GTX 1060")
    stages = {stage["name"]: (stage["status"], stage["detail"]) for stage in answer["stages"]}
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
def test_problem_of_a_simulated_gpu_is_reported(
    lab_engine: LabEngine, middle: BuiltImage, card: str, driver: str | None, cause: str
) -> None:
    arguments = ("--simulate", card, *(("--driver", driver) if driver else ()))
    code, answer = verify(lab_engine.url, middle.tag, *arguments)
    assert (code, answer["verdict"]["cause"]) == (1, cause), answer


def test_damaged_file_is_reported(lab_engine: LabEngine, middle: BuiltImage) -> None:
    """The loader's cache lacks the truncated file: the hook rebuilds the cache when the container starts."""
    ground = make_docker_engine(lab_engine)
    truncate = f"RUN cd {PACKAGES}/nvidia/cublas/lib && head -c 1000000 libcublasLt.so.11 >x && mv x libcublasLt.so.11"
    add_plugin = (
        f"RUN mkdir {PACKAGES}/tensorflow-plugins && echo junk >{PACKAGES}/tensorflow-plugins/libown.so"
    )
    for steps, codes in ((truncate, ["TFD209"]), (add_plugin, ["TFD320"])):
        tag = derive_image(
            lab_engine.url, middle.tag, ground.make_image_name("other:1"), f"{steps}\nUSER 1000"
        )
        code, answer = verify(lab_engine.url, tag, "--stages", "visible")
        ground.remove(tag)
        assert (code, answer["verdict"]["cause"]) == (1, "damaged-file"), answer
        assert [finding["code"] for finding in answer["findings"]] == codes


def test_entrypoint_is_not_run(lab_engine: LabEngine, middle: BuiltImage) -> None:
    """The entrypoint hides the GPUs and is not run, which the report says."""
    ground = make_docker_engine(lab_engine)
    script = "printf '#!/bin/sh\\nCUDA_VISIBLE_DEVICES=7 exec \"$@\"\\n' >/entry && chmod 755 /entry"
    steps = f'RUN {script}\nENTRYPOINT ["tini", "--", "/entry"]'
    tag = derive_image(lab_engine.url, middle.tag, ground.make_image_name("entry:1"), steps)
    code, answer = verify(lab_engine.url, tag, "--stages", "runtime")
    ground.remove(tag)
    assert code == 0
    assert answer["stages"][0]["detail"].endswith("; its ENTRYPOINT (/entry) is not run")


@pytest.mark.skipif(not environments.is_full_run(), reason="minutes, and four gigabytes: TFDOCTOR_LAB_FULL=1")
def test_two_builds_of_wheels_give_the_same_files_and_layers(
    lab_engine: LabEngine, middle: BuiltImage, tmp_path: Path
) -> None:
    arguments = (*MIDDLE, "--base", lab_engine.make_base_image("bullseye"))
    assert_same_build(make_docker_engine(lab_engine), middle, arguments, tmp_path)
