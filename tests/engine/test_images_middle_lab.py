"""Real images of TensorFlow 2.10, whose wheel has no extra: as those of test_images_lab.py.

Opt-in as all that needs real wheels (TFDOCTOR_LAB=1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.images import MARKS, Built, docker_ground, make, verify
from lab.same_images import same_again

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.engine import LabEngine

pytestmark = MARKS

MIDDLE = ("--tf", "2.10", "--python", "3.9", "--recipe", "pip-cuda")


@pytest.fixture(scope="module")
def middle(lab_engine: LabEngine) -> Iterator[Built]:
    """With NVIDIA's wheels for CUDA 11 beside it, on Python 3.9."""
    yield make(lab_engine.url, "tfdoctor-lab/middle:1", "--base", lab_engine.base("bullseye"), *MIDDLE)
    docker_ground(lab_engine).remove("tfdoctor-lab/middle:1")


def test_tensorflow_2_10_lists_two(lab_engine: LabEngine, middle: Built) -> None:
    lab_engine.gpus(2)
    code, answer = verify(lab_engine.url, middle.tag, "--stages", "visible", "--expect-gpus", "2")
    assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]


@pytest.mark.skipif(not environments.everything(), reason="minutes, and four gigabytes: TFDOCTOR_LAB_FULL=1")
def test_two_builds_of_wheels_give_the_same_files_and_layers(
    lab_engine: LabEngine, middle: Built, tmp_path: Path
) -> None:
    words = (*MIDDLE, "--base", lab_engine.base("bullseye"))
    same_again(docker_ground(lab_engine), middle, words, tmp_path)
