"""The locks of TensorFlow that must exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from tfdoctor.compat import Compat
from tfdoctor.compat.locks import choose_locked_package, format_lock_name
from tfdoctor.core import versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.compat.releases import Release

OLDEST = "1.4"
DAYS = 30
"""Dependencies in a lock are as they were so many days after the release, because users had those."""
SKIPPED_PYTHONS = ("3.3", "3.4")
"""Versions for which no image and no ready build exists any more."""


@dataclass(frozen=True)
class Target:
    """One lock of TensorFlow."""

    release: Release
    python: str

    @property
    def name(self) -> str:
        return format_lock_name(self.release.package, self.release.version, self.python)


def list_targets() -> list[Target]:
    """Return every lock that must exist, oldest release first."""
    releases = Compat.load().releases
    return [
        Target(release, python)
        for release in releases
        if release.gpu
        and not release.yanked
        and not release.is_prerelease
        and versions.satisfies(release.version, f">={OLDEST}")
        and release.package == choose_locked_package(release.version)
        for python in release.linux_pythons
        if python not in SKIPPED_PYTHONS
    ]


def make_filter(spec: str) -> Callable[[str], bool]:
    """Return a filter of versions for a PEP 440 set, a prefix such as 2.10, or one version."""
    text = f"=={spec}.*" if spec.count(".") < 2 and spec[0].isdigit() else spec
    specifier = SpecifierSet(text if text[0] in "<>=!~" else f"=={text}")
    return lambda version: specifier.contains(version, prereleases=True)
