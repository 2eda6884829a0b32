"""compat/prune.toml: the files that images are built without, read strictly and compared with the measured wheels."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

import pytest

from compat.every_row import for_each
from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.compat.prune import load_prune
from tfdoctor.core import versions

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.compat import Release
    from tfdoctor.compat.prune import Leftover

COMPAT = Compat.load()
RELEASES = [
    row for row in COMPAT.releases if row.gpu and COMPAT.cuda_sets.find_for_release(row.version) is not None
]


def list_leftovers(release: Release) -> list[Leftover]:
    return [
        leftover for leftover in COMPAT.leftovers if versions.satisfies(release.version, leftover.tensorflow)
    ]


def list_removed_files(release: Release) -> set[str]:
    """Return the files of the release's CUDA wheels that its image is built without."""
    cuda_set = COMPAT.cuda_sets.find_for_release(release.version)
    assert cuda_set is not None
    patterns = [leftover.pattern for leftover in list_leftovers(release)]
    return {
        name
        for name, library in cuda_set.library_by_file_name.items()
        if any(
            fnmatch.fnmatchcase(library.path, pattern) or library.path.startswith(f"{pattern}/")
            for pattern in patterns
        )
    }


def test_table_is_read() -> None:
    table = load_prune(COMPAT.folder)
    as_of, leftovers = table.as_of, table.leftovers
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", as_of)
    assert leftovers == COMPAT.leftovers
    assert {leftover.part for leftover in leftovers} == {"cuda", "tensorflow"}
    assert all(leftover.sources and leftover.reason for leftover in leftovers)


@for_each(RELEASES, lambda row: row.version)
def test_no_required_library_is_removed(release: Release) -> None:
    cuda_set = COMPAT.cuda_sets.find_for_release(release.version)
    assert cuda_set is not None
    removed = list_removed_files(release)
    opened = {
        name
        for name in (*release.required_libraries, *release.optional_libraries)
        if name in cuda_set.library_by_file_name
    }
    assert not removed & opened
    needed = {
        soname
        for name, library in cuda_set.library_by_file_name.items()
        if name not in removed
        for soname in library.needed_sonames
    }
    assert not removed & needed


def test_every_release_has_removed_files() -> None:
    assert all(list_removed_files(release) for release in RELEASES)
    assert "libcurand.so.10" in list_removed_files(COMPAT.find_release("2.21.0"))
    assert "libcurand.so.10" not in list_removed_files(COMPAT.find_release("2.10.1")), (
        "TensorFlow opens it up to 2.13"
    )


def test_tensorflow_is_not_removed() -> None:
    for leftover in COMPAT.leftovers:
        for path in (
            "tensorflow/__init__.py",
            "tensorflow/libtensorflow_framework.so.2",
            "nvidia",
            "tensorflow",
        ):
            assert not fnmatch.fnmatchcase(path, leftover.pattern)
    assert not any(
        "ptxas" in leftover.pattern or "libdevice" in leftover.pattern for leftover in COMPAT.leftovers
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pattern = ", "patern = ", "did you mean `pattern`"),
        ('part = "cuda"', 'part = "cudda"', "did you mean `cuda`"),
        ('tensorflow = ">=2.5"', 'tensorflow = "=>2.5"', "not a specification"),
        ('pattern = "clang"', 'pattern = "/clang"', "plain path"),
        ('pattern = "clang"', 'pattern = "../clang"', "plain path"),
        ('pattern = "clang"', 'pattern = "a; rm -rf b"', "plain path"),
        ('pattern = "clang"', 'pattern = "-rf"', "plain path"),
        ('pattern = "clang"', 'pattern = "*"', "plain path"),
        ('pattern = "clang"', 'pattern = "$HOME"', "plain path"),
        ('pattern = "clang"', 'pattern = "tensorflow/include"', "twice"),
        ("schema_version = 1", "schema_version = 2", "schema_version is 2"),
        ("as_of =", "as-of =", "as_of"),
    ],
)
def test_invalid_table_is_rejected(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (data_dir("compat") / "prune.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "prune.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        _ = Compat(tmp_path).leftovers
