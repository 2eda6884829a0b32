"""`diagnose` against real TensorFlow: what it says of the log that a release prints in a situation, and what was true.

Opt-in as tests/test_agreement.py is; TFDOCTOR_LAB_FULL=1 imports all of TensorFlow each time, as users do, rather than
its native code alone. tests/logs/test_lab_logs.py does the same with logs that were kept, and needs no TensorFlow.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.logs import disagreements, log_situations, print_all, run_says
from lab.situations import inspect_target

if TYPE_CHECKING:
    from pathlib import Path

    from lab.situations import Target

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not environments.parse_wanted(),
        reason="set TFDOCTOR_LAB=1 to run real TensorFlow wheels (gigabytes, minutes)",
    ),
]


def run_examination(python: Path, standin_cache: Path) -> Target:
    """What is tried here; skips what need not be."""
    target = inspect_target(python, standin_cache)
    if target.own_wheels:
        pytest.skip("its own CUDA libraries are found whatever is left out")
    if target.version < (2,) and not environments.list_everything():
        pytest.skip("a minute, and old logs are in the corpus, too: TFDOCTOR_LAB_FULL=1")
    return target


def test_diagnose_says_what_was_true(tensorflow_python: Path, standin_cache: Path) -> None:
    target = run_examination(tensorflow_python, standin_cache)
    printed = print_all(target, standin_cache, quick=not environments.list_everything())
    wrong = [
        f"{one.situation}{' (named)' if one.named else ''}: {'; '.join(found)}"
        for one in printed
        if (found := disagreements(one))
    ]
    assert len(printed) >= 25
    assert not wrong, "\n".join(wrong)


def test_run_names_the_library_that_is_missing(tensorflow_python: Path, standin_cache: Path) -> None:
    """From 2.12 on TensorFlow names none by itself; up to 1.13 the ImportError names it."""
    target = run_examination(tensorflow_python, standin_cache)
    without = [one for one in log_situations(target) if one.name.startswith("without-")]
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda one: run_says(target, one, standin_cache), without))
    assert len(without) == len(target.required) >= 4
    for situation, answer in zip(without, said, strict=True):
        soname = target.soname(situation.name.removeprefix("without-"))
        verdict = " ".join(answer.split()).partition(". [TFD")[0]
        assert verdict.endswith(f": {soname}"), answer
