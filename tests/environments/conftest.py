"""Fixtures for the tests of environments and their journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from environments import killer
from environments.killer import plant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def temp_folder() -> Iterator[Path]:
    """Yield a temporary folder, in memory if possible: these tests write to the disk a thousand times."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


@pytest.fixture
def prefix(temp_folder: Path) -> Path:
    """Return an environment made by `plant` in a temporary folder."""
    folder = temp_folder / "env"
    plant(folder)
    return folder


@pytest.fixture(scope="session")
def run_killed() -> Iterator[Callable[[str, Path, int], str]]:
    """Yield a function that runs an action in a process that is killed before its N-th change of a file.

    The function returns "killed", "survived" or "failed".
    """
    with subprocess.Popen(
        [sys.executable, killer.__file__ or ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run(action: str, prefix: Path, number: int) -> str:
            print(json.dumps([action, str(prefix), number]), file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        yield run
        process.stdin.close()
