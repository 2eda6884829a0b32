"""Tests of `verify --simulate` of an image: the stand-in driver is in its container only, and leaves no trace."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tfdoctor.cli.simulation_options import parse_simulation
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.images.engine.container_run import SIMULATION_FOLDER, RunRequest, run
from tfdoctor.verification.image import verify_image
from tfdoctor.verification.session import VerifyRequest
from tfdoctor.verification.simulate.build import build_stand_in

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.core.findings import Verification
    from tfdoctor.images.engine import ContainerEngine

COMPAT = Compat.load()
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    return build_stand_in({"PATH": os.environ.get("PATH", os.defpath), "XDG_CACHE_HOME": str(cache)})


def run_verification(
    engine: ContainerEngine, image: str, stand_in: Path, *names: str, driver: str | None = None
) -> Verification:
    simulation = parse_simulation(COMPAT, names, driver=driver)
    request = VerifyRequest(stages=("runtime", "driver"), simulated_gpus=simulation)
    return verify_image(engine, COMPAT, image, request, stand_in=stand_in)


def test_container_uses_the_stand_in(engine: ContainerEngine, small: str, stand_in: Path) -> None:
    verification = run_verification(engine, small, stand_in, "RTX 4090", "T4")
    stages = {stage.name: (stage.status, stage.detail) for stage in verification.stages}
    assert stages["runtime"][0] == "passed", verification
    assert stages["driver"] == ("passed", "libcuda answers (simulated): CUDA 13.2, 2 devices")
    assert verification.access == ""


def test_driver_too_old_for_the_gpu_finds_no_device(
    engine: ContainerEngine, small: str, stand_in: Path
) -> None:
    verification = run_verification(engine, small, stand_in, "RTX 4090", driver="470")
    assert (verification.ok, verification.cause) == (False, Cause.NO_DEVICE)


def test_stand_in_is_not_left_in_the_image(engine: ContainerEngine, small: str, stand_in: Path) -> None:
    before = engine.find_image(small)
    run_verification(engine, small, stand_in, "RTX 4090")
    assert engine.find_image(small) == before
    command = (
        "python3",
        "-c",
        f"import os; print(os.path.exists({SIMULATION_FOLDER!r}), os.environ.get('STANDIN_GPUS'))",
    )
    assert run(engine, RunRequest(image=small, command=command)).stdout.split() == ["False", "None"]
