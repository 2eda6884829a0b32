"""Tests that a stopped `tfdoctor verify IMAGE` removes its container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from images.engine.conftest import PREFIX, containers_of
from tfdoctor.images.engine import BuildRequest, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.images.engine import ContainerEngine


@pytest.fixture(scope="module")
def slow_python(engine: ContainerEngine, small: str) -> Iterator[str]:
    """Yield the name of an image whose Python takes 100 seconds to start; tfdoctor's own agent skips that delay."""
    name = f"{PREFIX}/slow-python:1"
    files = {"sitecustomize.py": b"import time; time.sleep(100)\n"}
    dockerfile = f"FROM {small}\nCOPY sitecustomize.py /own/\nENV PYTHONPATH=/own\n"
    list(build(engine, BuildRequest(dockerfile, files, name)))
    yield name
    engine.remove_image(name, force=True)


@pytest.mark.parametrize("moment", [0.0, 1.5], ids=["at once", "in the midst"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_signal_stops_verify_and_its_container(
    engine: ContainerEngine,
    small: str,
    slow_python: str,
    nothing_left: None,
    number: signal.Signals,
    moment: float,
) -> None:
    command = [sys.executable, "-m", "tfdoctor", "verify", slow_python, "--devices", "CPU"]
    with subprocess.Popen(
        command,
        env={**os.environ, "DOCKER_HOST": engine.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not containers_of(engine, small):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(moment)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in stderr
    assert containers_of(engine, small) == []
