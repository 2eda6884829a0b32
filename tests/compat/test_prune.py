"""compat/prune.toml: what images are built without, read strictly, and against what is measured of the wheels."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

import pytest

from tfdoctor import versions
from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.compat.prune import load_prune

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.compat import Release
    from tfdoctor.compat.prune import Leftover

COMPAT = Compat.load()
RELEASES = [row for row in COMPAT.releases if row.gpu and COMPAT.cuda_set(row.version) is not None]


def make_release_log(release: Release) -> list[Leftover]:
    return [row for row in COMPAT.leftovers if versions.satisfies(release.version, row.tensorflow)]


def list_taken(release: Release) -> set[str]:
    """Files of the release's CUDA wheels that its image is built without."""
    chosen = COMPAT.cuda_set(release.version)
    assert chosen is not None
    patterns = [row.pattern for row in make_release_log(release)]
    return {
        name
        for name, library in chosen.files.items()
        if any(fnmatch.fnmatchcase(library.path, p) or library.path.startswith(f"{p}/") for p in patterns)
    }


def test_the_rows_are_read() -> None:
    table = load_prune(COMPAT.folder)
    as_of, rows = table.as_of, table.leftovers
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", as_of)
    assert rows == COMPAT.leftovers
    assert {row.part for row in rows} == {"cuda", "tensorflow"}
    assert all(row.sources and row.why for row in rows)


@pytest.mark.parametrize("release", RELEASES, ids=lambda row: row.version)
def test_nothing_that_is_opened_or_linked_is_taken(release: Release) -> None:
    chosen = COMPAT.cuda_set(release.version)
    assert chosen is not None
    gone = list_taken(release)
    opened = {
        name for name in (*release.required_libraries, *release.optional_libraries) if name in chosen.files
    }
    assert not gone & opened
    needed = {
        soname for name, library in chosen.files.items() if name not in gone for soname in library.needed
    }
    assert not gone & needed


def test_something_is_taken_from_each() -> None:
    assert all(list_taken(release) for release in RELEASES)
    assert "libcurand.so.10" in list_taken(COMPAT.release("2.21.0"))
    assert "libcurand.so.10" not in list_taken(COMPAT.release("2.10.1")), "TensorFlow opens it up to 2.13"


def test_tensorflow_itself_stays() -> None:
    for row in COMPAT.leftovers:
        for path in (
            "tensorflow/__init__.py",
            "tensorflow/libtensorflow_framework.so.2",
            "nvidia",
            "tensorflow",
        ):
            assert not fnmatch.fnmatchcase(path, row.pattern)
    assert not any("ptxas" in row.pattern or "libdevice" in row.pattern for row in COMPAT.leftovers)


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
def test_a_wrong_table_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (data_dir("compat") / "prune.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "prune.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        _ = Compat(tmp_path).leftovers
