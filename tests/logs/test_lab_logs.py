"""Real logs of every era with what was true in the lab; tests/lab/keep_logs.py adds to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.keep_logs import load_logs
from lab.logs import find_disagreements

FOLDER = Path(__file__).parent / "lab"
OUTCOMES = load_logs(FOLDER)


@pytest.mark.parametrize("name", OUTCOMES)
def test_diagnose_matches_the_lab(name: str) -> None:
    assert find_disagreements(OUTCOMES[name]) == []


def test_every_era_has_the_main_situations() -> None:
    eras = {"import": (0, 113), "names": (114, 211), "nameless": (212, 220), "NVML": (221, 999)}
    for low, high in eras.values():
        situations = {
            outcome.situation
            for outcome in OUTCOMES.values()
            if low <= _minor_number(outcome.tensorflow) <= high
        }
        assert {
            "all-present",
            "without-cusolver",
            "without-cudnn",
            "no-driver",
            "visible-minus-one",
        } <= situations
        assert {"init-100", "init-803", "kernel-differs"} <= situations
    assert {path.name for path in FOLDER.iterdir()} == {*OUTCOMES, "expected.json"}


def _minor_number(version: str) -> int:
    """Return a version as a number: 204 for "2.4.4"."""
    major, minor = version.split(".")[:2]
    return int(major) * 100 + int(minor)
