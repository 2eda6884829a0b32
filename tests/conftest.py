"""Options for all tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh", action="store_true", help="write the expected outputs anew; read them in review"
    )


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    """Whether expected outputs are written rather than compared."""
    return bool(request.config.getoption("--refresh"))
