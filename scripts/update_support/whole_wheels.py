"""Complete downloads of wheels, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core import versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.compat import Compat
    from tfdoctor.compat.releases import Release

__all__ = ["download_wheel", "find_newest_python", "list_last_patches", "select_releases"]

PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "manylinux_2_27")


def list_last_patches(compat: Compat, since: str) -> Iterator[str]:
    """Yield the newest final release with GPU code of each minor release from `since` on."""
    newest: dict[str, Release] = {}
    for release in compat.releases:
        if (
            release.gpu
            and not release.is_prerelease
            and not release.yanked
            and versions.is_at_least(release.version, since)
        ):
            known_release = newest.get(release.minor)
            if known_release is None or known_release.parsed < release.parsed:
                newest[release.minor] = release
    return (release.version for release in newest.values())


def select_releases(compat: Compat, requested: Iterable[str]) -> Iterator[Release]:
    """Yield the releases of these versions; report and skip unknown ones."""
    for version in requested:
        release = compat.find_release(version)
        if release is None:
            print(f"{version}: no such release in compat/tensorflow.json", file=sys.stderr)
        else:
            yield release


def find_newest_python(release: Release) -> str:
    """Return the newest Python for which the release has a wheel: "3.11"."""
    return max(release.pythons("linux"), key=versions.parse)


def download_wheel(release: Release, folder: str, python: str) -> Path | None:
    """Download the Linux x86-64 wheel for this Python into `folder` and return its path.

    Print a message and return None if that fails.
    """
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
    pip += ["--only-binary=:all:", *(f"--platform={name}_x86_64" for name in PLATFORMS)]
    pip += [f"--python-version={python}", "--implementation=cp", f"--dest={folder}"]
    done = subprocess.run([*pip, f"{release.package}=={release.version}"], check=False)
    wheels = list(Path(folder).glob("*.whl"))
    if done.returncode or not wheels:
        print(f"{release.version}: not to be had", file=sys.stderr)
        return None
    return wheels[0]
