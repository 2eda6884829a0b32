"""Tables of small facts about GPUs: last drivers, speeds, reserved memory, cuDNN versions, Pythons and conda names."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from compat.every_row import for_each
from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.core import versions

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.compat.cards import TensorCoreThroughput

COMPAT = Compat.load()


def test_last_driver_of_each_capability() -> None:
    rows = COMPAT.cards.unsupported_gpus
    assert [row.capability_limit for row in rows] == sorted(
        (row.capability_limit for row in rows), key=versions.parse_capability
    )
    assert [versions.compare(row.last_branch, row.first_branch_without) for row in rows] == [-1] * len(rows)
    for capability, last in (("2.1", "390"), ("3.5", "470"), ("5.0", "580"), ("7.0", "580")):
        branch = COMPAT.cards.find_unsupported(capability)
        assert branch is not None
        assert branch.last_branch == last
    assert COMPAT.cards.find_unsupported("7.5") is None
    assert COMPAT.cards.find_unsupported("12.0") is None


def test_windows_drivers_belong_to_their_branch() -> None:
    """Windows numbers release 390 up to 391.35 and 470 up to 475.14; the next branches begin at 396 and 495."""
    for capability, last in (("2.1", "391.35"), ("3.5", "475.14"), ("6.1", "582.28")):
        branch = COMPAT.cards.find_unsupported(capability)
        assert branch is not None
        assert not versions.is_at_least(last, branch.first_branch_without)


def test_every_generation_names_known_gpus() -> None:
    generations = COMPAT.cards.generations
    assert [generation.capability for generation in generations] == sorted(
        (generation.capability for generation in generations), key=versions.parse_capability
    )
    assert len({generation.name for generation in generations}) == len(generations)
    for generation in generations:
        is_geforce = generation.name.startswith(("GTX", "RTX")) and generation.name != "GTX 750"
        names = {gpu.name for gpu in COMPAT.gpus if gpu.capability == generation.capability}
        matches = [
            name
            for name in names
            if (f"GeForce {generation.name}" in name if is_geforce else generation.name in name)
        ]
        assert matches, generation.name


def test_speed_falls_back_to_the_major_capability() -> None:
    assert COMPAT.cards.get_adds_per_clock("8.0") == 64
    assert COMPAT.cards.get_adds_per_clock("8.6") == 128
    assert COMPAT.cards.get_adds_per_clock("99.0") is None


@pytest.mark.parametrize(
    ("capability", "free", "left"),
    [("6.1", 8000, 500), ("7.5", 8000, 1050), ("8.6", 8000, 1536), ("12.0", 8000, 1800), ("8.6", 2047, 225)],
)
def test_memory_left_after_the_reserve(capability: str, free: int, left: int) -> None:
    assert COMPAT.cards.memory_reserve.compute_reserve(capability, free) == left


def test_last_cudnn_of_a_capability() -> None:
    assert COMPAT.find_dropping_cudnn("6.1", 9) == "9.11"
    assert COMPAT.find_dropping_cudnn("3.7", 8) == "8.8"
    assert COMPAT.find_dropping_cudnn("8.6", 9) is None
    assert COMPAT.newest_cudnn_major == 9


def test_cudnn_of_conda_packages() -> None:
    assert COMPAT.find_conda_cudnn("8.0", "5") == "5.1"
    assert COMPAT.find_conda_cudnn("8.0", "6.0") == "6.0"
    assert COMPAT.find_conda_cudnn("11.2", None) == "8.1"
    assert COMPAT.find_conda_cudnn("11.8", "8.6") is None


def test_newer_packages_need_newer_pythons() -> None:
    for ladder in COMPAT.unlimited_versions:
        package_versions = list(ladder.oldest_python)
        assert package_versions == sorted(package_versions, key=versions.parse_numbers)
        pythons = [versions.parse_numbers(python) for python in ladder.oldest_python.values()]
        assert pythons == sorted(pythons)
    assert {ladder.package for ladder in COMPAT.unlimited_versions} == {"numpy", "protobuf"}


def test_default_python_of_a_distribution() -> None:
    assert COMPAT.pythons.get_default_python("debian", "bookworm") == "3.11"
    assert COMPAT.pythons.get_default_python("debian", "12") == "3.11"
    assert COMPAT.pythons.get_default_python("ubuntu", "22.04") == "3.10"
    assert COMPAT.pythons.get_default_python("fedora", "40") is None


def test_conda_names_are_in_one_list_each() -> None:
    names = COMPAT.conda_names
    assert not names.identical_names & names.unrelated_names
    assert not names.identical_names & names.index_name_by_conda_name.keys()
    assert not names.unrelated_names & names.index_name_by_conda_name.keys()


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("cards.toml", 'below = "3.0"', 'below = "three"', "ended Fermi: `below`: `three` is not a compute"),
        (
            "cards.toml",
            "drives_from",
            "drive_from",
            "open_module: unknown key `drive_from`, did you mean `drives_from`",
        ),
        ("cards.toml", "7 = 1050", '7 = "1050"', "`7` must be a whole number, not text"),
        ("cards.toml", 'capability = "5"', 'capability = "3"', "float32 3: it is there twice"),
        ("conda_names.toml", 'sources = ["', 'sources = [] #["', "`sources` is empty"),
    ],
)
def test_invalid_table_is_rejected(tmp_path: Path, name: str, old: str, new: str, message: str) -> None:
    text = (data_dir("compat") / name).read_text(encoding="utf-8")
    assert old in text
    shutil.copytree(data_dir("compat"), tmp_path / "compat")
    (tmp_path / "compat" / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    compat = Compat(tmp_path / "compat")
    with pytest.raises(DataError) as caught:
        _ = compat.cards if name == "cards.toml" else compat.conda_names
    assert message in str(caught.value)


@for_each(COMPAT.cards.tensor_throughputs, lambda row: f"{row.reference_gpu} {row.dtype}")
def test_documented_peak_equals_the_computed_peak(row: TensorCoreThroughput) -> None:
    """Compute the peak from the operations per clock, and compare it with NVIDIA's figure (TFLOP/s)."""
    computed = 2 * row.per_clock * row.multiprocessors * row.clock_mhz * 1e6 / 1e12
    assert computed == pytest.approx(row.tflops, rel=0.03)
    assert COMPAT.cards.list_adds_per_clock(row.capability, row.reference_gpu)[row.dtype] == row.per_clock


def test_peak_of_other_gpus_is_not_guessed() -> None:
    cards = COMPAT.cards
    assert "tf32" in cards.list_adds_per_clock("8.6", "NVIDIA GeForce RTX 3090")
    assert set(cards.list_adds_per_clock("8.6", "NVIDIA A40")) == {"float32"}
    assert set(cards.list_adds_per_clock("8.6", None)) == {"float32"}
    assert not cards.list_adds_per_clock("99.0", "Tomorrow")


def test_bandwidths_of_pcie_and_nvlink() -> None:
    cards = COMPAT.cards
    assert cards.compute_pcie_gbps(3, 16) == pytest.approx(15.76)
    assert cards.compute_pcie_gbps(4, 4) == pytest.approx(7.876)
    assert cards.compute_pcie_gbps(9, 16) is None
    assert [row.generation for row in cards.pcie] == [1, 2, 3, 4, 5, 6]
    assert cards.compute_nvlink_gbps("9.0", 18) == 450
    assert cards.compute_nvlink_gbps("8.6", 4) == pytest.approx(56.25, rel=1e-3)
    assert cards.compute_nvlink_gbps("8.9", 4) is None
