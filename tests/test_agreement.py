"""`check` against real TensorFlow: prediction and truth in every situation of the lab.

Needs wheels and some minutes, so it is opt-in: TFDOCTOR_LAB=1 (CI sets it) makes the environments named below with
the Pythons that are to be had; TFDOCTOR_LAB_PYTHONS="ENV/bin/python …" takes ready environments instead, and with
TFDOCTOR_LAB_FULL=1 every situation is tried rather than the core ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.compare import disagreement, predicted
from lab.record_truth import run
from lab.situations import Situation, inspect_target, situations

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not (os.environ.get("TFDOCTOR_LAB") or os.environ.get("TFDOCTOR_LAB_PYTHONS")),
        reason="set TFDOCTOR_LAB=1 to run real TensorFlow wheels (gigabytes, minutes)",
    ),
]

OLD_FRIENDS = ("protobuf<3.21", "numpy<1.20", "h5py<3")
ENVIRONMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "2.21": ("3.11", ("tensorflow==2.21.0",)),
    "2.21-and-cuda": ("3.11", ("tensorflow[and-cuda]==2.21.0",)),
    "2.18": ("3.11", ("tensorflow==2.18.1",)),
    "1.14": ("3.7", ("tensorflow-gpu==1.14.0", *OLD_FRIENDS)),
}
"""Name → (Python, requirements). 1.14 is the last era with a loader of its own; 2.21 needs NVML."""


def find_python(version: str) -> str | None:
    """An interpreter of this minor version: on PATH, or one of pyenv's."""
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
        return found
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    ready = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(ready[-1]) if ready else None


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("standins")


def ready_environments() -> list[str]:
    return os.environ.get("TFDOCTOR_LAB_PYTHONS", "").split()


@pytest.fixture(scope="module", params=ready_environments() or list(ENVIRONMENTS))
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with real TensorFlow; removed afterwards: disks are small."""
    if ready_environments():
        return Path(request.param)
    version, requirements = ENVIRONMENTS[request.param]
    base = find_python(version)
    if base is None:
        pytest.skip(f"no Python {version} here")
    folder = tmp_path_factory.mktemp("tf") / "env"
    interpreter = folder / "bin" / "python"
    subprocess.run([base, "-m", "venv", str(folder)], check=True, capture_output=True)
    installed = subprocess.run(
        [interpreter, "-m", "pip", "install", "-q", "--no-cache-dir", *requirements],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    if installed.returncode:
        pytest.fail(f"pip could not install {requirements}: {installed.stderr[-1500:]}")
    request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))  # noqa: PT021 - one value either way
    return interpreter


def test_prediction_is_what_tensorflow_does(python: Path, cache: Path) -> None:
    target = inspect_target(python, cache)
    everything = bool(os.environ.get("TFDOCTOR_LAB_FULL"))
    chosen = [situation for situation in situations(target) if situation.core or everything]

    def compare(situation: Situation) -> str:
        problem = disagreement(run(target, situation, cache), predicted(target, situation, cache))
        return problem and f"{situation.name}: {problem}"

    with ThreadPoolExecutor(2) as pool:
        wrong = [problem for problem in pool.map(compare, chosen) if problem]
    assert len(chosen) >= 25
    assert not wrong, "\n".join(wrong)
