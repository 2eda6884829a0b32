"""`check` against real TensorFlow: prediction and truth in every situation of the lab.

Needs wheels and some minutes, so it is opt-in: TFDOCTOR_LAB=1 (CI sets it) makes the environments of
tests/lab/environments.py with the Pythons that are to be had; TFDOCTOR_LAB_PYTHONS="ENV/bin/python …" takes ready
environments instead, and with TFDOCTOR_LAB_FULL=1 every situation is tried rather than every second of the core ones,
each with the whole import.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.compare import disagreement, make_prediction
from lab.record_truth import run
from lab.situations import Situation, inspect_target, situations

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not environments.parse_wanted(),
        reason="set TFDOCTOR_LAB=1 to run real TensorFlow wheels (gigabytes, minutes)",
    ),
]

WHOLE = {"all-present", "all-missing"}
"""Where TensorFlow's Python is imported too, not its native code alone."""


def drop_every_second(found: list[Situation], *, offset: int) -> list[Situation]:
    """A release of an even minor version tries those that one of an odd one does not; `WHOLE` each does."""
    kept = [one for one in found if one.name in WHOLE]
    return kept + [one for one in found if one not in kept][offset::2]


def test_prediction_is_what_tensorflow_does(tensorflow_python: Path, standin_cache: Path) -> None:
    target = inspect_target(tensorflow_python, standin_cache)
    chosen = [one for one in situations(target) if one.core or environments.list_everything()]
    assert len(chosen) >= 25
    if not environments.list_everything():
        chosen = drop_every_second(chosen, offset=target.version[1] % 2)

    def compare(situation: Situation) -> str:
        quick = situation.name not in WHOLE and not environments.list_everything()
        problem = disagreement(
            run(target, situation, standin_cache, quick=quick),
            make_prediction(target, situation, standin_cache),
        )
        return problem and f"{situation.name}: {problem}"

    with ThreadPoolExecutor(2) as pool:
        wrong = [problem for problem in pool.map(compare, chosen) if problem]
    assert len(chosen) >= 12
    assert not wrong, "\n".join(wrong)
