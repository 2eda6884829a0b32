"""`verify --simulate` of an image: the stand-in is in its container, and nowhere afterwards."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.compat import Compat
from tfdoctor.engine.container_run import FOLDER, RunRequest, run
from tfdoctor.findings import Cause
from tfdoctor.simulate.build import build_stand_in
from tfdoctor.verify.image import verify_image
from tfdoctor.verify.session import Wish

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.engine import ContainerEngine
    from tfdoctor.findings import Verification

COMPAT = Compat.load()
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    return build_stand_in({"PATH": os.environ.get("PATH", os.defpath), "XDG_CACHE_HOME": str(cache)})


def run_verification(
    engine: ContainerEngine, image: str, stand_in: Path, *names: str, driver: str | None = None
) -> Verification:
    asked = parse_simulation(COMPAT, names, driver=driver)
    wish = Wish(stages=("runtime", "driver"), simulated=asked)
    return verify_image(engine, COMPAT, image, wish, stand_in=stand_in)


def test_the_container_meets_the_stand_in(engine: ContainerEngine, small: str, stand_in: Path) -> None:
    done = run_verification(engine, small, stand_in, "RTX 4090", "T4")
    stages = {one.name: (one.status, one.detail) for one in done.stages}
    assert stages["runtime"][0] == "passed", done
    assert stages["driver"] == ("passed", "libcuda answers (simulated): CUDA 13.2, 2 devices")
    assert done.access == ""


def test_a_driver_that_does_not_know_the_card(engine: ContainerEngine, small: str, stand_in: Path) -> None:
    done = run_verification(engine, small, stand_in, "RTX 4090", driver="470")
    assert (done.ok, done.cause) == (False, Cause.NO_DEVICE)


def test_nothing_of_it_stays(engine: ContainerEngine, small: str, stand_in: Path) -> None:
    before = engine.image(small)
    run_verification(engine, small, stand_in, "RTX 4090")
    assert engine.image(small) == before
    look = ("python3", "-c", f"import os; print(os.path.exists({FOLDER!r}), os.environ.get('STANDIN_GPUS'))")
    assert run(engine, RunRequest(image=small, command=look)).stdout.split() == ["False", "None"]
