"""The release table against what real TensorFlow did, release by release.

registration_runs.json is condensed from runs of real wheels against the stand-in driver (tests/lab/record_truth.py
with the situations `all-present`, `without-…` and `cc-…`): which libraries each release needed, what happened
without each one of them, and which compute capabilities it registered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tfdoctor import versions
from tfdoctor.compat import Compat, decode, split_soname

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
FULL = [version for version, run in RUNS.items() if run["without"]]


def row_of(version: str) -> Any:
    row = COMPAT.release(version)
    assert row is not None
    return row


def test_every_minor_from_1_13_on_was_run_whole() -> None:
    minors = {row.minor for row in COMPAT.releases if row.gpu and versions.compare(row.version, "1.13") >= 0}
    assert minors == {versions.major_minor(v) for v in FULL if versions.compare(v, "1.13") >= 0}


@pytest.mark.parametrize("version", RUNS)
def test_the_libraries_are_those_of_the_run(version: str) -> None:
    row = row_of(version)
    assert (row.linkage == "needed") == RUNS[version]["linked"]
    if version != "1.0.1":  # it links cuDART alone; what it opens besides is not needed for registration
        assert sorted(row.required_libraries) == RUNS[version]["required"]
    assert row.libraries_from == version or row.minor == "2.16"


@pytest.mark.parametrize("version", FULL)
def test_without_any_one_of_them_there_is_no_gpu(version: str) -> None:
    """Each listed library is needed, and none that is not listed."""
    row = row_of(version)
    needed = {parts[0] for name in row.required_libraries if (parts := split_soname(name)) is not None}
    without = RUNS[version]["without"]
    assert needed == {stem for stem, outcome in without.items() if outcome != "registers"}
    expected = "no import" if row.linkage == "needed" else "no GPU"
    assert {without[stem] for stem in needed} == {expected}


@pytest.mark.parametrize("version", RUNS)
def test_the_floor_lies_between_what_was_refused_and_what_was_registered(version: str) -> None:
    row = row_of(version)
    assert row.registration_floor_evidence == "measured"
    floor = versions.parse_capability(row.registration_floor)
    assert all(versions.parse_capability(text) < floor for text in RUNS[version]["refuses"])
    assert all(versions.parse_capability(text) >= floor for text in RUNS[version]["registers"])
    assert RUNS[version]["refuses"]


def test_neighbours_agree() -> None:
    """Rows that were not run take their libraries from a run of their minor with the same header."""
    for row in COMPAT.releases:
        if row.linkage != "dlopen":
            continue
        assert row.libraries_from in RUNS or row.libraries_from == "2.16.2"
        derived = COMPAT.required_libraries_for(row.defines, row)
        assert derived == row.required_libraries, row.version


@pytest.mark.parametrize("version", COMPILED)
def test_what_the_wheel_says_of_its_cudnn_goes_before_all_else(version: str) -> None:
    row = row_of(version)
    assert (row.cudnn, row.cudnn_evidence) == (versions.major_minor(COMPILED[version]), "measured")
    assert any(
        f"TensorFlow {version} compiled with cuDNN {COMPILED[version]}" in text for text in row.sources
    )


def test_other_patches_are_inferred_and_other_minors_documented() -> None:
    measured = {versions.major_minor(version) for version in COMPILED}
    for row in COMPAT.releases:
        if not row.gpu:
            assert row.cudnn_evidence is None
        elif row.version not in COMPILED:
            assert row.cudnn_evidence == ("inferred" if row.minor in measured else "documented"), row.version


def test_what_tensorflow_org_has_another_number_for() -> None:
    expected = {"1.13.1": "7.3", "1.14.0": "7.3", "1.15.0": "7.6", "2.0.0": "7.6", "2.14.0": "8.6"}
    assert {version: row_of(version).cudnn for version in expected} == expected


def test_nothing_that_we_install_has_an_older_cudnn() -> None:
    """NVIDIA's wheels, conda's packages, the images that work: none below what the wheel takes."""
    looked = 0
    for row in COMPAT.releases:
        if row.cudnn is None or row.cuda is None or "." not in row.cudnn:
            continue
        chosen = COMPAT.cuda_set(row.version)
        official = COMPAT.images.find_official(row.version)
        offered = [
            chosen.cudnn if chosen is not None else None,
            COMPAT.conda_cudnn(versions.major_minor(row.cuda), row.cudnn) if chosen is None else None,
            official.recipe.cudnn if official is not None and official.recipe.works else None,
        ]
        for text in filter(None, offered):
            assert versions.is_at_least(text, row.cudnn), f"{row.version}: {text}"
            looked += 1
    assert looked > 100
