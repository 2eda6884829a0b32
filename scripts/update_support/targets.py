"""The locks of TensorFlow that have to be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from tfdoctor import versions
from tfdoctor.compat import Compat
from tfdoctor.compat.locks import choose_locked_package, lock_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.compat.releases import Release

OLDEST = "1.4"
SKIPPED_PYTHONS = ("3.3", "3.4")
"""No image and no ready build has them any more."""


@dataclass(frozen=True)
class Target:
    """One lock of TensorFlow."""

    release: Release
    python: str

    @property
    def name(self) -> str:
        return lock_name(self.release.package, self.release.version, self.python)


def targets() -> list[Target]:
    """Every lock that has to be there, oldest release first."""
    rows = Compat.load().releases
    return [
        Target(row, python)
        for row in rows
        if row.gpu
        and not row.yanked
        and not row.is_prerelease
        and versions.satisfies(row.version, f">={OLDEST}")
        and row.package == choose_locked_package(row.version)
        for python in row.linux_pythons
        if python not in SKIPPED_PYTHONS
    ]


def make_filter(spec: str) -> Callable[[str], bool]:
    """A PEP 440 set, a prefix such as 2.10, or one version."""
    text = f"=={spec}.*" if spec.count(".") < 2 and spec[0].isdigit() else spec
    wanted = SpecifierSet(text if text[0] in "<>=!~" else f"=={text}")
    return lambda version: wanted.contains(version, prereleases=True)
