"""Remedies that install CUDA libraries where an installed TensorFlow finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.findings import Remedy
from tfdoctor.remedies.conda import choose_conda_packages, make_conda_commands
from tfdoctor.remedies.links import format_link_commands, make_link_steps
from tfdoctor.remedies.pip import format_check_command, format_pip_install, quote
from tfdoctor.remedies.releases import can_install_extra, list_gpu_requirements, make_best_release_remedies
from tfdoctor.remedies.search_path import make_path_remedy
from tfdoctor.remedies.wheels import (
    get_site_packages,
    list_cuda_requirements,
    make_install_steps,
    map_sonames_to_wheel_folders,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.remedies.target import Target


def make_library_remedies(target: Target, sonames: Sequence[str]) -> list[Remedy]:
    """Return the remedies that install these libraries where this TensorFlow finds them.

    The remedies use conda if conda installed TensorFlow or if there are no wheels. The list is empty if the build
    is not known.
    """
    build = target.build
    if build is None:
        return []
    if target.tensorflow is not None and target.tensorflow.conda_build and _is_from_conda(target):
        return _make_conda_remedies(target)
    requirements = list_cuda_requirements(target, sonames)
    if not requirements:
        return [
            *_make_conda_remedies(target),
            *make_best_release_remedies(target, "Use {release}, whose CUDA libraries come as wheels."),
        ]
    release = build.release if build.is_exact_release else None
    steps, install_commands = make_install_steps(target, requirements)
    # If all libraries are missing, install them as one set: with TensorFlow's extra, or with a lock.
    if set(sonames) >= set(build.required_libraries) and release is not None:
        if can_install_extra(target, release):
            install_commands = (format_pip_install(target, list_gpu_requirements(target, release)),)
        cuda_set = target.compat.cuda_sets.find_for_release(release.version)
        if cuda_set is not None and not any(step.force_reinstall for step in steps):
            steps = (Install(cuda_set.pins, install_dependencies=False, lock_id=cuda_set.id),)
    folder_by_soname = map_sonames_to_wheel_folders(target, build.cuda or "", sonames)
    site = get_site_packages(target)
    links = (
        make_link_steps(target.compat, release, site, folder_by_soname)
        if release is not None and site
        else ()
    )
    remedies = [
        Remedy(
            "Install NVIDIA's wheels; this TensorFlow finds them by itself."
            if not links
            else f"Install NVIDIA's wheels, and link the libraries that TensorFlow {build.version} does not find "
            "into a folder where it looks.",
            (*install_commands, *format_link_commands(links), format_check_command(target)),
            steps=(*steps, *links),
        )
    ]
    if links or release is None:
        unfound_names = (
            folder_by_soname if release is None or not release.runpath_misses else release.runpath_misses
        )
        folders = dict.fromkeys(
            f"{site}/{folder_by_soname[name]}" for name in unfound_names if name in folder_by_soname
        )
        text = "Instead of linking, add the folders to the search path before Python starts."
        if release is None:
            remedies, text = (
                [],
                "Install NVIDIA's wheels and add their folders to the search path before Python starts.",
            )
        remedies.append(make_path_remedy(target, folders, text, first_commands=install_commands, steps=steps))
    return remedies


def _is_from_conda(target: Target) -> bool:
    """Return whether conda, not pip, installed TensorFlow into a conda environment."""
    python, tensorflow = target.python, target.tensorflow
    if python is None or tensorflow is None or python.conda_prefix is None:
        return False
    owner = python.find_distribution(tensorflow.distribution or "")
    return owner is None or owner.installer != "pip"


def _make_conda_remedies(target: Target) -> list[Remedy]:
    """Return the remedies that install CUDA from conda, into this conda environment or into a new folder.

    The list is empty if TensorFlow's CUDA version is not known.
    """
    build, python = target.build, target.python
    if build is None or build.cuda is None:
        return []
    cuda = versions.major_minor(build.cuda)
    if python is not None and python.conda_prefix is not None:
        prefix = python.conda_prefix
        channel, packages = choose_conda_packages(target.compat, cuda, build.cudnn)
        return [
            make_path_remedy(
                target,
                [f"{prefix}/lib"],
                f"Install CUDA {cuda} and its cuDNN from conda, and add its folder to the search path "
                f"before Python starts.",
                first_commands=(f"conda install --prefix {quote(prefix)} -c {channel} {packages}",),
                steps=None,
            )
        ]
    return [
        Remedy(
            f"CUDA {cuda} has no wheels; conda (Miniforge) has it. Create a folder with its libraries "
            f"and add it to the search path before Python "
            "starts.",
            (*make_conda_commands(target.compat, cuda, build.cudnn), format_check_command(target)),
        )
    ]
