"""The nvidia/cuda images that suit a release, as used by `recommend`, `build` and `lint`."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.prediction.fit.images import list_fitting_tags

COMPAT = Compat.load()
CUDA_11_RELEASES = [
    row for row in COMPAT.releases if row.cuda and versions.parse_numbers(row.cuda) >= (11, 0) and row.gpu
]


def test_newest_patch_of_a_cuda_minor_comes_first() -> None:
    offenders = []
    for release in CUDA_11_RELEASES:
        newest: dict[tuple[str, str], tuple[int, ...]] = {}
        for tag in list_fitting_tags(COMPAT, release):
            minor = (versions.major_minor(tag.cuda), tag.system)
            patch = (*versions.parse_numbers(tag.cuda), 0)[:3]
            if patch > newest.setdefault(minor, patch):
                offenders.append(f"{release.package} {release.version}: {tag.name}")
    assert not offenders


@pytest.mark.parametrize("python", ["3.8", "3.10", "3.12"])
def test_system_with_the_requested_python_comes_first(python: str) -> None:
    for release in CUDA_11_RELEASES:
        systems = [
            COMPAT.pythons.find_system(tag.system) for tag in list_fitting_tags(COMPAT, release, python)
        ]
        has_python = [system is not None and system.default_python == python for system in systems]
        assert has_python == sorted(has_python, reverse=True)
