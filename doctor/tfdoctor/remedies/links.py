"""Make relative links to NVIDIA's libraries in folders that TensorFlow searches.

The loader searches the RUNPATH of the object that opens a library (in TensorFlow up to 2.8, its RPATH). From
2.14 on, it contains the folders of most of NVIDIA's wheels. In older releases it contains `$ORIGIN/`, which is
TensorFlow's own folder, and the loader finds links there: 2.5.3, 2.10.1 and 2.13.1 registered the stand-in
GPUs this way, without LD_LIBRARY_PATH.

A library that is found through a link searches its own dependencies relative to the link, so all libraries of
a wheel are linked together.
"""

from __future__ import annotations

import fnmatch
import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import LinkMatchingFiles, MakeLink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.wheels import CudaSet
    from tfdoctor.core.causes.steps import Step


def list_framework_folders(release: Release | None) -> tuple[str, ...]:
    """Return the folders below nvidia/ on the RUNPATH of libtensorflow_framework.

    The result is empty for releases before 2.14, and for an unknown release.
    """
    runpath = release.runpath if release is not None else {}
    return next((folders for name, folders in runpath.items() if "libtensorflow_framework" in name), ())


def choose_runpath_folder(folders: Sequence[str]) -> str | None:
    """Return the folder of a RUNPATH in which to create links; None if there are no folders.

    The folder of cuSPARSE, cuBLAS or the CUDA runtime is preferred, then TensorFlow's own folder.
    """
    for name in ("/cusparse/", "/cublas/", "/cuda_runtime/"):
        for folder in folders:
            if name in folder:
                return folder
    own_folders = [folder for folder in folders if folder.endswith(("/tensorflow", "/tensorflow/python"))]
    return next(iter((*own_folders, *folders)), None)


def make_file_link(library_path: str, folder: str) -> MakeLink:
    """Return a link in `folder` to the file at `library_path`, with the same file name."""
    return MakeLink(
        path=f"{folder}/{posixpath.basename(library_path)}", target=posixpath.relpath(library_path, folder)
    )


def make_library_link(name: str, source_folder: str, folder: str) -> Step:
    """Return the step that links the library `name` in `source_folder` into `folder`.

    For cuDNN, the other libraries that it opens are linked too.
    """
    stem, _, version = name.partition(".so")
    if stem == "libcudnn":
        return LinkMatchingFiles(source_folder, f"libcudnn*.so{version}", folder)
    return make_file_link(f"{source_folder}/{name}", folder)


def make_link_steps(
    compat: Compat, release: Release, site: str, folder_by_soname: Mapping[str, str]
) -> tuple[Step, ...]:
    """Return the links that a release installed in `site` needs to find these libraries.

    `folder_by_soname` maps each soname to its wheel's folder, relative to `site`. The result is empty if the
    release finds the libraries without links.
    """
    folders = list_framework_folders(release)
    if folders:
        link_folder = choose_runpath_folder([f"{site}/nvidia/{folder}/lib" for folder in folders])
        unfound_names = [name for name in release.runpath_misses if name in folder_by_soname]
        return tuple(
            make_library_link(name, f"{site}/{folder_by_soname[name]}", link_folder)
            for name in unfound_names
            if link_folder is not None
        )
    if not compat.has_trait(release.version, "cuda-in-own-folder"):
        return ()
    return tuple(
        LinkMatchingFiles(f"{site}/{subfolder}", "*.so*", f"{site}/tensorflow")
        for subfolder in dict.fromkeys(folder_by_soname.values())
    )


def format_link_commands(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the commands that create the links."""
    return tuple(
        line
        for step in steps
        if isinstance(step, (MakeLink, LinkMatchingFiles))
        for line in step.format_commands()
    )


def list_links(compat: Compat, release: Release, cuda_set: CudaSet, site: str) -> tuple[MakeLink, ...]:
    """Return the links, one for each file, with which a release finds its wheels' libraries in `site`.

    Most releases need no links.
    """
    files = [library for library in cuda_set.library_by_file_name.values() if library.folder.endswith("/lib")]
    links: dict[MakeLink, None] = {}  # an ordered set
    folder_by_soname = {library.file_name: library.folder for library in files}
    for step in make_link_steps(compat, release, site, folder_by_soname):
        if isinstance(step, MakeLink):
            links[step] = None
        elif isinstance(step, LinkMatchingFiles):
            for library in files:
                if step.source_folder == f"{site}/{library.folder}" and fnmatch.fnmatchcase(
                    library.file_name, step.pattern
                ):
                    links[make_file_link(f"{site}/{library.path}", step.link_folder)] = None
    return tuple(links)
