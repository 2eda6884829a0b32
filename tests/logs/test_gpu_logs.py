"""Logs of TensorFlow 2.17.1 on a real NVIDIA H200 (driver 580.159.04), with the cause that was made there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.logs.report import diagnose_log

FOLDER = Path(__file__).parent / "gpu"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_cause_of_a_real_log(name: str) -> None:
    report = diagnose_log([(FOLDER / name).read_bytes()], Compat.load())
    assert report.cause.value in EXPECTED[name]["causes"]
    assert report.gpu_registered is EXPECTED[name]["registered"]


def test_every_log_is_expected() -> None:
    assert {path.name for path in FOLDER.glob("*.log")} == {*EXPECTED}
