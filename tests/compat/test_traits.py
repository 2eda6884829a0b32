"""compat/traits.toml: each trait is used, and agrees with the tables that were read from the wheels."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import get_args

import pytest

import tfdoctor
from tfdoctor.compat import Compat
from tfdoctor.compat.decode import DataError
from tfdoctor.compat.traits import TraitName, load_traits
from tfdoctor.core import versions

COMPAT = Compat.load()
FINAL_RELEASES = [row for row in COMPAT.releases if not row.is_prerelease]


def test_every_trait_is_used() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in Path(tfdoctor.__file__).parent.rglob("*.py"))
    unused = [name for name in get_args(TraitName) if len(re.findall(f'"{name}"', code)) < 2]
    assert not unused


def test_missing_trait_is_reported(tmp_path: Path) -> None:
    shutil.copytree(COMPAT.folder, tmp_path / "compat", ignore=shutil.ignore_patterns("locks", "imports"))
    table = tmp_path / "compat" / "traits.toml"
    entries = table.read_text().split("[[trait]]")
    table.write_text("[[trait]]".join(entry for entry in entries if '"keras-3"' not in entry))
    with pytest.raises(DataError, match="no row for keras-3"):
        load_traits(tmp_path / "compat")


def test_limits_are_inclusive_and_unknown_is_lowest() -> None:
    pywrap, old, new = (COMPAT.get_trait(name) for name in ("opened-by-pywrap", "first-api", "keras-3"))
    assert [pywrap.applies_to(minor) for minor in ((1, 14), (1, 15), (2, 11), (2, 12))] == [
        False,
        True,
        True,
        False,
    ]
    assert (pywrap.applies_to(()), old.applies_to(()), new.applies_to(())) == (False, True, False)


@pytest.mark.parametrize("version", ["2.0.0", "2.0.4", "2.0.0rc1"])
def test_minor_version_zero(version: str) -> None:
    assert COMPAT.has_trait(version, "images-of-two-pythons")
    assert COMPAT.has_trait(version, "opened-by-pywrap")
    assert not COMPAT.has_trait(version, "first-api")
    distribution = COMPAT.find_distribution("tensorflow")
    assert distribution is not None
    explanation = distribution.explain_missing_gpu_code(versions.parse_numbers(version)[:2])
    assert explanation is not None
    assert "`tensorflow` 2.0 is built for the CPU" in explanation


def test_windows_trait_matches_the_wheels() -> None:
    for release in FINAL_RELEASES:
        if (
            release.windows_pythons
            and versions.is_at_least(release.version, "2.1")
            and release.package == "tensorflow"
        ):
            assert COMPAT.has_trait(release.version, "windows-without-gpu") is not release.has_gpu(
                "windows"
            ), release.version


def test_runpath_trait_matches_the_wheels() -> None:
    for release in FINAL_RELEASES:
        has_folders = any(folder for folders in release.runpath.values() for folder in folders)
        assert COMPAT.has_trait(release.version, "wheels-on-runpath") is has_folders or not release.gpu, (
            release.version
        )


def test_avx_trait_matches_the_wheels() -> None:
    for release in FINAL_RELEASES:
        if COMPAT.has_trait(release.version, "avx") and release.cpu_instructions is not None:
            assert "avx" in release.cpu_instructions, release.version


def test_nvml_trait_matches_the_registration() -> None:
    for release in FINAL_RELEASES:
        opened = "libnvidia-ml.so.1" in COMPAT.find_registration(release.version).driver_sonames
        assert COMPAT.has_trait(release.version, "silent-without-nvml") is opened, release.version


def test_cuda_sets_imply_the_trait() -> None:
    for release in FINAL_RELEASES:
        if COMPAT.cuda_sets.find_for_release(release.version) is not None:
            assert COMPAT.has_trait(release.version, "cuda-in-own-folder"), release.version
