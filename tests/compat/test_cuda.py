"""CUDA releases and the drivers that they need."""

from __future__ import annotations

from typing import Any

import pytest

from tfdoctor.compat import Compat

COMPAT = Compat.load()


@pytest.mark.parametrize(
    ("cuda", "os", "minimum", "own"),
    [
        ("12.5.1", "linux", "525.60.13", "555.42.06"),
        ("12.5", "linux", "525.60.13", "555.42.02"),
        ("12.3", "linux", "525.60.13", "545.23.06"),
        ("11.2", "windows", "452.39", "460.82"),
        ("11.0", "linux", "450.51.05", "450.51.05"),
        ("10.1", "linux", "418.39", "418.39"),
        ("9.0", "linux", "384.81", "384.81"),
        ("8.0", "linux", "367.48", "367.48"),
        ("8.0.61", "linux", "375.26", "375.26"),
        ("13.0", "linux", "580.65.06", "580.65.06"),
        ("13.0", "windows", None, None),
        ("12.7", "linux", "525.60.13", None),
        ("10.3", "linux", None, None),
        ("14.0", "linux", None, None),
        ("6.5", "linux", None, None),
    ],
)
def test_driver_minimum(cuda: str, os: Any, minimum: str | None, own: str | None) -> None:
    requirement = COMPAT.find_driver_minimum(cuda, os)
    assert (requirement.minimum, requirement.toolkit_driver) == (minimum, own)
    assert requirement.explanation
    assert minimum is None or requirement.sources


def test_minor_version_compatibility_is_explained() -> None:
    requirement = COMPAT.find_driver_minimum("12.5.1")
    assert requirement.minor_version_compatibility
    assert "any CUDA 12.x runs on driver 525.60.13" in requirement.explanation
    assert "needs 555.42.02, the driver of CUDA 12.5" in requirement.explanation
    assert not COMPAT.find_driver_minimum("10.1").minor_version_compatibility


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("535.104.05", "12.2"),
        ("470.57.02", "11.4"),
        ("580.65.06", "13.0"),
        ("999.1", None),
        ("300.1", None),
    ],
)
def test_newest_cuda_for_driver(driver: str, cuda: str | None) -> None:
    assert COMPAT.find_newest_cuda_for_driver(driver) == cuda
    assert COMPAT.find_newest_cuda_for_driver("551.61", "windows") == "12.4"


@pytest.mark.parametrize(("cuda", "compiles"), [("12.5", True), ("12.0", False), ("11.0", False)])
def test_driver_for_ptx_is_named_if_it_differs(cuda: str, compiles: bool) -> None:
    assert ("compiled from PTX" in COMPAT.find_driver_minimum(cuda).explanation) is compiles


@pytest.mark.parametrize(
    ("cuda", "text"),
    [
        ("14.0", "CUDA 14 is newer than this table"),
        ("10.3", "the driver it came with, which is not known, or newer"),
        ("13.99", "CUDA 13.99 itself is not in the table"),
    ],
)
def test_unknown_driver_is_explained(cuda: str, text: str) -> None:
    assert text in COMPAT.find_driver_minimum(cuda).explanation


@pytest.mark.parametrize(("isa", "cuda"), [("8.5", "12.5"), ("8.4", "12.4"), ("99.0", None)])
def test_first_cuda_that_compiles_ptx(isa: str, cuda: str | None) -> None:
    assert COMPAT.find_cuda_for_ptx(isa) == cuda


@pytest.mark.parametrize(
    ("cuda", "release"), [("12.5", "12.5.0"), ("12.5.1", "12.5.1"), ("12.5.9", "12.5.1"), ("99.0", None)]
)
def test_toolkit_release(cuda: str, release: str | None) -> None:
    found = COMPAT.find_cuda_release(cuda)
    assert (found.version if found is not None else None) == release
