"""Options and fixtures for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tfdoctor.system.live  # noqa: F401 - learns what this process was started with, before tests change os.environ
from lab import engine, environments

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh", action="store_true", help="write the expected outputs anew; read them in review"
    )
    parser.addoption("--cases", type=int, metavar="N", help="at most N cases of each parametrized test")


def pytest_configure() -> None:
    """A shell's job in the background ignores Ctrl-C, and its children inherit that: tests of it would hear nothing."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --cases, keep cases that lie evenly apart: neighbours are often alike."""
    most = config.getoption("--cases")
    if most is None:
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {one for cases in tests.values() for one in cases[:: -(-len(cases) // most)]}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    """Whether expected outputs are written rather than compared."""
    return bool(request.config.getoption("--refresh"))


@pytest.fixture(scope="session")
def standin_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stand-ins are compiled, each once."""
    return tmp_path_factory.mktemp("standins")


@pytest.fixture(scope="session", params=environments.names())
def tensorflow_python(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The interpreter of an environment with real TensorFlow: all tests of one run before the next is made."""
    folder = tmp_path_factory.mktemp("tf") / "env"
    with environments.environment(request.param, folder) as interpreter:
        if isinstance(interpreter, str):
            pytest.skip(interpreter)
        yield interpreter


@pytest.fixture(scope="session")
def lab_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engine.LabEngine]:
    """A Docker Engine of the tests' own with stand-in GPUs (lab/engine.py); opt-in as the wheels are.

    TFDOCTOR_LAB_ENGINE=FOLDER takes the one that `python -m lab.engine` runs there.
    """
    if not environments.wanted():
        pytest.skip("set TFDOCTOR_LAB=1 to start an engine")
    ready = os.environ.get("TFDOCTOR_LAB_ENGINE")
    if ready:
        yield engine.LabEngine(Path(ready), engine.cache_folder())
        return
    try:
        with engine.engine(cache=engine.cache_folder()) as one:
            yield one
    except engine.Unavailable as why:
        pytest.skip(str(why))
