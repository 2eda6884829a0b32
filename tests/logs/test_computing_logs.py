"""Real logs of cards that were registered and did not compute: the software GPU's faults, kept without their noise.

`tfdoctor verify` ran TensorFlow; what is kept is the first of each line that tells of devices, or warns, or fails.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.logs.report import diagnose_log

FOLDER = Path(__file__).parent / "computing"
TRUTH: dict[str, dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TRUTH)
def test_the_cause_is_the_fault(name: str) -> None:
    report = diagnose_log([(FOLDER / name).read_bytes()], Compat.load(), name)
    assert report.cause.value == TRUTH[name]["cause"]
    assert report.gpu_registered is TRUTH[name]["registered"]
    assert report.root is not None
    assert report.root.evidence


def test_each_log_has_its_truth() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*TRUTH, "truth.json"}
