"""`tfdoctor install` with real wheels: what it makes sees the stand-in GPUs, with nothing on LD_LIBRARY_PATH.

Each environment is removed before the next is made. TFDOCTOR_LAB_FULL=1 takes all minors, those before 2.12 on older
Pythons.
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
    pytest.mark.skipif(not environments.parse_wanted(), reason="set TFDOCTOR_LAB=1 to install real wheels"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.timeout(1200),
]
OLD = {"2.5": "3.8", "2.6": "3.9", "2.7": "3.9", "2.8": "3.10", "2.9": "3.10", "2.10": "3.10", "2.11": "3.10"}
MINORS = {**OLD, **{f"2.{minor}": "3.11" for minor in range(12, 22)}}
TRIED = tuple(MINORS) if environments.list_everything() else ("2.21",)
DRIVERS = {"libcuda.so.1", "libnvidia-ml.so.1"}
"""Which this machine need not have."""
COUNT = "import tensorflow as tf; print('GPUS', len(tf.config.list_physical_devices('GPU')))"


@pytest.fixture(scope="module")
def uv_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The caller's own cache would be filled with tens of gigabytes; these go before other environments are made."""
    folder = tmp_path_factory.mktemp("uv-caches")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def uv_cache(uv_caches: Path, minor: str) -> Path:
    """NVIDIA's wheels serve several releases in turn; those of others go."""
    chosen = Compat.load().cuda_set(f"{minor}.0")
    assert chosen is not None
    for other in uv_caches.iterdir():
        if other.name != chosen.id:
            shutil.rmtree(other)
    return uv_caches / chosen.id


@pytest.mark.parametrize("minor", ["2.20"])
def test_requirements_beside_the_lock(minor: str, tmp_path: Path, uv_cache: Path) -> None:
    """What a dry run promises is what comes, and TensorFlow runs with it."""
    python = environments.find_python(MINORS[minor])
    if python is None:
        pytest.skip(f"no Python {MINORS[minor]} here")
    folder = tmp_path / "an env"
    (tmp_path / "r.txt").write_text(f"tensorflow[and-cuda]=={minor}.*\nnumpy<2\n", encoding="utf-8")
    env = {**os.environ, "UV_CACHE_DIR": str(uv_cache), "UV_LINK_MODE": "hardlink"}
    wish = ["-r", str(tmp_path / "r.txt"), "--python", python, "--into", str(folder), "--anywhere", "--json"]
    command = [sys.executable, "-m", "tfdoctor", "install", *wish, "--no-deep"]
    answers = []
    try:
        for words in ([*command, "-n"], command):
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=1000)
            assert done.returncode == 0, done.stderr + done.stdout[-3000:]
            answers.append(json.loads(done.stdout))
        promised, made = answers
        assert promised["resolution"] == made["resolution"]
        assert [one["name"] for one in made["resolution"]["changes"]] == ["numpy"]
        code = "import numpy, tensorflow as tf; print(numpy.__version__, int(tf.constant(numpy.ones(2)).shape[0]))"
        seen = subprocess.run(
            [folder / "bin" / "python", "-c", code],
            env=clean_environment(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert seen.stdout.split() == ["1.26.4", "2"], seen.stderr[-3000:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("minor", TRIED)
def test_what_is_installed_sees_the_gpus(
    minor: str, tmp_path: Path, standin_cache: Path, uv_cache: Path
) -> None:
    python = environments.find_python(MINORS[minor])
    if python is None:
        pytest.skip(f"no Python {MINORS[minor]} here")
    folder = tmp_path / "an env"
    env = {**os.environ, "UV_CACHE_DIR": str(uv_cache), "PIP_NO_CACHE_DIR": "1", "UV_LINK_MODE": "hardlink"}
    command = ["install", "--tf", minor, "--python", python, "--into", str(folder), "--anywhere", "--no-deep"]
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
        driver = standins.driver(tmp_path / "driver", standin_cache, gpus=2)
        seen = subprocess.run(
            [folder / "bin" / "python", "-c", COUNT],
            env={**clean_environment(tmp_path), "LD_LIBRARY_PATH": str(driver)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert seen.stdout.strip() == "GPUS 2", seen.stderr[-3000:]
        told = answer["environment"]
        print(f"{answer['plan']['tensorflow']} on {MINORS[minor]}, {told['installer']}: {seconds:.0f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        uv = shutil.which("uv")
        if uv:
            subprocess.run([uv, "cache", "clean", "tensorflow"], env=env, capture_output=True, check=False)
