"""Timing in a container: what its TensorFlow tells comes out of it, and the container is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.made import on, piece
from engine.conftest import PREFIX
from rules.make_facts import COMPAT
from tfdoctor.engine import BuildRequest, EngineError, build
from tfdoctor.verify.bench_runner import BenchWish
from tfdoctor.verify.image_bench_runner import bench_image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.engine import ContainerEngine

PARTS = [
    {"stage": "import", "tensorflow": "2.20.0"},
    on("CPU:0"),
    piece(1e-3),
    piece(2e-3, size=2048),
    {"end": True},
]
TIMES = f"""
import json, os
with open("/proc/self/cmdline") as stream:
    words = stream.read().split(chr(0))
if any(word.endswith("stages.py") for word in words):
    for part in {PARTS!r}:
        print("tfdoctor-payload:" + json.dumps(part))
    print("tfdoctor-payload:" + json.dumps({{"stage": "bench", "wish": words[-2]}}), flush=True)
    os._exit(0)
"""
"""Python in the image runs this first: in the place of TensorFlow it tells two times."""


@pytest.fixture(scope="module")
def timing_image(engine: ContainerEngine, small: str) -> Iterator[str]:
    name = f"{PREFIX}/timing:1"
    dockerfile = f"FROM {small}\nCOPY sitecustomize.py /timing/\nENV PYTHONPATH=/timing\n"
    list(build(engine, BuildRequest(dockerfile, {"sitecustomize.py": TIMES.encode()}, name)))
    yield name
    engine.remove_image(name, force=True)


def test_what_an_image_took(engine: ContainerEngine, timing_image: str) -> None:
    told: list[dict[str, object]] = []
    wish = BenchWish(5.0, devices=("CPU:0",), workloads=("matmul",))
    done = bench_image(engine, COMPAT, timing_image, None, wish, told=told.append, machine=None)
    assert [one.size for one in done.measured.runs if one.seconds] == [1024, 2048]
    assert (done.target, done.measured.tensorflow, done.measured.stopped) == (timing_image, "2.20.0", "")
    assert (done.software, done.interrupted, done.peaks) == (False, None, {})
    assert '"shortly": true' in str(told[-1]["wish"])
    left = engine.client.api.containers(all=True, filters={"ancestor": timing_image})
    assert left == []


def test_an_image_that_is_not_here(engine: ContainerEngine) -> None:
    wish = BenchWish(5.0)
    with pytest.raises(EngineError, match=f"the image {PREFIX}/none:1 is not here"):
        bench_image(engine, COMPAT, f"{PREFIX}/none:1", None, wish, told=lambda _: None, machine=None)
