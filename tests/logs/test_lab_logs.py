"""Real logs of every era, kept from the lab with what was true: tests/lab/keep_logs.py adds to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.keep_logs import keep_outcome
from lab.logs import disagreements

FOLDER = Path(__file__).parent / "lab"
KEPT = keep_outcome(FOLDER)


@pytest.mark.parametrize("name", KEPT)
def test_diagnose_says_what_was_true(name: str) -> None:
    assert disagreements(KEPT[name]) == []


def test_every_era_is_there_with_what_matters_most() -> None:
    eras = {"import": (0, 113), "names": (114, 211), "nameless": (212, 220), "NVML": (221, 999)}
    for low, high in eras.values():
        there = {one.situation for one in KEPT.values() if low <= _number(one.tensorflow) <= high}
        assert {"all-present", "without-cusolver", "without-cudnn", "no-driver", "visible-minus-one"} <= there
        assert {"init-100", "init-803", "kernel-differs"} <= there
    assert {path.name for path in FOLDER.iterdir()} == {*KEPT, "expected.json"}


def _number(version: str) -> int:
    """ "2.4.4" → 204."""
    major, minor = version.split(".")[:2]
    return int(major) * 100 + int(minor)
