"""Real images: built by `tfdoctor build` on a real engine, verified by `tfdoctor verify` with stand-in GPUs.

Opt-in as all that needs real wheels (TFDOCTOR_LAB=1). The image is built once, for other modules too; the stand-in
driver answers and computes nothing, so `compute` has to fail, and to say why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.images import MARKS, Built, derived, docker_ground, first_failed, make, status, verify
from tfdoctor.engine import GpuAccess, RunRequest, connect, run

if TYPE_CHECKING:
    from pathlib import Path

    from lab.engine import LabEngine

pytestmark = MARKS

UNPACKED = """
import glob, csv, sys
total = 0
for record in glob.glob('/opt/tensorflow/lib/python*/site-packages/*.dist-info/RECORD'):
    with open(record, newline='') as file:
        total += sum(int(row[2]) for row in csv.reader(file) if len(row) == 3 and row[2])
print(total)
"""
"""Bytes of all wheels as they were unpacked: what is left out or stripped later is in their RECORD all the same."""


def test_the_image_is_smaller_than_its_wheels(lab_engine: LabEngine, modern: Built) -> None:
    engine = connect(lab_engine.url)
    try:
        result = run(engine, RunRequest(modern.tag, ("python", "-c", UNPACKED)))
    finally:
        engine.client.close()
    wheels = int(result.stdout)
    assert wheels > 3e9
    assert modern.size <= 0.85 * wheels, f"{modern.size / wheels:.3f} of {wheels / 1e9:.2f} GB"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_tensorflow_lists_the_gpus_that_there_are(lab_engine: LabEngine, modern: Built, count: int) -> None:
    lab_engine.gpus(count)
    code, answer = verify(lab_engine.url, modern.tag, "--stages", "visible", "--expect-gpus", str(count))
    assert code == 0, answer["stages"]
    assert answer["gpus"]["visible"] == count
    assert [one["status"] for one in answer["stages"]] == ["passed"] * 5


def test_one_of_four_is_given(lab_engine: LabEngine, modern: Built) -> None:
    lab_engine.gpus(4)
    code, answer = verify(lab_engine.url, modern.tag, "--stages", "visible", "--gpus", "2")
    assert (code, answer["gpus"]["visible"], answer["gpus"]["expected"]) == (0, 1, 1), answer["stages"]


def test_fewer_than_expected_is_a_failure(lab_engine: LabEngine, modern: Built) -> None:
    lab_engine.gpus(1)
    code, answer = verify(lab_engine.url, modern.tag, "--stages", "visible", "--expect-gpus", "2")
    assert code == 1
    assert first_failed(answer) == ("visible", "TensorFlow lists 1 of 2 GPUs")


def test_a_driver_without_a_gpu(lab_engine: LabEngine, modern: Built) -> None:
    lab_engine.gpus(0)
    code, answer = verify(lab_engine.url, modern.tag)
    assert code == 1
    assert first_failed(answer)[0] == "driver"
    assert answer["verdict"]["cause"] == "no-device"
    engine = connect(lab_engine.url)
    script = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    try:
        request = RunRequest(modern.tag, ("python", "-c", script), gpus=GpuAccess("gpus"))
        assert run(engine, request).stdout == "0\n"
    finally:
        engine.client.close()


def test_started_without_gpus(lab_engine: LabEngine, modern: Built) -> None:
    lab_engine.gpus(1)
    code, answer = verify(lab_engine.url, modern.tag, "--gpus", "none")
    assert code == 1
    assert first_failed(answer)[0] == "runtime"
    assert answer["verdict"]["cause"] == "container-no-gpu"


def test_a_library_that_was_taken_away(lab_engine: LabEngine, modern: Built) -> None:
    lab_engine.gpus(1)
    steps = "RUN rm $(find / -xdev -name 'libcusolver.so.11*') && ldconfig"
    tag = derived(lab_engine.url, modern.tag, "tfdoctor-lab/broken:1", steps)
    code, answer = verify(lab_engine.url, tag)
    docker_ground(lab_engine).remove(tag)
    assert code == 1
    name, detail = first_failed(answer)
    assert name == "libraries"
    assert "libcusolver.so.11" in detail
    assert status(answer, "import") == "skipped"
    assert answer["findings"]


def test_computing_on_a_stand_in_fails_and_says_so(lab_engine: LabEngine, modern: Built) -> None:
    lab_engine.gpus(1)
    code, answer = verify(lab_engine.url, modern.tag)
    assert code == 1
    name, detail = first_failed(answer)
    assert name == "compute"
    assert len(detail) > 20
    assert status(answer, "visible") == "passed"
    assert answer["gpus"]["computed"] == 0
    assert answer["verdict"]["cause"] not in (None, "healthy")
    assert answer["verdict"]["summary"].startswith("compute failed")


def test_a_changed_requirement_costs_little(lab_engine: LabEngine, modern: Built, requirements: Path) -> None:
    requirements.write_text("colorama==0.4.6\n", encoding="ascii")
    words = ("--tf", "2.21", "--python", "3.11", "-r", str(requirements))
    again = make(lab_engine.url, "tfdoctor-lab/again:1", "--base", lab_engine.base("bookworm"), *words)
    docker_ground(lab_engine).remove(again.tag)
    assert again.seconds < 0.2 * modern.seconds, f"{again.seconds:.0f} s after {modern.seconds:.0f} s"


def test_the_images_user_may_install_more(lab_engine: LabEngine, modern: Built) -> None:
    """No network is needed: a package of one file."""
    project = '[project]\\nname = "own"\\nversion = "1"\\n[tool.setuptools]\\npy-modules = ["own"]\\n'
    script = (
        f"cd $(mktemp -d) && printf '{project}' >pyproject.toml && echo >own.py && "
        "pip install --quiet --no-index --no-build-isolation . && cd / && "
        "python -c 'import own; print(own.__file__)' && pip uninstall --quiet --yes colorama"
    )
    engine = connect(lab_engine.url)
    try:
        done = run(engine, RunRequest(modern.tag, ("sh", "-c", script)))
    finally:
        engine.client.close()
    assert (done.status, done.stdout) == (0, "/opt/tensorflow/lib/python3.11/site-packages/own.py\n"), (
        done.stderr
    )
