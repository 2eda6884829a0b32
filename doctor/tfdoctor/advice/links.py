"""Relative links that put NVIDIA's libraries where TensorFlow itself looks. Pure.

The loader searches the RUNPATH (up to 2.8: RPATH) of the object that opens a library. From 2.14 on that has the
folders of NVIDIA's wheels, with gaps; before, it has `$ORIGIN/`, TensorFlow's own folder, and a link there is found
as well: 2.5.3, 2.10.1 and 2.13.1 registered the stand-in GPUs so, with nothing on LD_LIBRARY_PATH. A library that is
found through a link finds its own needs relative to the link, so what a wheel holds is linked together.
"""

from __future__ import annotations

import fnmatch
import posixpath
import shlex
from typing import TYPE_CHECKING

from tfdoctor.causes.steps import LinkParts, MakeLink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdoctor.causes.steps import Step
    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.wheels import CudaSet


def framework_folders(release: Release | None) -> tuple[str, ...]:
    """Return the folders below nvidia/ on the RUNPATH of the object that opens the libraries (from 2.14 on)."""
    runpath = release.runpath if release is not None else {}
    return next((some for name, some in runpath.items() if "libtensorflow_framework" in name), ())


def runpath_target(folders: Sequence[str]) -> str | None:
    """Return the folder of a RUNPATH into which links go: beside cuSPARSE or cuBLAS, whose neighbours are alike; else
    TensorFlow's own.
    """
    for name in ("/cusparse/", "/cublas/", "/cuda_runtime/"):
        for folder in folders:
            if name in folder:
                return folder
    own = [folder for folder in folders if folder.endswith(("/tensorflow", "/tensorflow/python"))]
    return next((folder for folder in (*own, *folders)), None)


def link_to(library: str, folder: str) -> MakeLink:
    """Return the link in `folder` under the name of `library` (a path)."""
    return MakeLink(f"{folder}/{posixpath.basename(library)}", posixpath.relpath(library, folder))


def links_of(name: str, own: str, folder: str) -> Step:
    """Return what links a library of the folder `own` into another.

    With cuDNN go the parts that it opens beside itself.
    """
    stem, _, version = name.partition(".so")
    if stem == "libcudnn":
        return LinkParts(own, f"libcudnn*.so{version}", folder)
    return link_to(f"{own}/{name}", folder)


def make_link_steps(
    compat: Compat, release: Release, site: str, places: Mapping[str, str]
) -> tuple[Step, ...]:
    """Return what an installation in `site` needs so that it finds these libraries.

    Nothing if it looks there itself.

    `places`: soname → the folder below `site` in which its wheel has it.
    """
    folders = framework_folders(release)
    if folders:
        target = runpath_target([f"{site}/nvidia/{folder}/lib" for folder in folders])
        missed = [name for name in release.runpath_misses if name in places]
        return tuple(
            links_of(name, f"{site}/{places[name]}", target) for name in missed if target is not None
        )
    if not compat.has(release.version, "cuda-in-own-folder"):
        return ()
    return tuple(
        LinkParts(f"{site}/{place}", "*.so*", f"{site}/tensorflow")
        for place in dict.fromkeys(places.values())
    )


def link_commands(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the same as a person types it."""
    lines = []
    for step in steps:
        if isinstance(step, MakeLink):
            lines.append(f"ln -sf {shlex.quote(step.target)} {_place(step.path)}")
        elif isinstance(step, LinkParts):
            lines.append(f"ln -srf {_place(step.source)}/{step.pattern} {_place(step.folder)}/")
    return tuple(lines)


def _place(path: str) -> str:
    return shlex.quote(path.removeprefix("$PWD/"))


def links_for(compat: Compat, release: Release, cuda_set: CudaSet, site: str) -> tuple[MakeLink, ...]:
    """Return what a release and its wheels in `site` need so that it finds them, file by file.

    Often nothing.
    """
    files = [library for library in cuda_set.files.values() if library.folder.endswith("/lib")]
    links: dict[MakeLink, None] = {}
    places = {library.file: library.folder for library in files}
    for step in make_link_steps(compat, release, site, places):
        if isinstance(step, MakeLink):
            links[step] = None
        elif isinstance(step, LinkParts):
            for library in files:
                if step.source == f"{site}/{library.folder}" and fnmatch.fnmatchcase(
                    library.file, step.pattern
                ):
                    links[link_to(f"{site}/{library.path}", step.folder)] = None
    return tuple(links)
