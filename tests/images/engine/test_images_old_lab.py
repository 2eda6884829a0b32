"""Tests of real images of older releases (see test_images_lab.py), and of repeated builds.

Opt-in, like all tests that need real wheels (TFDOCTOR_LAB=1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.images import (
    MARKS,
    BuiltImage,
    find_failed_stage,
    make,
    make_cuda_10_image,
    make_docker_engine,
    verify,
)
from lab.same_images import assert_same_build, emit_plan
from tfdoctor.images.engine import RunRequest, connect, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.engine import LabEngine

pytestmark = MARKS

BASE = "tfdoctor-lab/cuda10:1"
OLD = ("--tf", "1.14", "--python-version", "2.7", "--recipe", "official", "--base", BASE)


@pytest.fixture(scope="module")
def old(lab_engine: LabEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    """Yield an image of TensorFlow 1.14 on Python 2.7 with stand-ins of CUDA 10.0, like TensorFlow's own image."""
    ground = make_docker_engine(lab_engine)
    assert make_cuda_10_image(ground, tmp_path_factory.mktemp("cuda")) == BASE
    yield make(lab_engine.url, "tfdoctor-lab/old:1", *OLD)
    ground.remove("tfdoctor-lab/old:1", BASE)


def test_tensorflow_1_14_on_python_2_lists_one_gpu(lab_engine: LabEngine, old: BuiltImage) -> None:
    lab_engine.set_gpu_count(1)
    code, answer = verify(lab_engine.url, old.tag, "--stages", "visible", "--gpu-count", "1")
    assert (code, answer["gpus"]["visible"]) == (0, 1), answer["stages"]


# ---------------------------------------------------------------- repeated builds


def test_plain_docker_builds_the_same_image_from_the_folder(
    lab_engine: LabEngine, old: BuiltImage, tmp_path: Path
) -> None:
    """All steps come from the engine's cache, because the steps and the files are the same."""
    folder = emit_plan(lab_engine.url, tmp_path / "context", OLD, old.tag)
    (folder / "mine.bin").write_bytes(b"0" * 100_000)  # excluded by .dockerignore
    tag = "tfdoctor-lab/plain:1"
    lab_engine.docker("build", "--network", "host", "--tag", tag, str(folder))
    ids = lab_engine.docker("image", "inspect", "--format", "{{.Id}}", old.tag, tag).stdout.split()
    make_docker_engine(lab_engine).remove(tag)
    assert ids[0] == ids[1]


@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
def test_two_builds_give_the_same_files_and_layers(
    lab_engine: LabEngine, old: BuiltImage, tmp_path: Path
) -> None:
    assert_same_build(make_docker_engine(lab_engine), old, OLD, tmp_path)


def test_any_user_has_a_home_and_a_cache(lab_engine: LabEngine, old: BuiltImage) -> None:
    script = "cd && touch mine $CUDA_CACHE_PATH/mine && pwd && python2 -m pip --version >/dev/null && id -u"
    engine = connect(lab_engine.url)
    try:
        for user in (None, "0", "1234"):
            result = run(engine, RunRequest(old.tag, ("sh", "-c", script), user=user))
            assert result.stdout.split() == ["/home/user", user or "1000"], result.stderr
    finally:
        engine.client.close()


# ---------------------------------------------------------------- an engine without GPUs


def test_engine_without_the_hook_is_reported(lab_engine: LabEngine, old: BuiltImage) -> None:
    if lab_engine.process is None:
        pytest.skip("the engine is not ours to start anew")
    lab_engine.stop()
    lab_engine.start(hook=False)
    try:
        code, answer = verify(lab_engine.url, old.tag)
    finally:
        lab_engine.stop()
        lab_engine.start()
    assert code == 1
    assert find_failed_stage(answer)[0] == "runtime"
    assert answer["verdict"]["cause"] == "no-nvidia-runtime"
    assert answer["findings"][0]["remedies"]
