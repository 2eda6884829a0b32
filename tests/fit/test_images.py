"""Which images of nvidia/cuda serve a release: the one answer of `recommend`, `build` and `build --check`."""

from __future__ import annotations

import pytest

from tfdoctor import versions
from tfdoctor.compat import Compat, Release
from tfdoctor.fit.images import list_fitting_tags

COMPAT = Compat.load()
LATE = [row for row in COMPAT.releases if row.cuda and versions.numbers(row.cuda) >= (11, 0) and row.gpu]


@pytest.mark.parametrize("release", LATE, ids=lambda row: f"{row.package} {row.version}")
def test_of_one_minor_the_newest_patch_comes_first(release: Release) -> None:
    seen: dict[tuple[str, str], tuple[int, ...]] = {}
    for tag in list_fitting_tags(COMPAT, release):
        minor = (versions.major_minor(tag.cuda), tag.system)
        patch = (*versions.numbers(tag.cuda), 0)[:3]
        assert patch <= seen.setdefault(minor, patch), tag.name


@pytest.mark.parametrize("python", ["3.8", "3.10", "3.12"])
def test_a_system_with_the_python_that_is_there_comes_before_others(python: str) -> None:
    for release in LATE:
        systems = [COMPAT.pythons.system(tag.system) for tag in list_fitting_tags(COMPAT, release, python)]
        own = [system is not None and system.default == python for system in systems]
        assert own == sorted(own, reverse=True)
