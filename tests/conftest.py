"""Options and fixtures for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import environments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh", action="store_true", help="write the expected outputs anew; read them in review"
    )


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
