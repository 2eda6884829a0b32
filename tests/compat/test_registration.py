"""The release table compared with what real TensorFlow did, release by release.

registration_runs.json is condensed from runs of real wheels against the stand-in driver (tests/lab/record_truth.py
with the situations `all-present`, `without-…` and `cc-…`): which libraries each release needed, what happened
without each of them, and which compute capabilities it registered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tfdoctor.compat import Compat, decode, split_soname
from tfdoctor.core import versions

COMPAT = Compat.load()
RUNS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).with_name("registration_runs.json")).read_text(encoding="utf-8")
)
COMPILED: dict[str, str] = {
    row["version"]: row["cudnn"]
    for row in decode.read_raw(
        Path(__file__).resolve().parents[2] / "compat" / "registration.toml", "registration.toml"
    )["compiled"]
}
COMPLETE_RUNS = [version for version, run in RUNS.items() if run["without"]]


def find_release(version: str) -> Any:
    release = COMPAT.find_release(version)
    assert release is not None
    return release


def test_every_minor_from_1_13_on_has_a_complete_run() -> None:
    minors = {
        release.minor
        for release in COMPAT.releases
        if release.gpu and versions.compare(release.version, "1.13") >= 0
    }
    assert minors == {versions.major_minor(v) for v in COMPLETE_RUNS if versions.compare(v, "1.13") >= 0}


@pytest.mark.parametrize("version", RUNS)
def test_libraries_are_those_of_the_run(version: str) -> None:
    release = find_release(version)
    assert (release.linkage == "needed") == RUNS[version]["linked"]
    if (
        version != "1.0.1"
    ):  # it links cuDART only; the other libraries that it opens are not needed for registration
        assert sorted(release.required_libraries) == RUNS[version]["required"]
    assert release.libraries_version == version or release.minor == "2.16"


@pytest.mark.parametrize("version", COMPLETE_RUNS)
def test_every_listed_library_is_required(version: str) -> None:
    """Each listed library is needed, and no other library is."""
    release = find_release(version)
    needed = {parts[0] for name in release.required_libraries if (parts := split_soname(name)) is not None}
    without = RUNS[version]["without"]
    assert needed == {stem for stem, outcome in without.items() if outcome != "registers"}
    expected = "no import" if release.linkage == "needed" else "no GPU"
    assert {without[stem] for stem in needed} == {expected}


@pytest.mark.parametrize("version", RUNS)
def test_floor_is_between_refused_and_registered(version: str) -> None:
    release = find_release(version)
    assert release.registration_floor_evidence == "measured"
    floor = versions.parse_capability(release.registration_floor)
    assert all(versions.parse_capability(text) < floor for text in RUNS[version]["refuses"])
    assert all(versions.parse_capability(text) >= floor for text in RUNS[version]["registers"])
    assert RUNS[version]["refuses"]


def test_libraries_are_derived_from_the_header() -> None:
    """Releases that were not run take their libraries from a run of their minor with the same header."""
    for release in COMPAT.releases:
        if release.linkage != "dlopen":
            continue
        assert release.libraries_version in RUNS or release.libraries_version == "2.16.2"
        derived = COMPAT.find_required_libraries(release.defines, release)
        assert derived == release.required_libraries, release.version


@pytest.mark.parametrize("version", COMPILED)
def test_cudnn_of_the_wheel_is_preferred(version: str) -> None:
    release = find_release(version)
    assert (release.cudnn, release.cudnn_evidence) == (versions.major_minor(COMPILED[version]), "measured")
    assert any(
        f"TensorFlow {version} compiled with cuDNN {COMPILED[version]}" in text for text in release.sources
    )


def test_cudnn_evidence_of_other_releases() -> None:
    measured = {versions.major_minor(version) for version in COMPILED}
    for release in COMPAT.releases:
        if not release.gpu:
            assert release.cudnn_evidence is None
        elif release.version not in COMPILED:
            assert release.cudnn_evidence == ("inferred" if release.minor in measured else "documented"), (
                release.version
            )


def test_cudnn_differs_from_tensorflow_org() -> None:
    expected = {"1.13.1": "7.3", "1.14.0": "7.3", "1.15.0": "7.6", "2.0.0": "7.6", "2.14.0": "8.6"}
    assert {version: find_release(version).cudnn for version in expected} == expected


def test_no_option_installs_an_older_cudnn() -> None:
    """NVIDIA's wheels, conda's packages and the working images have at least the cuDNN that the wheel needs."""
    compared = 0
    for release in COMPAT.releases:
        if release.cudnn is None or release.cuda is None or "." not in release.cudnn:
            continue
        cuda_set = COMPAT.cuda_sets.find_for_release(release.version)
        official = COMPAT.images.find_official(release.version)
        offered = [
            cuda_set.cudnn if cuda_set is not None else None,
            COMPAT.find_conda_cudnn(versions.major_minor(release.cuda), release.cudnn)
            if cuda_set is None
            else None,
            official.recipe.cudnn if official is not None and official.recipe.has_working_libraries else None,
        ]
        for text in filter(None, offered):
            assert versions.is_at_least(text, release.cudnn), f"{release.version}: {text}"
            compared += 1
    assert compared > 100
