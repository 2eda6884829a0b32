"""Real images: built by `tfdoctor build` on a real engine, verified by `tfdoctor verify` with stand-in GPUs.

Opt-in as all that needs real wheels (TFDOCTOR_LAB=1). The images are built once and shared; the stand-in driver
answers and computes nothing, so `compute` has to fail, and to say why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab import environments, standins
from lab.engine import Unavailable, podman
from tfdoctor.engine import BuildRequest, GpuAccess, RunRequest, build, connect, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.engine import LabEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.tensorflow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(
        not environments.wanted(),
        reason="set TFDOCTOR_LAB=1 to build real images (gigabytes, minutes)",
    ),
]

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CUDA_10_0 = (
    *(f"lib{name}.so.10.0" for name in ("cudart", "cublas", "cufft", "curand", "cusolver", "cusparse")),
    "libcudnn.so.7",
)
UNPACKED = """
import glob, csv, sys
total = 0
for record in glob.glob('/opt/tensorflow/lib/python*/site-packages/*.dist-info/RECORD'):
    with open(record, newline='') as file:
        total += sum(int(row[2]) for row in csv.reader(file) if len(row) == 3 and row[2])
print(total)
"""
"""Bytes of all wheels as they were unpacked: what is left out or stripped later is in their RECORD all the same."""


@dataclass(frozen=True)
class Built:
    """An image, and what `build` said of it."""

    tag: str
    size: int
    seconds: float


def tfdoctor(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", *words],
        env={**os.environ, "DOCKER_HOST": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=2400,
    )


def make(lab: LabEngine, tag: str, *words: str) -> Built:
    began = time.monotonic()
    fixed = ("--anywhere", "--network", "host", "--ca-cert", CERTIFICATES, "--no-verify", "--json")
    done = tfdoctor(lab.url, "build", "--tag", tag, *fixed, *words)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["image"]["tags"] == [tag]
    return Built(tag, answer["image"]["size_bytes"], seconds)


def verify(url: str, image: str, *words: str) -> tuple[int, dict[str, Any]]:
    done = tfdoctor(url, "verify", image, "--json", *words)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout)


def first_failed(answer: dict[str, Any]) -> tuple[str, str]:
    """(stage, detail)."""
    return next((one["name"], one["detail"]) for one in answer["stages"] if one["status"] == "failed")


def status(answer: dict[str, Any], name: str) -> str:
    return str(next(one["status"] for one in answer["stages"] if one["name"] == name))


def derived(lab: LabEngine, base: str, tag: str, steps: str, files: dict[str, bytes] | None = None) -> str:
    engine = connect(lab.url)
    try:
        list(build(engine, BuildRequest(f"FROM {base}\nUSER root\n{steps}\n", files or {}, tag)))
    finally:
        engine.client.close()
    return tag


@pytest.fixture(scope="session")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("requirements") / "requirements.txt"


@pytest.fixture(scope="session")
def modern(lab_engine: LabEngine, requirements: Path) -> Iterator[Built]:
    """TensorFlow 2.21 with NVIDIA's wheels, on Debian's Python 3.11."""
    requirements.write_text("colorama==0.4.5\n", encoding="ascii")
    words = ("--tf", "2.21", "--python", "3.11", "-r", str(requirements))
    yield make(lab_engine, "tfdoctor-lab/modern:1", "--base", lab_engine.base("bookworm"), *words)
    remove(lab_engine, "tfdoctor-lab/modern:1")


@pytest.fixture(scope="session")
def middle(lab_engine: LabEngine) -> Iterator[Built]:
    """TensorFlow 2.10, whose wheel has no extra: NVIDIA's wheels for CUDA 11 beside it, on Python 3.9."""
    words = ("--tf", "2.10", "--python", "3.9", "--recipe", "pip-cuda")
    yield make(lab_engine, "tfdoctor-lab/middle:1", "--base", lab_engine.base("bullseye"), *words)
    remove(lab_engine, "tfdoctor-lab/middle:1")


@pytest.fixture(scope="session")
def old(
    lab_engine: LabEngine, standin_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Built]:
    """TensorFlow 1.14 on Python 2.7, as in TensorFlow's own image: with (stand-ins of) CUDA 10.0 in it."""
    folder = tmp_path_factory.mktemp("cuda")
    files = {name: standins.library(folder / name, standin_cache).read_bytes() for name in CUDA_10_0}
    steps = "COPY *.so.* /usr/local/cuda-10.0/lib64/\nRUN echo /usr/local/cuda-10.0/lib64 >/etc/ld.so.conf.d/c.conf"
    base = derived(
        lab_engine, lab_engine.base("bullseye"), "tfdoctor-lab/cuda10:1", f"{steps} && ldconfig", files
    )
    words = ("--tf", "1.14", "--python", "2.7", "--recipe", "official")
    yield make(lab_engine, "tfdoctor-lab/old:1", "--base", base, *words)
    remove(lab_engine, "tfdoctor-lab/old:1", base)


def remove(lab: LabEngine, *tags: str) -> None:
    lab.docker("rmi", "--force", *tags, check=False)
    lab.docker("image", "prune", "--force", check=False)


# ---------------------------------------------------------------- modern


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
    tag = derived(lab_engine, modern.tag, "tfdoctor-lab/broken:1", steps)
    code, answer = verify(lab_engine.url, tag)
    remove(lab_engine, tag)
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
    again = make(lab_engine, "tfdoctor-lab/again:1", "--base", lab_engine.base("bookworm"), *words)
    remove(lab_engine, again.tag)
    assert again.seconds < 0.2 * modern.seconds, f"{again.seconds:.0f} s after {modern.seconds:.0f} s"


# ---------------------------------------------------------------- older ones


def test_tensorflow_2_10_lists_two(lab_engine: LabEngine, middle: Built) -> None:
    lab_engine.gpus(2)
    code, answer = verify(lab_engine.url, middle.tag, "--stages", "visible", "--expect-gpus", "2")
    assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]


def test_tensorflow_1_14_on_python_2_lists_one(lab_engine: LabEngine, old: Built) -> None:
    lab_engine.gpus(1)
    code, answer = verify(lab_engine.url, old.tag, "--stages", "visible", "--expect-gpus", "1")
    assert (code, answer["gpus"]["visible"]) == (0, 1), answer["stages"]


def test_podman_gives_gpus_through_cdi(lab_engine: LabEngine, old: Built, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    lab_engine.docker("save", "--output", str(archive), old.tag)
    try:
        with podman(cache=lab_engine.cache, gpus=2) as url:
            engine = connect(url)
            assert engine.name == "podman"
            with archive.open("rb") as content:
                list(engine.client.api.load_image(content))
            archive.unlink()
            engine.client.close()
            code, answer = verify(url, old.tag, "--stages", "visible", "--expect-gpus", "2")
    except Unavailable as why:
        pytest.skip(str(why))
    assert (code, answer["gpus"]["visible"]) == (0, 2), answer["stages"]


# ---------------------------------------------------------------- an engine that cannot


def test_an_engine_without_the_hook(lab_engine: LabEngine, old: Built) -> None:
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
    assert first_failed(answer)[0] == "runtime"
    assert answer["verdict"]["cause"] == "no-nvidia-runtime"
    assert answer["findings"][0]["remedies"]
