"""Options and fixtures for all tests."""

from __future__ import annotations

import collections
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    parser.addoption(
        "--slow-cases",
        type=int,
        metavar="N",
        help="of tests marked few(M) at most N * M cases, and all of those marked few(0)",
    )
    parser.addoption(
        "--without-lab", action="store_true", help="no real TensorFlow, no engine; the last line says so"
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="the same, and of tests marked few(N) at most N cases; the last line says how many were left out",
    )


def pytest_configure() -> None:
    """A shell's job in the background ignores signals, and what tests start would inherit that and hear none.

    What is handled here, be it by doing nothing, is not ignored by a child.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


SLOW, LAB = (
    "further cases of slow tests (TFDOCTOR_ALL=1)",
    "with real TensorFlow or an engine (TFDOCTOR_LAB=1)",
)
LEFT_OUT = pytest.StashKey["collections.Counter[str]"]()
"""Why → how many cases were not run."""


def choose_some(cases: list[pytest.Item], most: int) -> list[pytest.Item]:
    """`most` cases, at least one: the first, the last, and some evenly apart, for neighbours are often alike."""
    count = max(1, min(most, len(cases)))
    return [cases[number * (len(cases) - 1) // max(1, count - 1)] for number in range(count)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what the options leave out; without the lab a test keeps at least a case."""
    most, quick, slow = (config.getoption(f"--{name}") for name in ("cases", "quick", "slow-cases"))
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept: set[pytest.Item] = set()
    left_out: collections.Counter[str] = collections.Counter()
    for cases in tests.values():
        marks = {name: cases[0].get_closest_marker(name) for name in ("tensorflow", "engine", "few")}
        if (quick or config.getoption("--without-lab")) and (marks["tensorflow"] or marks["engine"]):
            left_out[LAB] += len(cases)
            continue
        some = choose_some(cases, len(cases) if most is None else most)
        if quick and marks["few"] is not None:
            left_out[SLOW] += len(some)
            few = marks["few"].args[0]
            some = choose_some(some, few) if few else []
            left_out[SLOW] -= len(some)
        elif slow is not None and marks["few"] is not None and marks["few"].args[0]:
            some = choose_some(some, slow * marks["few"].args[0])
        kept.update(some)
    config.stash[LEFT_OUT] = left_out
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(left_out)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker of pytest-xdist left out: all collect the same, and the one that prints collects nothing."""
    node.config.stash[LEFT_OUT] = collections.Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line of a run that is not all of it."""
    if hasattr(config, "workeroutput") or not (
        config.getoption("--quick") or config.getoption("--without-lab")
    ):
        return
    left_out = config.stash.get(LEFT_OUT, collections.Counter())
    counted = [f"{count} {why}" for why, count in sorted(left_out.items()) if count]
    config.get_terminal_writer().line(
        "left out: " + "; ".join([*counted, "the wheel, other Pythons, fuzzing (.ci/run)"])
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


@pytest.fixture(scope="session")
def lab_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engine.LabEngine]:
    """A Docker Engine of the tests' own with stand-in GPUs (lab/engine.py); opt-in as the wheels are.

    TFDOCTOR_LAB_ENGINE=FOLDER takes the one that `python -m lab.engine` runs there.
    """
    if not environments.parse_wanted():
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
