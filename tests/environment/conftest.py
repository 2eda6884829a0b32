"""Fixtures for tests of the journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from environment import killer
from environment.killer import plant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def fast() -> Iterator[Path]:
    """A folder in memory where there is one: these tests write to the disk a thousand times."""
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


@pytest.fixture
def prefix(fast: Path) -> Path:
    folder = fast / "env"
    plant(folder)
    return folder


@pytest.fixture(scope="session")
def victim() -> Iterator[Callable[[str, Path, int], str]]:
    """Does something in a process that dies before its N-th change: → killed, survived, failed."""
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
