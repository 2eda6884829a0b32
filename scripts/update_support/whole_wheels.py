"""Wheels that are downloaded whole, one after the other: which releases, and how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor import versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.compat import Compat
    from tfdoctor.compat.releases import Release

__all__ = ["download", "last_patches", "newest_python", "select_releases"]

PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "manylinux_2_27")


def last_patches(compat: Compat, since: str) -> Iterator[str]:
    """The newest final release with GPU code of each minor from `since` on."""
    newest: dict[str, Release] = {}
    for release in compat.releases:
        if (
            release.gpu
            and not release.is_prerelease
            and not release.yanked
            and versions.is_at_least(release.version, since)
        ):
            have = newest.get(release.minor)
            if have is None or have.parsed < release.parsed:
                newest[release.minor] = release
    return (release.version for release in newest.values())


def select_releases(compat: Compat, asked: Iterable[str]) -> Iterator[Release]:
    """The releases of these versions; one that is none is said, and left out."""
    for version in asked:
        release = compat.release(version)
        if release is None:
            print(f"{version}: no such release in compat/tensorflow.json", file=sys.stderr)
        else:
            yield release


def newest_python(release: Release) -> str:
    """The newest for which it has a wheel: `"3.11"`."""
    return max(release.pythons("linux"), key=versions.parse)


def download(release: Release, folder: str, python: str) -> Path | None:
    """Its Linux x86-64 wheel for this Python, in `folder`; None, and said, where it cannot be had."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
    pip += ["--only-binary=:all:", *(f"--platform={name}_x86_64" for name in PLATFORMS)]
    pip += [f"--python-version={python}", "--implementation=cp", f"--dest={folder}"]
    done = subprocess.run([*pip, f"{release.package}=={release.version}"], check=False)
    wheels = list(Path(folder).glob("*.whl"))
    if done.returncode or not wheels:
        print(f"{release.version}: not to be had", file=sys.stderr)
        return None
    return wheels[0]
