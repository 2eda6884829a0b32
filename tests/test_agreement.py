"""Compare the prediction of `check` with real TensorFlow in every situation of the lab.

The test needs wheels and some minutes, so it is opt-in: TFDOCTOR_LAB=1 (CI sets it) creates the environments of
tests/lab/environments.py for the available Pythons. TFDOCTOR_LAB_PYTHONS="ENV/bin/python …" uses existing
environments instead. TFDOCTOR_LAB_FULL=1 tries every situation, each with the whole import, instead of half of the
core ones.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.compare import describe_disagreement, make_prediction
from lab.record_truth import record_situation
from lab.situations import Situation, inspect_target, situations

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not environments.is_lab_enabled(),
        reason="set TFDOCTOR_LAB=1 to run real TensorFlow wheels (gigabytes, minutes)",
    ),
]

WHOLE = {"all-present", "all-missing"}
"""Situations in which TensorFlow's Python code is imported too, not its native code alone."""


def drop_every_second(candidates: list[Situation], *, offset: int) -> list[Situation]:
    """Return the situations of WHOLE and every second of the others, starting at `offset`.

    Releases of even and of odd minor versions use different offsets and so try different situations.
    """
    whole = [situation for situation in candidates if situation.name in WHOLE]
    return whole + [situation for situation in candidates if situation not in whole][offset::2]


def test_prediction_agrees_with_tensorflow(tensorflow_python: Path, standin_cache: Path) -> None:
    target = inspect_target(tensorflow_python, standin_cache)
    chosen = [candidate for candidate in situations(target) if candidate.core or environments.is_full_run()]
    assert len(chosen) >= 25
    if not environments.is_full_run():
        chosen = drop_every_second(chosen, offset=target.version[1] % 2)

    def compare(situation: Situation) -> str:
        quick = situation.name not in WHOLE and not environments.is_full_run()
        problem = describe_disagreement(
            record_situation(target, situation, standin_cache, quick=quick),
            make_prediction(target, situation, standin_cache),
        )
        return problem and f"{situation.name}: {problem}"

    with ThreadPoolExecutor(2) as pool:
        problems = [problem for problem in pool.map(compare, chosen) if problem]
    assert len(chosen) >= 12
    assert not problems, "\n".join(problems)
