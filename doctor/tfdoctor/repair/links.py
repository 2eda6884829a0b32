"""The links of a fresh installation from a CUDA set. Pure; why links serve is told in rules/_links.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat import split_soname
from tfdoctor.rules._links import OWN_FOLDER, framework_folders, link_to, runpath_target
from tfdoctor.steps import Link

if TYPE_CHECKING:
    from tfdoctor.compat import Release
    from tfdoctor.compat.wheels import CudaSet

__all__ = ["Link", "links_for"]


def links_for(release: Release, cuda_set: CudaSet, site: str) -> tuple[Link, ...]:
    """What a release and its wheels in `site` need so that it finds them; often nothing."""
    folders = framework_folders(release)
    files = [library for library in cuda_set.files.values() if library.folder.endswith("/lib")]
    if not folders:
        if not versions.at_least(release.version, OWN_FOLDER):
            return ()
        return tuple(link_to(f"{site}/{library.path}", f"{site}/tensorflow") for library in files)
    target = runpath_target([f"{site}/nvidia/{folder}/lib" for folder in folders])
    missed = {parts[0] for parts in map(split_soname, release.runpath_misses) if parts is not None}
    return tuple(
        link_to(f"{site}/{library.path}", target)
        for library in files
        if target is not None and _belongs(library.file, missed) and f"{site}/{library.folder}" != target
    )


def _belongs(file: str, missed: set[str]) -> bool:
    """Whether a file is a library that is missed, or a part that cuDNN opens beside itself."""
    parts = split_soname(file)
    return parts is not None and (parts[0] in missed or ("cudnn" in missed and parts[0].startswith("cudnn")))
