"""Logs of GPUs that were registered and did not compute, made with faults of the software GPU.

They come from TensorFlow runs under `tfdoctor verify`. Only the first of each kind of line is in them that names a
device, a warning or an error.
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
def test_cause_matches_the_injected_fault(name: str) -> None:
    report = diagnose_log([(FOLDER / name).read_bytes()], Compat.load(), name)
    assert report.cause.value == TRUTH[name]["cause"]
    assert report.gpu_registered is TRUTH[name]["registered"]
    assert report.root_finding is not None
    assert report.root_finding.evidence


def test_every_log_has_an_expected_result() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*TRUTH, "truth.json"}
