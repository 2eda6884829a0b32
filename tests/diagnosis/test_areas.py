"""The summary lines of the report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.facts import Known, value_of
from tfdoctor.diagnosis.areas import make_areas
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).resolve().parents[1] / "hosts"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"compute_capability": "7.5", "memory_mib": 15360}, "Foo (compute capability 7.5, 15 GiB)"),
        ({"compute_capability": "7.5", "memory_mib": None}, "Foo (compute capability 7.5)"),
        ({"compute_capability": None, "memory_mib": 24576}, "Foo (24 GiB)"),
        ({"compute_capability": None, "memory_mib": None}, "Foo"),
    ],
)
def test_gpu_line_has_the_known_properties(fields: dict[str, object], told: str) -> None:
    facts = run_probes(RecordedSystem(HOSTS / "healthy-one-gpu"), Compat.load())
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    device = dataclasses.replace(cuda.devices[0], name="Foo", **fields)
    fact = Known(dataclasses.replace(cuda, devices=(device,)), "cuInit")
    facts = dataclasses.replace(facts, driver=dataclasses.replace(facts.driver, cuda=fact))
    (line,) = (area.text for area in make_areas(facts, None, ()) if area.name == "GPU")
    assert line == told
