"""The whole terminal report; `pytest tests/render --refresh` rewrites the expected files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Observation, Report
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.render.report import render_report
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).parents[1] / "hosts"
EXPECTED = Path(__file__).with_name("expected")
EXPECTED_HOSTS = (
    "healthy-two-gpus",
    "container-without-gpu",
    "driver-hangs",
    "blackwell-with-tf218",
    "two-other-cudas",
    "hidden-by-slurm",
)


def report_of(host: str, observed: Observation | None = None) -> Report:
    compat = Compat.load()
    return diagnose(run_probes(RecordedSystem(HOSTS / host), compat), compat, observed)


def compare_with_expected(name: str, text: str, refresh: bool) -> None:
    path = EXPECTED / name
    text = re.sub(r"^tfdoctor [\w.]+", "tfdoctor VERSION", text, flags=re.MULTILINE)
    if refresh:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("host", EXPECTED_HOSTS)
def test_whole_report(host: str, refresh: bool) -> None:
    compare_with_expected(f"{host}.txt", render_report(report_of(host), width=80), refresh)


def test_verbose_and_quiet(refresh: bool) -> None:
    report = report_of("container-without-gpu")
    compare_with_expected(
        "container-without-gpu-verbose.txt", render_report(report, verbose=True, width=100), refresh
    )
    compare_with_expected(
        "container-without-gpu-quiet.txt", render_report(report, quiet=True, width=80), refresh
    )


def test_prediction_and_observation_are_shown(refresh: bool) -> None:
    observed = Observation(
        import_ok=True,
        gpu_registered=True,
        gpu_count=1,
        missing_libraries=(),
        seconds=4.2,
        devices=("/physical_device:GPU:0",),
        computed=("GPU:0 failed: InternalError: no kernel image is available",),
    )
    compare_with_expected(
        "deep.txt", render_report(report_of("healthy-one-gpu", observed), width=80), refresh
    )


@pytest.mark.parametrize("host", EXPECTED_HOSTS)
@pytest.mark.parametrize("width", [30, 60])
def test_report_fits_a_narrow_terminal(host: str, width: int) -> None:
    """Nothing is wider than the terminal except commands, which are meant to be copied."""
    for line in render_report(report_of(host), width=width).splitlines():
        words = line.split()
        unbreakable = max((len(word) for word in words), default=0)
        assert len(line) <= max(width, unbreakable + 12) or line.startswith("          "), line


@pytest.mark.parametrize("host", EXPECTED_HOSTS)
def test_colour_is_only_on_request(host: str) -> None:
    report = report_of(host)
    assert "\x1b" not in render_report(report, width=80)
    assert "\x1b[" in render_report(report, width=80, colour=True)


def test_verbose_does_not_refer_to_itself() -> None:
    report = report_of("driver-hangs")
    assert "8 checks could not be run. " in " ".join(render_report(report).split())
    assert "check -v" in render_report(report)
    verbose = render_report(report, verbose=True)
    assert "Checks that could not be run:" in verbose
    assert "check -v" not in verbose
