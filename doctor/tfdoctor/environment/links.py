"""The links of a fresh installation from a CUDA set. Pure; why links serve is told in rules/_links.py."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from tfdoctor.rules._links import connecting_steps, link_to
from tfdoctor.steps import Link, LinkParts

if TYPE_CHECKING:
    from tfdoctor.compat import Release
    from tfdoctor.compat.wheels import CudaSet

__all__ = ["links_for"]


def links_for(release: Release, cuda_set: CudaSet, site: str) -> tuple[Link, ...]:
    """What a release and its wheels in `site` need so that it finds them, file by file; often nothing."""
    files = [library for library in cuda_set.files.values() if library.folder.endswith("/lib")]
    links: dict[Link, None] = {}
    for step in connecting_steps(release, site, {library.file: library.folder for library in files}):
        if isinstance(step, Link):
            links[step] = None
        elif isinstance(step, LinkParts):
            for library in files:
                if step.source == f"{site}/{library.folder}" and fnmatch.fnmatchcase(
                    library.file, step.pattern
                ):
                    links[link_to(f"{site}/{library.path}", step.folder)] = None
    return tuple(links)
