"""Known issues of the release that wrote a log: reported beside the cause if they can explain it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.logs import known_issues
from tfdoctor.logs.report import LogReport, diagnose_log

COMPAT = Compat.load()
LAB = Path(__file__).parent / "lab"
JIT = (
    "{0}\nW0000 00:00:1753232013.685876   24341 gpu_device.cc:2431] TensorFlow was not built with CUDA kernel binaries "
    "compatible with compute capability {1}. CUDA kernels will be jit-compiled from PTX\n"
)


def known_issues_text(report: LogReport) -> str:
    """Return the part of the explanation that lists known issues of the release, or ""."""
    return (
        report.root_finding.explanation.partition("Known of this release")[2]
        if report.root_finding is not None
        else ""
    )


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("2.21.0-without-cusolver-named", "does not find its own cuSOLVER"),
        ("2.21.0-without-cusolver", "does not find its own cuSOLVER"),
        ("2.21.0-all-missing-named", ""),
        ("2.21.0-all-present", ""),
        ("2.21.0-no-driver", ""),
        ("2.12.1-without-cusolver", ""),
        ("2.4.4-without-cusolver", "needs CUDA 11.0 and no later 11.x"),
        ("2.4.4-without-cudart", ""),
    ],
)
def test_lab_log_reports_known_issues(log: str, words: str) -> None:
    report = diagnose_log([(LAB / f"{log}.log").read_bytes()], COMPAT)
    assert words in known_issues_text(report) if words else not known_issues_text(report)


def test_remedy_of_a_known_issue_is_included() -> None:
    report = diagnose_log([(LAB / "2.21.0-without-cusolver-named.log").read_bytes()], COMPAT)
    assert report.root_finding is not None
    assert any("nvidia/cusolver/lib" in remedy.text for remedy in report.root_finding.remedies)


@pytest.mark.parametrize(
    ("version", "capability", "words"),
    [
        ("TensorFlow version: 2.19.0", "12.0", "fail on Blackwell"),
        ("TensorFlow version: 2.19.0", "9.0", ""),
        ("", "12.0", ""),
    ],
)
def test_known_issue_depends_on_the_gpu(version: str, capability: str, words: str) -> None:
    report = diagnose_log([JIT.format(version, capability).encode()], COMPAT)
    assert words in known_issues_text(report) if words else not known_issues_text(report)


@pytest.mark.parametrize(
    ("fields", "context", "is_consistent"),
    [
        ({}, {}, True),
        ({"conditions": {"python": ">=3.9"}}, {}, False),
        ({"conditions": {"platform": "windows"}}, {}, False),
        ({"conditions": {"platform": "windows"}, "area": "libraries"}, {"is_windows": True}, True),
        ({"conditions": {"capability": ">=10.0"}}, {"capability": "12.0"}, True),
        ({"conditions": {"capability": ">=10.0"}}, {"capability": "9.0"}, False),
        ({"conditions": {"capability": ">=10.0"}}, {}, False),
        ({"conditions": {"image": "any"}}, {}, False),
        ({"conditions": {"image": "any"}}, {"in_container": True}, True),
        ({"area": "libraries"}, {}, True),
        ({"area": "libraries"}, {"is_windows": True}, False),
        ({"area": "images"}, {"is_windows": True}, False),
        ({"area": "gpu"}, {"is_windows": True}, True),
        ({"text": "It lacks libcusolver.so.11."}, {}, True),
        ({"text": "It lacks libcusolver.so.11."}, {"missing": ["libcusolver.so.11"]}, True),
        (
            {"text": "It lacks libcusolver.so.11."},
            {"missing": ["libcusolver.so.11", "libcudart.so.12"]},
            False,
        ),
        ({"text": "It lacks libcusolver.so.11."}, {"missing": ["libcudart.so.12"]}, False),
        ({"text": "It is slow."}, {"missing": ["libcudart.so.12"]}, True),
    ],
)
def test_log_agrees_with_the_conditions_of_a_problem(
    fields: dict[str, Any], context: dict[str, Any], is_consistent: bool
) -> None:
    problem: Any = SimpleNamespace(**{"conditions": {}, "area": "gpu", "text": "", **fields})
    log_context: Any = SimpleNamespace(
        is_windows=context.get("is_windows", False),
        find_capability=lambda: context.get("capability"),
        is_in_container=lambda: context.get("in_container", False),
        missing_toolkit_libraries=[SimpleNamespace(soname=soname) for soname in context.get("missing", ())],
    )
    assert known_issues._is_consistent_with_log(log_context, problem) is is_consistent
