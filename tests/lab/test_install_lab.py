"""`tfdoctor install` with real wheels: the result detects the stand-in GPUs without LD_LIBRARY_PATH.

Each environment is removed before the next one is created. TFDOCTOR_LAB_FULL=1 tests all minor releases, those before
2.12 on older Pythons.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from lab import environments, standins
from lab.situations import clean_environment
from tfdoctor.compat import Compat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not environments.is_lab_enabled(), reason="set TFDOCTOR_LAB=1 to install real wheels"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.timeout(1200),
]
OLD = {"2.5": "3.8", "2.6": "3.9", "2.7": "3.9", "2.8": "3.10", "2.9": "3.10", "2.10": "3.10", "2.11": "3.10"}
MINORS = {**OLD, **{f"2.{minor}": "3.11" for minor in range(12, 22)}}
TRIED = tuple(MINORS) if environments.is_full_run() else ("2.21",)
DRIVERS = {"libcuda.so.1", "libnvidia-ml.so.1"}
"""Driver libraries, which this machine may lack."""
COUNT = "import tensorflow as tf; print('GPUS', len(tf.config.list_physical_devices('GPU')))"


@pytest.fixture(scope="module")
def uv_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for uv's caches, which is removed before other environments are created.

    The caller's own cache would grow by tens of gigabytes.
    """
    folder = tmp_path_factory.mktemp("uv-caches")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def uv_cache(uv_caches: Path, minor: str) -> Path:
    """The cache for the CUDA wheels of a release; caches of other wheels are removed.

    Several releases in turn use the same wheels of NVIDIA's.
    """
    cuda_set = Compat.load().cuda_sets.find_for_release(f"{minor}.0")
    assert cuda_set is not None
    for folder in uv_caches.iterdir():
        if folder.name != cuda_set.id:
            shutil.rmtree(folder)
    return uv_caches / cuda_set.id


@pytest.mark.parametrize("minor", ["2.20"])
def test_install_keeps_additional_requirements(minor: str, tmp_path: Path, uv_cache: Path) -> None:
    """Compare the installed packages with those that the dry run announced, and run TensorFlow."""
    python = environments.find_python(MINORS[minor])
    if python is None:
        pytest.skip(f"no Python {MINORS[minor]} here")
    folder = tmp_path / "an env"
    (tmp_path / "r.txt").write_text(f"tensorflow[and-cuda]=={minor}.*\nnumpy<2\n", encoding="utf-8")
    env = {**os.environ, "UV_CACHE_DIR": str(uv_cache), "UV_LINK_MODE": "hardlink"}
    options = [
        "-r",
        str(tmp_path / "r.txt"),
        "--python-version",
        python,
        "--into",
        str(folder),
        "--anywhere",
        "--json",
    ]
    command = [sys.executable, "-m", "tfdoctor", "install", *options, "--no-deep"]
    answers = []
    try:
        for arguments in ([*command, "-n"], command):
            done = subprocess.run(
                arguments, env=env, capture_output=True, text=True, check=False, timeout=1000
            )
            assert done.returncode == 0, done.stderr + done.stdout[-3000:]
            answers.append(json.loads(done.stdout))
        announced, installed = answers
        assert announced["resolution"] == installed["resolution"]
        assert [change["name"] for change in installed["resolution"]["changes"]] == ["numpy"]
        code = "import numpy, tensorflow as tf; print(numpy.__version__, int(tf.constant(numpy.ones(2)).shape[0]))"
        completed = subprocess.run(
            [folder / "bin" / "python", "-c", code],
            env=clean_environment(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert completed.stdout.split() == ["1.26.4", "2"], completed.stderr[-3000:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("minor", TRIED)
def test_installed_tensorflow_lists_the_gpus(
    minor: str, tmp_path: Path, standin_cache: Path, uv_cache: Path
) -> None:
    python = environments.find_python(MINORS[minor])
    if python is None:
        pytest.skip(f"no Python {MINORS[minor]} here")
    folder = tmp_path / "an env"
    env = {**os.environ, "UV_CACHE_DIR": str(uv_cache), "PIP_NO_CACHE_DIR": "1", "UV_LINK_MODE": "hardlink"}
    command = [
        "install",
        "--tf",
        minor,
        "--python-version",
        python,
        "--into",
        str(folder),
        "--anywhere",
        "--no-deep",
    ]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tfdoctor", *command, "--json"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=1000,
        )
        assert done.returncode == 0, done.stderr + done.stdout[-3000:]
        answer = json.loads(done.stdout)
        seconds = time.monotonic() - began
        assert answer["check"]["prediction"]["import_ok"] is not False
        assert not {*answer["check"]["prediction"]["missing_libraries"]} - DRIVERS
        driver = standins.write_driver(tmp_path / "driver", standin_cache, gpus=2)
        completed = subprocess.run(
            [folder / "bin" / "python", "-c", COUNT],
            env={**clean_environment(tmp_path), "LD_LIBRARY_PATH": str(driver)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert completed.stdout.strip() == "GPUS 2", completed.stderr[-3000:]
        environment = answer["environment"]
        print(
            f"{answer['plan']['tensorflow']} on {MINORS[minor]}, {environment['installer']}: {seconds:.0f} s"
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        uv = shutil.which("uv")
        if uv:
            subprocess.run([uv, "cache", "clean", "tensorflow"], env=env, capture_output=True, check=False)
