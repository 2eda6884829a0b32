"""compat/traits.toml: each row is asked for, and says nothing else than the tables that were read from the wheels."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import get_args

import pytest

import tfdoctor
from tfdoctor import versions
from tfdoctor.compat import Compat
from tfdoctor.compat.decode import DataError
from tfdoctor.compat.traits import TraitName, load_traits

COMPAT = Compat.load()
FINAL = [row for row in COMPAT.releases if not row.is_prerelease]


def test_each_row_is_asked_for_somewhere() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in Path(tfdoctor.__file__).parent.rglob("*.py"))
    unasked = [name for name in get_args(TraitName) if len(re.findall(f'"{name}"', code)) < 2]
    assert not unasked


def test_a_row_that_is_missing_is_told(tmp_path: Path) -> None:
    shutil.copytree(COMPAT.folder, tmp_path / "compat", ignore=shutil.ignore_patterns("locks", "imports"))
    table = tmp_path / "compat" / "traits.toml"
    rows = table.read_text().split("[[trait]]")
    table.write_text("[[trait]]".join(row for row in rows if '"keras-3"' not in row))
    with pytest.raises(DataError, match="no row for keras-3"):
        load_traits(tmp_path / "compat")


def test_limits_are_within_and_what_is_not_known_is_below_all() -> None:
    pywrap, old, new = (COMPAT.trait(name) for name in ("opened-by-pywrap", "first-api", "keras-3"))
    assert [pywrap.holds(minor) for minor in ((1, 14), (1, 15), (2, 11), (2, 12))] == [
        False,
        True,
        True,
        False,
    ]
    assert (pywrap.holds(()), old.holds(()), new.holds(())) == (False, True, False)


@pytest.mark.parametrize("version", ["2.0.0", "2.0.4", "2.0.0rc1"])
def test_a_minor_that_ends_in_nought(version: str) -> None:
    assert COMPAT.has(version, "images-of-two-pythons")
    assert COMPAT.has(version, "opened-by-pywrap")
    assert not COMPAT.has(version, "first-api")
    known = COMPAT.distribution("tensorflow")
    assert known is not None
    said = known.explain_missing_gpu_code(versions.numbers(version)[:2])
    assert said is not None
    assert "`tensorflow` 2.0 is built for the CPU" in said


def test_windows_as_the_wheels_say() -> None:
    for row in FINAL:
        if row.windows_pythons and versions.is_at_least(row.version, "2.1") and row.package == "tensorflow":
            assert COMPAT.has(row.version, "windows-without-gpu") is not row.has_gpu("windows"), row.version


def test_runpaths_as_the_wheels_say() -> None:
    for row in FINAL:
        into = any(folder for folders in row.runpath.values() for folder in folders)
        assert COMPAT.has(row.version, "wheels-on-runpath") is into or not row.gpu, row.version


def test_avx_as_the_wheels_say() -> None:
    for row in FINAL:
        if COMPAT.has(row.version, "avx") and row.cpu_instructions is not None:
            assert "avx" in row.cpu_instructions, row.version


def test_nvml_as_registration_says() -> None:
    for row in FINAL:
        opened = "libnvidia-ml.so.1" in COMPAT.registration(row.version).driver
        assert COMPAT.has(row.version, "silent-without-nvml") is opened, row.version


def test_sets_of_wheels_begin_where_the_trait_does() -> None:
    for row in FINAL:
        if COMPAT.cuda_set(row.version) is not None:
            assert COMPAT.has(row.version, "cuda-in-own-folder"), row.version
