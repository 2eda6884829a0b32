"""Limits of other packages (compat/imports.toml) exclude every version that breaks a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.every_row import for_each
from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.core import versions

if TYPE_CHECKING:
    from pathlib import Path


COMPAT = Compat.load()


@for_each(sorted({release.version for release in COMPAT.releases}, key=versions.parse))
def test_limits_exclude_every_breaking_version(tensorflow: str) -> None:
    for package, requirement in COMPAT.list_companion_limits(tensorflow).items():
        limit = versions.find_upper_limit(requirement)
        assert limit is not None
        for companion in COMPAT.companions:
            applies = companion.package == package and versions.satisfies(tensorflow, companion.tensorflow)
            if applies and companion.broken_versions.startswith(">="):
                assert versions.compare(companion.broken_versions[2:].partition(",")[0], limit) >= 0, (
                    companion.id,
                    requirement,
                )


def test_no_limit_for_what_tensorflow_limits_itself() -> None:
    assert "numpy" in COMPAT.list_companion_limits("2.4.4")
    assert "numpy" not in COMPAT.list_companion_limits("2.4.4", ("numpy~=1.19.2",))
    assert COMPAT.list_companion_limits("2.10.1", ("numpy>=1.20",))["numpy"] == "numpy<2"


def test_every_entry_has_a_measured_failure():
    for companion in Compat.load().companions:
        assert companion.failing_runs, companion.id
        assert companion.tensorflow


def test_local_and_invalid_versions():
    assert [
        r.id
        for r in Compat.load().find_incompatible_packages(
            "1.15.5+nv23.3", {"numpy": "1.18", "protobuf": "4.25.3"}, {}
        )
    ]
    assert Compat.load().find_incompatible_packages("no version", {"numpy": "2"}, {}) == ()
    assert Compat.load().find_incompatible_packages(None, {}, {}) == ()
    assert not [
        r
        for r in Compat.load().find_incompatible_packages(
            "2.18.0", {"numpy": "strange", "protobuf": "5.29"}, {}
        )
        if r.broken_versions
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version is 2"),
        ('effect = "import"', 'effect = "imports"', "did you mean `import`"),
        ('package = "protobuf"', 'pakage = "protobuf"', "unknown key `pakage`, did you mean `package`"),
        ('tensorflow = "<2.12.dev0"', 'tensorflow = "older"', "is not a specification"),
        ('id = "numpy-missing"', 'id = "protobuf-missing"', "is there twice"),
    ],
)
def test_invalid_table_is_rejected(tmp_path: Path, old: str, new: str, message: str):
    text = (data_dir("compat") / "imports.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "imports.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        _ = Compat(tmp_path).companions
