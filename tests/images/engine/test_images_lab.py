"""Tests of real images: `tfdoctor build` makes them, `tfdoctor verify` checks them with stand-in GPUs.

Opt-in, like all tests that need real wheels (TFDOCTOR_LAB=1). The image is built once, also for other modules. The
stand-in driver answers but computes nothing, so `compute` must fail and say why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.images import (
    MARKS,
    BuiltImage,
    derive_image,
    find_failed_stage,
    find_status,
    make,
    make_docker_engine,
    verify,
)
from tfdoctor.images.engine import GpuAccess, RunRequest, connect, run

if TYPE_CHECKING:
    from pathlib import Path

    from lab.engine import LabEngine

pytestmark = MARKS

COUNT_WHEEL_BYTES = """
import glob, csv, sys
total = 0
for record in glob.glob('/opt/tensorflow/lib/python*/site-packages/*.dist-info/RECORD'):
    with open(record, newline='') as file:
        total += sum(int(row[2]) for row in csv.reader(file) if len(row) == 3 and row[2])
print(total)
"""
"""Prints the unpacked size of all wheels in bytes: their RECORD also lists files that were left out or stripped."""


def test_the_image_is_smaller_than_its_wheels(lab_engine: LabEngine, modern: BuiltImage) -> None:
    engine = connect(lab_engine.url)
    try:
        result = run(engine, RunRequest(modern.tag, ("python", "-c", COUNT_WHEEL_BYTES)))
    finally:
        engine.client.close()
    wheels = int(result.stdout)
    assert wheels > 3e9
    # Its added packages may need what an image of TensorFlow alone leaves out (cuRAND, headers): 0.96 was seen.
    assert modern.size <= 0.97 * wheels, f"{modern.size / wheels:.3f} of {wheels / 1e9:.2f} GB"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_tensorflow_lists_all_gpus(lab_engine: LabEngine, modern: BuiltImage, count: int) -> None:
    lab_engine.set_gpu_count(count)
    code, answer = verify(lab_engine.url, modern.tag, "--stages", "visible", "--gpu-count", str(count))
    assert code == 0, answer["stages"]
    assert answer["gpus"]["visible"] == count
    assert [stage["status"] for stage in answer["stages"]] == ["passed"] * 5


def test_one_of_four_gpus_is_passed(lab_engine: LabEngine, modern: BuiltImage) -> None:
    lab_engine.set_gpu_count(4)
    code, answer = verify(lab_engine.url, modern.tag, "--stages", "visible", "--devices", "2")
    assert (code, answer["gpus"]["visible"], answer["gpus"]["expected"]) == (0, 1, 1), answer["stages"]


def test_fewer_gpus_than_expected_fail(lab_engine: LabEngine, modern: BuiltImage) -> None:
    lab_engine.set_gpu_count(1)
    code, answer = verify(lab_engine.url, modern.tag, "--stages", "visible", "--gpu-count", "2")
    assert code == 1
    assert find_failed_stage(answer) == ("visible", "TensorFlow lists 1 of 2 GPUs")


def test_driver_without_a_gpu_fails(lab_engine: LabEngine, modern: BuiltImage) -> None:
    lab_engine.set_gpu_count(0)
    code, answer = verify(lab_engine.url, modern.tag)
    assert code == 1
    assert find_failed_stage(answer)[0] == "driver"
    assert answer["verdict"]["cause"] == "no-device"
    engine = connect(lab_engine.url)
    script = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    try:
        request = RunRequest(modern.tag, ("python", "-c", script), gpus=GpuAccess("gpus"))
        assert run(engine, request).stdout == "0\n"
    finally:
        engine.client.close()


def test_container_without_gpus_fails(lab_engine: LabEngine, modern: BuiltImage) -> None:
    lab_engine.set_gpu_count(1)
    code, answer = verify(lab_engine.url, modern.tag, "--devices", "none")
    assert code == 1
    assert find_failed_stage(answer)[0] == "runtime"
    assert answer["verdict"]["cause"] == "container-no-gpu"


def test_missing_library_is_reported(lab_engine: LabEngine, modern: BuiltImage) -> None:
    lab_engine.set_gpu_count(1)
    steps = "RUN rm $(find / -xdev -name 'libcusolver.so.11*') && ldconfig"
    tag = derive_image(lab_engine.url, modern.tag, "tfdoctor-lab/broken:1", steps)
    code, answer = verify(lab_engine.url, tag)
    make_docker_engine(lab_engine).remove(tag)
    assert code == 1
    name, detail = find_failed_stage(answer)
    assert name == "libraries"
    assert "libcusolver.so.11" in detail
    assert find_status(answer, "import") == "skipped"
    assert answer["findings"]


def test_compute_fails_on_a_stand_in(lab_engine: LabEngine, modern: BuiltImage) -> None:
    lab_engine.set_gpu_count(1)
    code, answer = verify(lab_engine.url, modern.tag)
    assert code == 1
    name, detail = find_failed_stage(answer)
    assert name == "compute"
    assert len(detail) > 20
    assert find_status(answer, "visible") == "passed"
    assert answer["gpus"]["computed"] == 0
    assert answer["verdict"]["cause"] not in (None, "healthy")
    assert answer["verdict"]["summary"].startswith("compute failed")


def test_build_with_a_changed_requirement_is_fast(
    lab_engine: LabEngine, modern: BuiltImage, requirements: Path
) -> None:
    requirements.write_text("colorama==0.4.6\n", encoding="ascii")
    arguments = ("--tf", "2.21", "--python-version", "3.11", "-r", str(requirements))
    rebuilt = make(
        lab_engine.url, "tfdoctor-lab/again:1", "--base", lab_engine.make_base_image("bookworm"), *arguments
    )
    make_docker_engine(lab_engine).remove(rebuilt.tag)
    assert rebuilt.seconds < 0.2 * modern.seconds, f"{rebuilt.seconds:.0f} s after {modern.seconds:.0f} s"


def test_user_of_the_image_can_install_packages(lab_engine: LabEngine, modern: BuiltImage) -> None:
    """The package is a single file, so that no network is needed."""
    project = '[project]\\nname = "own"\\nversion = "1"\\n[tool.setuptools]\\npy-modules = ["own"]\\n'
    script = (
        f"cd $(mktemp -d) && printf '{project}' >pyproject.toml && echo >own.py && "
        "pip install --quiet --no-index --no-build-isolation . && cd / && "
        "python -c 'import own; print(own.__file__)' && pip uninstall --quiet --yes colorama"
    )
    engine = connect(lab_engine.url)
    try:
        result = run(engine, RunRequest(modern.tag, ("sh", "-c", script)))
    finally:
        engine.client.close()
    assert (result.status, result.stdout) == (0, "/opt/tensorflow/lib/python3.11/site-packages/own.py\n"), (
        result.stderr
    )
