"""Options and fixtures for all tests."""

from __future__ import annotations

import collections
import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tfdoctor.system.live  # noqa: F401 - records the initial environment before tests change os.environ
from lab import engine, environments

if TYPE_CHECKING:
    from collections.abc import Iterator

gc.disable()  # until all tests are collected: they are kept, and a search among them costs a third of the time


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose tests and refresh expected outputs."""
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
    """Handle signals that this process ignores.

    The background job of a shell ignores signals, and the processes that tests start would inherit that. A signal
    with a handler is not ignored in a child process, even if the handler does nothing.
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
"""The number of cases that were left out, by reason."""


def sample_cases(cases: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return at most `most` cases, but at least one.

    These are the first, the last, and some at equal distances, because neighbours are often similar.
    """
    count = max(1, min(most, len(cases)))
    return [cases[number * (len(cases) - 1) // max(1, count - 1)] for number in range(count)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that the options exclude, and count them."""
    limit, quick, slow_factor = (config.getoption(f"--{name}") for name in ("cases", "quick", "slow-cases"))
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    selected: set[pytest.Item] = set()
    left_out: collections.Counter[str] = collections.Counter()
    for cases in tests.values():
        marks = {name: cases[0].get_closest_marker(name) for name in ("tensorflow", "engine", "few")}
        if (quick or config.getoption("--without-lab")) and (marks["tensorflow"] or marks["engine"]):
            left_out[LAB] += len(cases)
            continue
        chosen = sample_cases(cases, len(cases) if limit is None else limit)
        if quick and marks["few"] is not None:
            left_out[SLOW] += len(chosen)
            quick_limit = marks["few"].args[0]
            chosen = sample_cases(chosen, quick_limit) if quick_limit else []
            left_out[SLOW] -= len(chosen)
        elif slow_factor is not None and marks["few"] is not None and marks["few"].args[0]:
            chosen = sample_cases(chosen, slow_factor * marks["few"].args[0])
        selected.update(chosen)
    config.stash[LEFT_OUT] = left_out
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(left_out)
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = [item for item in items if item in selected]


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later garbage collection."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the counts of a worker of pytest-xdist.

    All workers collect the same tests, and the process that prints collects none.
    """
    node.config.stash[LEFT_OUT] = collections.Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print as the last line what the run left out."""
    if hasattr(config, "workeroutput") or not (
        config.getoption("--quick") or config.getoption("--without-lab")
    ):
        return
    left_out = config.stash.get(LEFT_OUT, collections.Counter())
    parts = [f"{count} {reason}" for reason, count in sorted(left_out.items()) if count]
    config.get_terminal_writer().line(
        "left out: " + "; ".join([*parts, "the wheel, other Pythons, fuzzing (.ci/run)"])
    )


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    """Return whether expected outputs are written instead of compared."""
    return bool(request.config.getoption("--refresh"))


@pytest.fixture(scope="session")
def standin_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which each stand-in is compiled once."""
    return tmp_path_factory.mktemp("standins")


@pytest.fixture(scope="session", params=environments.names())
def tensorflow_python(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Return the interpreter of an environment with real TensorFlow.

    All tests that use an environment run before the next environment is created.
    """
    folder = tmp_path_factory.mktemp("tf") / "env"
    with environments.provide_environment(request.param, folder) as interpreter:
        if isinstance(interpreter, str):
            pytest.skip(interpreter)
        yield interpreter


@pytest.fixture(scope="session")
def lab_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engine.LabEngine]:
    """Start a separate Docker Engine for the tests, with stand-in GPUs (lab/engine.py); opt-in like the wheels.

    TFDOCTOR_LAB_ENGINE=FOLDER reuses the engine that `python -m lab.engine` runs in FOLDER.
    """
    if not environments.is_lab_enabled():
        pytest.skip("set TFDOCTOR_LAB=1 to start an engine")
    folder = os.environ.get("TFDOCTOR_LAB_ENGINE")
    if folder:
        yield engine.LabEngine(Path(folder), engine.cache_folder())
        return
    try:
        with engine.run_engine(cache=engine.cache_folder()) as started:
            yield started
    except engine.Unavailable as error:
        pytest.skip(str(error))
