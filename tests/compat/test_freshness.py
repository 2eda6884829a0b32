"""Versions newer than the tables are unknown, and the tables are read fast."""

from __future__ import annotations

import datetime as dt
import itertools
import statistics
import time
from pathlib import Path

import pytest

from tfdoctor.compat import Compat, decode
from tfdoctor.core import versions

COMPAT = Compat.load()
LOAD_BUDGET_S = 0.015
"""Seconds that reading the release table may take on an idle machine."""
BUSY_FACTOR = 4
"""How many times slower a busy test machine may be."""


# --- versions newer than the tables ---


@pytest.mark.parametrize("cuda", ["14.0", "15", "99.9.9"])
def test_newer_cuda_is_unknown(cuda: str) -> None:
    for os in ("linux", "windows"):
        requirement = COMPAT.find_driver_minimum(cuda, os)
        assert requirement.minimum is requirement.toolkit_driver is requirement.family_minimum is None
        assert "newer than this table" in requirement.explanation
        assert COMPAT.as_of[:4] in requirement.explanation
    assert COMPAT.find_cuda_series(cuda) is None
    assert COMPAT.find_cuda_release(cuda) is None
    assert not COMPAT.images.list_tags(cuda)
    assert COMPAT.images.find_deleted(cuda) is None
    assert all(COMPAT.find_soname(library.stem, cuda) is None for library in COMPAT.libraries)


def test_newer_minor_of_a_known_cuda_has_the_documented_floor() -> None:
    requirement = COMPAT.find_driver_minimum("13.99")
    assert (requirement.minimum, requirement.toolkit_driver) == ("580.65.06", None)
    assert "is not in the table" in requirement.explanation
    assert COMPAT.find_cuda_series("13.99") is None


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("999.1", None), ("700.10", None), ("615.9", "13.4"), ("595.80", "13.2"), ("525.60.13", "12.0"), ("300", None)],
)  # fmt: skip
def test_newer_driver_is_unknown(driver: str, cuda: str | None) -> None:
    assert COMPAT.find_newest_cuda_for_driver(driver) == cuda


@pytest.mark.parametrize("version", ["9.99.0.1", "10.0", "11.2.3"])
def test_newer_cudnn_is_unknown(version: str) -> None:
    assert COMPAT.find_cudnn_range(version) is None
    assert COMPAT.find_cudnn_support(version, "8.6").verdict == "unknown"


@pytest.mark.parametrize("step", [(0, 1), (0, 2), (1, 0), (2, 1)])
@pytest.mark.parametrize("rest", [".0", ".0.dev20270101", ""])
def test_newer_tensorflow_is_extrapolated(step: tuple[int, int], rest: str) -> None:
    major, minor = COMPAT.releases[-1].parsed.release[:2]
    version = f"{major + step[0]}.{minor + step[1]}{rest}"
    assert COMPAT.find_release(version) is None
    nearest = COMPAT.find_nearest(version)
    assert nearest.is_extrapolated
    assert not nearest.is_exact
    assert COMPAT.as_of in nearest.reason
    assert COMPAT.images.find_official(version) is None


def test_problems_do_not_apply_to_unknown_releases() -> None:
    """Every problem needs an upper limit, except those that hold for every later release."""
    open_ended = {"windows-without-gpu", "missing-library-not-named", "tensorflow-gpu-removed"}
    for problem in COMPAT.problems:
        if problem.id not in open_ended:
            assert not problem.affects_release(problem.packages[0], "2.30.0"), problem.id


def test_every_table_has_a_date() -> None:
    dates = [
        COMPAT.as_of,
        COMPAT._cuda.as_of,
        COMPAT._cudnn.as_of,
        COMPAT._libraries.as_of,
        COMPAT._problems.as_of,
        COMPAT.gpus_as_of,
        COMPAT._companions.as_of,
        COMPAT.images.as_of,
        COMPAT.pythons.as_of,
    ]
    for date in dates:
        assert dt.date(2026, 1, 1) <= dt.date.fromisoformat(date)


# --- per row ---


def test_sonames_match_the_cuda_version() -> None:
    """A release needs the sonames of its own CUDA version."""
    compared = 0
    for release in COMPAT.releases:
        for name in release.required_libraries:
            stem = name[3:].partition(".so")[0]
            expected = COMPAT.find_soname(stem, release.cuda or "")
            if expected is not None:
                assert name == expected, f"{release.version}: {name}"
                compared += 1
    assert compared > 700


def test_minimum_driver_grows_with_cuda() -> None:
    cuda_versions = sorted(
        {release.cuda for release in COMPAT.releases if release.cuda}, key=versions.parse_numbers
    )
    for os in ("linux", "windows"):
        minimums = [COMPAT.find_driver_minimum(cuda, os).minimum for cuda in cuda_versions]
        assert all(minimums)
        for older, newer in itertools.pairwise([text for text in minimums if text]):
            # 11.0 needs its own driver; from 11.1 on the family's lower floor holds.
            assert versions.compare(older, newer) <= 0 or older in {"450.51.05", "451.48"}


def test_registration_floors_are_measured_on_both_sides() -> None:
    path = Path(__file__).resolve().parents[2] / "compat" / "registration.toml"
    floors = {row["version"]: row for row in decode.read_raw(path, path.name)["floor"]}
    measured = {row.version for row in COMPAT.releases if row.registration_floor_evidence == "measured"}
    assert measured == set(floors)
    for version, floor in floors.items():
        row = COMPAT.find_release(version)
        assert row is not None
        assert row.registration_floor == floor["registers"]
        assert versions.parse_capability(floor["refuses"]) < versions.parse_capability(floor["registers"])
    for row in COMPAT.releases:
        assert (row.registration_floor is None) == (not row.gpu)


def test_cpu_instructions() -> None:
    for release in COMPAT.releases:
        old = versions.compare(release.version, "1.5.1") < 0
        assert release.cpu_instructions == (() if old else ("avx",))


# --- speed ---


def test_reading_the_release_table_is_fast() -> None:
    seconds = []
    for _ in range(7):
        started = time.process_time()
        assert Compat().releases
        seconds.append(time.process_time() - started)
    assert statistics.median(seconds) < LOAD_BUDGET_S * BUSY_FACTOR
