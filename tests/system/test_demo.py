"""The recorded machines that come with tfdoctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recorded import HOSTS
from tfdoctor.core.errors import UsageError
from tfdoctor.core.toml import loads
from tfdoctor.system import RecordedSystem
from tfdoctor.system.archive import DEMO_PREFIX, DEMOS, read_recording

ROOT = Path(__file__).resolve().parents[2]


def test_the_package_ships_each() -> None:
    project = loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    expected = {f"tests/hosts/{name}": f"tfdoctor/_data/demo/{name}" for name in DEMOS}
    assert {source: target for source, target in shipped.items() if "/demo/" in target} == expected


@pytest.mark.parametrize("name", DEMOS)
def test_it_can_be_read_by_name(name: str) -> None:
    assert read_recording(Path(DEMO_PREFIX + name)) == read_recording(HOSTS / name)
    assert RecordedSystem(Path(DEMO_PREFIX + name)).env is not None


def test_they_are_small_and_have_different_causes() -> None:
    sizes = [sum(map(len, read_recording(HOSTS / name).values())) for name in DEMOS]
    assert max(sizes) < 25_000
    causes = [json.loads((HOSTS / name / "expect.json").read_text())["cause"] for name in DEMOS]
    assert len(set(causes)) == len(causes) == 8


@pytest.mark.parametrize("name", ["", "nouveau", "../hosts/healthy-one-gpu", "."])
def test_another_name_is_refused_and_the_names_are_listed(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_recording(Path(DEMO_PREFIX + name))
    assert "demo:plain-pip-install" in caught.value.hint
