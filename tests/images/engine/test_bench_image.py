"""Tests of timing in a container: results are reported and the container is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from extensions.bench.made import make_devices_line, make_run_line
from images.engine.conftest import PREFIX
from rules.make_facts import COMPAT
from tfdoctor.extensions.bench.image_runner import bench_image
from tfdoctor.extensions.bench.runner import BenchRequest
from tfdoctor.images.engine import BuildRequest, EngineError, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.images.engine import ContainerEngine

PARTS = [
    {"stage": "import", "tensorflow": "2.20.0"},
    make_devices_line("CPU:0"),
    make_run_line(1e-3),
    make_run_line(2e-3, size=2048),
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
"""sitecustomize.py of the test image, which reports two timings instead of running TensorFlow."""


@pytest.fixture(scope="module")
def timing_image(engine: ContainerEngine, small: str) -> Iterator[str]:
    name = f"{PREFIX}/timing:1"
    dockerfile = f"FROM {small}\nCOPY sitecustomize.py /timing/\nENV PYTHONPATH=/timing\n"
    list(build(engine, BuildRequest(dockerfile, {"sitecustomize.py": TIMES.encode()}, name)))
    yield name
    engine.remove_image(name, force=True)


def test_timings_of_an_image_are_reported(engine: ContainerEngine, timing_image: str) -> None:
    events: list[dict[str, object]] = []
    request = BenchRequest(5.0, devices=("CPU:0",), workloads=("matmul",))
    result = bench_image(engine, COMPAT, timing_image, None, request, on_line=events.append, machine=None)
    assert [timed_run.size for timed_run in result.measurements.measurements if timed_run.seconds] == [
        1024,
        2048,
    ]
    assert (result.target, result.measurements.tensorflow, result.measurements.stop_reason) == (
        timing_image,
        "2.20.0",
        "",
    )
    assert (result.is_simulated, result.interruption, result.expected_speeds) == (False, None, {})
    assert '"shortly": true' in str(events[-1]["wish"])
    containers = engine.client.api.containers(all=True, filters={"ancestor": timing_image})
    assert containers == []


def test_missing_image_raises(engine: ContainerEngine) -> None:
    request = BenchRequest(5.0)
    with pytest.raises(EngineError, match=f"the image {PREFIX}/none:1 is not here"):
        bench_image(engine, COMPAT, f"{PREFIX}/none:1", None, request, on_line=lambda _: None, machine=None)
