"""Compare `diagnose` with real TensorFlow: its result for the log that a release prints in a known situation.

Opt-in like tests/test_agreement.py. TFDOCTOR_LAB_FULL=1 imports all of TensorFlow each time, as users do, instead of
its native code alone. tests/logs/test_lab_logs.py does the same with stored logs and needs no TensorFlow.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.logs import find_disagreements, log_situations, print_all, report_run
from lab.situations import inspect_target

if TYPE_CHECKING:
    from pathlib import Path

    from lab.situations import Target

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not environments.is_lab_enabled(),
        reason="set TFDOCTOR_LAB=1 to run real TensorFlow wheels (gigabytes, minutes)",
    ),
]


def inspect_or_skip(python: Path, standin_cache: Path) -> Target:
    """Return the target for the tests; skip the test if trying it is useless or slow."""
    target = inspect_target(python, standin_cache)
    if target.own_wheels:
        pytest.skip("its own CUDA libraries are found whatever is left out")
    if target.version < (2,) and not environments.is_full_run():
        pytest.skip("a minute, and old logs are in the corpus, too: TFDOCTOR_LAB_FULL=1")
    return target


def test_diagnose_agrees_with_the_situation(tensorflow_python: Path, standin_cache: Path) -> None:
    target = inspect_or_skip(tensorflow_python, standin_cache)
    printed = print_all(target, standin_cache, quick=not environments.is_full_run())
    problems = [
        f"{log.situation}{' (named)' if log.named else ''}: {'; '.join(differences)}"
        for log in printed
        if (differences := find_disagreements(log))
    ]
    assert len(printed) >= 25
    assert not problems, "\n".join(problems)


def test_run_names_the_missing_library(tensorflow_python: Path, standin_cache: Path) -> None:
    """From 2.12 on TensorFlow names no library; up to 1.13 the ImportError names it."""
    target = inspect_or_skip(tensorflow_python, standin_cache)
    situations = [candidate for candidate in log_situations(target) if candidate.name.startswith("without-")]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda candidate: report_run(target, candidate, standin_cache), situations))
    assert len(situations) == len(target.required) >= 4
    for situation, answer in zip(situations, answers, strict=True):
        soname = target.soname(situation.name.removeprefix("without-"))
        verdict = " ".join(answer.split()).partition(". [TFD")[0]
        assert verdict.endswith(f": {soname}"), answer
