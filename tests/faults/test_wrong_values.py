"""Invalid values: each is refused with a sentence, whichever option or variable holds it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor
from faults.harness import HOSTS
from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.system import RecordedSystem
from tfdoctor.verification.running.launch import make_loader_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DIGITS = "9" * 5000
"""More digits than Python converts to an integer."""
LONG_SPECIFICATIONS = (
    DIGITS,
    f"2.{DIGITS}",
    f">=2.10,<2.{DIGITS}",
    f"2.15.0+{DIGITS}",
    f"2.15.0rc{DIGITS}",
    f"=={DIGITS}!2.0",
)


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    return Tfdoctor(monkeypatch, capsys)


def assert_refused(tfdoctor: Tfdoctor, *args: str) -> None:
    result = tfdoctor(*args)
    assert result.status == 2, result
    assert result.out == ""
    assert "tfdoctor: " in result.err
    assert len(result.err) < 2000


DRY_RUN = ("--anywhere", "--dry-run")
OPTIONS = [
    ("matrix", "--tf"),
    ("matrix", "--cuda"),
    ("matrix", "--cudnn"),
    ("matrix", "--python-version"),
    ("matrix", "--gpu"),
    ("matrix", "--driver"),
    ("recommend", "--gpu", "8.6", "--tf"),
    ("recommend", "--gpu", "8.6", "--python-version"),
    ("recommend", "--gpu", "8.6", "--driver"),
    ("recommend", "--gpu"),
    ("build", *DRY_RUN, "--tf"),
    ("build", *DRY_RUN, "--python-version"),
    ("build", *DRY_RUN, "--driver"),
    ("build", "--dry-run", "--gpu"),
    ("install", *DRY_RUN, "--tf"),
    ("install", *DRY_RUN, "--driver"),
    ("install", "--dry-run", "--gpu"),
    ("verify", "image", "--memory"),
    ("verify", "image", "--gpu-count"),
]


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
def test_version_of_5000_digits_is_refused(words: tuple[str, ...], tfdoctor: Tfdoctor) -> None:
    for text in (DIGITS, f"2.{DIGITS}"):
        assert_refused(tfdoctor, *words, text)


@pytest.mark.parametrize("command", ["matrix", "recommend --gpu 8.6", "build --anywhere --dry-run"])
@pytest.mark.parametrize("text", LONG_SPECIFICATIONS, ids=lambda text: text[:12])
def test_specification_of_5000_digits_is_refused(command: str, text: str, tfdoctor: Tfdoctor) -> None:
    assert_refused(tfdoctor, *command.split(), "--tf", text)


@pytest.mark.parametrize(
    "text", [*LONG_SPECIFICATIONS, "sm_" + DIGITS, "cp3" + DIGITS], ids=lambda text: text[:12]
)
@pytest.mark.parametrize(
    "read",
    [
        versions.parse,
        versions.parse_numbers,
        versions.major,
        versions.major_minor,
        versions.parse_capability,
        versions.parse_python_tag,
        versions.VersionSpec,
        lambda text: versions.satisfies("2.15.0", text),
        lambda text: versions.has_prefix("2.15.0", text),
        lambda text: versions.VersionSpec(text).select(["2.15.0"]),
    ],
)
def test_versions_are_parsed_or_refused(read: Callable[[str], object], text: str) -> None:
    if hasattr(sys, "set_int_max_str_digits"):
        assert sys.get_int_max_str_digits() == 4300
    with contextlib.suppress(versions.VersionSyntaxError):  # `parse_numbers` parses the part before a `+`
        read(text)


@pytest.mark.parametrize("pin", [f"=={DIGITS}", f">=2.{DIGITS}", f"~=2.{DIGITS}"], ids=lambda pin: pin[:4])
@pytest.mark.parametrize("package", ["tensorflow", "numpy", "tensorflow-gpu"])
def test_dockerfile_with_5000_digits_is_checked(
    package: str, pin: str, tfdoctor: Tfdoctor, tmp_path: Path
) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        f"FROM python:3.11\nRUN pip install tensorflow==2.15.0\nRUN pip install '{package}{pin}'\n",
        encoding="utf-8",
    )
    assert tfdoctor("build", "--check", str(path)).status in (0, 1)


@pytest.mark.parametrize(
    "command", ["check", "capture", "report", "fix --dry-run", "verify --python /bin/sh"], ids=str.split
)
@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "0", "-1", "1e999"])
def test_invalid_timeout_is_refused(command: str, value: str, tfdoctor: Tfdoctor) -> None:
    assert_refused(tfdoctor, *command.split(), "--timeout", value)


INVALID_NUMBERS = pytest.mark.parametrize(
    "value", [DIGITS, "²", "+-3"], ids=["digits", "superscript", "signs"]
)


@INVALID_NUMBERS
def test_invalid_columns_are_ignored(value: str, tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", value)
    assert tfdoctor("recommend", "--gpu", "8.6").status == 0


@INVALID_NUMBERS
@pytest.mark.parametrize(
    "name", ["CUDA_VISIBLE_DEVICES", "TF_MIN_GPU_MULTIPROCESSOR_COUNT", "TF_CPP_MIN_LOG_LEVEL"]
)
@pytest.mark.parametrize("host", ["healthy-two-gpus", "hidden-by-minus-one"])
def test_invalid_variable_crashes_no_check(host: str, name: str, value: str) -> None:
    recorded = RecordedSystem(HOSTS / host)
    facts = run_probes(recorded, Compat.load(), requested_python=recorded.python)
    environment = dataclasses.replace(
        facts.environment, variables={**facts.environment.variables, name: value}
    )
    report = diagnose(dataclasses.replace(facts, environment=environment), Compat.load())
    assert report.count_outcomes()["crashed"] == 0
    make_loader_environment({name: value})
