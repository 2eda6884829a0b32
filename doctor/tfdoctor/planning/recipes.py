"""Turn a release into an option of each recipe, or explain why the recipe cannot install it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause
from tfdoctor.core.text import join_words
from tfdoctor.planning.bases import add_image_sizes
from tfdoctor.planning.models import BaseImage, Component, CondaCuda, Option, Recipe, Rejection
from tfdoctor.prediction.fit import constraints
from tfdoctor.prediction.fit.compatibility import (
    check_python,
    check_wheels,
    choose_preferred,
    find_newest_python,
    fit_environment,
    is_locked,
)
from tfdoctor.prediction.fit.constraints import Assessment
from tfdoctor.prediction.fit.images import list_fitting_tags
from tfdoctor.prediction.fit.models import Host, Reason
from tfdoctor.remedies.conda import choose_conda_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.images import ImageTag, NgcImage
    from tfdoctor.compat.pythons import PythonBuild
    from tfdoctor.compat.wheels import CudaSet, CudaWheel
    from tfdoctor.planning.models import Request

    RecipeFunction = Callable[[Compat, Release, Request, Host], "Option | Rejection"]

__all__ = [
    "RECIPES",
    "adapt_to_machine",
    "find_conda_packages",
    "has_image",
    "make_build_command",
    "try_recipe",
]

PYTHON2 = "2.7"
"""The Python 2 version of TensorFlow's images."""
CONDA_CHANNEL = "conda-forge"
"""The only conda channel that everybody may use free of charge."""
_SLIM_IMAGE_BYTES = 130_000_000
"""Approximate unpacked size of a slim Python image."""


def try_recipe(
    compat: Compat, release: Release, request: Request, host: Host, recipe: Recipe
) -> Option | Rejection:
    """Return the option that installs a release with this recipe, or the reasons why that is impossible."""
    if recipe.needs_venv and request.python == PYTHON2:
        text = f"{recipe.value} installs into a virtual environment, and Python {PYTHON2} has no `venv` to make one"
        return _make_rejection(
            recipe, release, [Reason(Cause.NO_MATCHING_WHEEL, text, "images.toml: [[python]]")]
        )
    result = RECIPES[recipe](compat, release, request, host)
    return result if isinstance(result, Rejection) else add_image_sizes(compat, result)


def has_image(compat: Compat, release: Release, recipe: Recipe) -> bool:
    """Return whether a ready image of this recipe is known to have the release; True if it needs none."""
    if recipe is Recipe.OFFICIAL:
        return compat.images.find_official(release.version) is not None
    return recipe is not Recipe.NGC or bool(_list_ngc_images(compat, release))


def _list_ngc_images(compat: Compat, release: Release) -> list[NgcImage]:
    """Return NVIDIA's images that have exactly this release, the newest first."""
    return [image for image in compat.images.list_ngc() if image.tensorflow == release.version]


def adapt_to_machine(compat: Compat, option: Option, request: Request, host: Host) -> Option:
    """Return the option with a build command that chooses the same image on any machine.

    The command names the GPUs and the driver if the base image depends on them.
    """
    if option.base is None or request.base is not None or not (host.cards or host.driver):
        return option
    general_option = try_recipe(
        compat, option.release, replace(request, recipe=option.recipe), Host(), option.recipe
    )
    if isinstance(general_option, Option) and (general_option.base, general_option.python) == (
        option.base,
        option.python,
    ):
        return option
    return replace(option, commands=(" ".join([option.commands[0], *host.options]), *option.commands[1:]))


def make_build_command(release: Release, python: str, recipe: Recipe, request: Request) -> str:
    """Return the `tfdoctor build` command that builds an image of this release."""
    arguments = ["tfdoctor build --tf", release.version]
    if request.python is not None:
        arguments += ["--python-version", python]
    arguments += ["--recipe", recipe.value]
    arguments += ["--base", shlex.quote(request.base)] if request.base is not None else []
    return " ".join(arguments)


def make_install_command(release: Release, python: str, request: Request) -> str:
    """Return the `tfdoctor install` command that installs this release."""
    python_option = f" --python-version {python}" if request.python is not None else ""
    return f"tfdoctor install --tf {release.version}{python_option}"


def _make_rejection(recipe: Recipe, release: Release, reasons: Sequence[Reason]) -> Rejection:
    return Rejection(recipe, release.version, tuple(reasons))


def _make_tensorflow_part(release: Release, python: str) -> Component:
    return Component(
        f"TensorFlow {release.version} and what it needs",
        release.unpacked_bytes,
        f"the wheel for Python {python} and its dependencies, pinned by hash",
    )


def _make_cuda_parts(compat: Compat, cuda_set: CudaSet) -> list[Component]:
    return [
        Component(wheel.pin, wheel.unpacked_bytes, _list_wheel_libraries(compat, wheel))
        for wheel in cuda_set.wheels
    ]


def _explain_wheels(cuda_set: CudaSet) -> str:
    return f"everything is on the package index: NVIDIA's wheels for CUDA {cuda_set.cuda} with cuDNN {cuda_set.cudnn}"


def _list_wheel_libraries(compat: Compat, wheel: CudaWheel) -> str:
    """Return the titles of a wheel's libraries as text, or the purpose of the wheel if there are none.

    Only libraries in libraries.toml have a title.
    """
    library_families = [compat.find_library(library.soname) for library in wheel.libraries if library.soname]
    titles = dict.fromkeys(family.title for family in library_families if family is not None)
    if titles:
        return ", ".join(titles)
    return "ptxas and libdevice, with which XLA compiles" if "nvcc" in wheel.name else "needed by the others"


# ---------------------------------------------------------------- CUDA from wheels


def _plan_venv(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejection:
    """Return the option of a virtual environment on this machine, or the reasons why it does not work."""
    assessment = fit_environment(compat, release, host, request.python)
    python, cuda_set = assessment.python, assessment.cuda_set
    if assessment.reasons or python is None or cuda_set is None:
        return _make_rejection(Recipe.VENV, release, assessment.reasons)
    return Option(
        recipe=Recipe.VENV,
        release=release,
        tensorflow=release.version,
        python=python,
        cuda=cuda_set.cuda,
        cudnn=cuda_set.cudnn,
        base=None,
        cuda_set=cuda_set,
        wheels_to_install=cuda_set.wheels,
        components=(_make_tensorflow_part(release, python), *_make_cuda_parts(compat, cuda_set)),
        commands=(make_install_command(release, python, request),),
        reasons=(_explain_wheels(cuda_set), *_explain_links(release)),
        caveats=assessment.caveats,
    )


def _explain_links(release: Release) -> tuple[str, ...]:
    """Return a note that links are needed if the RUNPATH lacks folders of NVIDIA's wheels; else ()."""
    if release.runpath and not release.runpath_misses:
        return ()
    text = "does not find all of NVIDIA's wheels by itself: links put their libraries where it looks"
    return (f"TensorFlow {release.version} {text}",)


def _plan_pip_cuda(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejection:
    """Return the option of a slim Python image with NVIDIA's wheels, or the reasons against it."""
    assessment = Assessment()
    constraints.check_machine(assessment, release, host, container=True)
    python = _choose_python(assessment, compat, release, request)
    cuda_set = check_wheels(assessment, compat, release, host)
    base = _choose_base(assessment, compat, request, python)
    if assessment.reasons or python is None or cuda_set is None or base is None:
        return _make_rejection(Recipe.PIP_CUDA, release, assessment.reasons)
    return Option(
        recipe=Recipe.PIP_CUDA,
        release=release,
        tensorflow=release.version,
        python=python,
        cuda=cuda_set.cuda,
        cudnn=cuda_set.cudnn,
        base=base,
        cuda_set=cuda_set,
        wheels_to_install=cuda_set.wheels,
        components=(
            Component(base.image, None if request.base else _SLIM_IMAGE_BYTES, "the system and Python"),
            _make_tensorflow_part(release, python),
            *_make_cuda_parts(compat, cuda_set),
        ),
        commands=(make_build_command(release, python, Recipe.PIP_CUDA, request),),
        reasons=(
            _explain_wheels(cuda_set),
            f"Python {python}: "
            + ("as asked" if request.python else f"the newest that {release.version} has a wheel for"),
        ),
        caveats=(*assessment.caveats, *constraints.check_release(release)),
    )


def _choose_python(assessment: Assessment, compat: Compat, release: Release, request: Request) -> str | None:
    """Return the requested Python, or the newest Python that has a lock.

    Without a base image from the user, there must also be a slim image of this Python. If no Python fits, the
    reason is added to the assessment.
    """
    contents = request.base_contents
    if contents is not None and not {*contents.pythons} & (
        {request.python} if request.python is not None else {*release.linux_pythons}
    ):
        wheels = join_words(release.linux_pythons)
        assessment.add_reason(
            Cause.NO_MATCHING_WHEEL,
            f"{request.base} has Python {join_words(contents.pythons)}, "
            + (
                f"not {request.python}"
                if request.python is not None
                else f"and TensorFlow {release.version} has wheels for {wheels}"
            ),
            f"pythons.toml: {contents.system}",
        )
        return None
    python = request.python or find_newest_python(
        release,
        lambda candidate: (
            (
                compat.images.find_python(candidate) is not None
                if request.base is None
                else contents is None or candidate in contents.pythons
            )
            and is_locked(compat, release, candidate)
        ),
    )
    check_python(assessment, compat, release, python)
    return python


def _choose_base(
    assessment: Assessment, compat: Compat, request: Request, python: str | None
) -> BaseImage | None:
    """Return the user's base image, or the slim image of this Python.

    If there is no slim image, return None and add the reason to the assessment.
    """
    if request.base is not None:
        contents = request.base_contents
        if contents is None or contents.has_python or python is None:
            return BaseImage(request.base, contents.system if contents is not None else "", None)
        return BaseImage(request.base, contents.system, None, (f"python{python}", f"python{python}-venv"))
    image = compat.images.find_python(python) if python is not None else None
    if python is not None and image is None:
        assessment.add_reason(
            Cause.NO_MATCHING_WHEEL, f"there is no slim image of Python {python}", "images.toml: [[python]]"
        )
    return BaseImage(image.name, image.system, "python3", digest=image.digest) if image is not None else None


# ---------------------------------------------------------------- CUDA from conda


def _plan_conda_cuda(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejection:
    """Return the option of a slim Python image with CUDA from conda-forge, or why it does not work.

    This recipe is for releases whose CUDA has no wheels, in case TensorFlow's own images are deleted.
    """
    assessment = Assessment()
    constraints.check_machine(assessment, release, host, container=True)
    conda = find_conda_packages(compat, release)
    if conda is None or release.cuda is None:
        assessment.add_reason(
            Cause.INCONCLUSIVE,
            f"conda-forge is for releases whose CUDA no NVIDIA wheel has, and not for {release.version}",
            "cudnn.toml: [[conda]]",
        )
        return _make_rejection(Recipe.CONDA_CUDA, release, assessment.reasons)
    python = _choose_python(assessment, compat, release, request)
    base = _choose_base(assessment, compat, request, python)
    cudnn = compat.find_conda_cudnn(versions.major_minor(release.cuda), release.cudnn)
    constraints.check_gpus_and_driver(assessment, compat, release, host, release.cuda, cudnn)
    if assessment.reasons or python is None or base is None:
        return _make_rejection(Recipe.CONDA_CUDA, release, assessment.reasons)
    assessment.add_caveat(
        Cause.INCONCLUSIVE,
        "partly tested: the versions of the conda-forge packages come from user reports. The image is verified after "
        "it is built",
        "cudnn.toml: [[conda]]",
    )
    return Option(
        recipe=Recipe.CONDA_CUDA,
        release=release,
        tensorflow=release.version,
        python=python,
        cuda=release.cuda,
        cudnn=cudnn,
        base=base,
        cuda_set=None,
        wheels_to_install=(),
        components=(
            Component(base.image, None if request.base else _SLIM_IMAGE_BYTES, "the system and Python"),
            _make_tensorflow_part(release, python),
            Component(" ".join(conda.packages), None, f"CUDA and cuDNN from the channel {conda.channel}"),
        ),
        commands=(make_build_command(release, python, Recipe.CONDA_CUDA, request),),
        reasons=("it needs no image with an old CUDA, and the last of those may be deleted",),
        caveats=(*assessment.caveats, *constraints.check_release(release)),
        conda_cuda=conda,
    )


def find_conda_packages(compat: Compat, release: Release) -> CondaCuda | None:
    """Return the conda packages with the CUDA of this release.

    Return None if NVIDIA's wheels have this CUDA, or if conda-forge does not have it.
    """
    if release.cuda is None or compat.cuda_sets.find_for_release(release.version) is not None:
        return None
    cuda = versions.major_minor(release.cuda)
    if compat.find_conda_cudnn(cuda, release.cudnn) is None:
        return None
    channel, packages = choose_conda_packages(compat, cuda, release.cudnn)
    tool = compat.images.find_tool("micromamba")
    if channel != CONDA_CHANNEL or tool is None:
        return None
    return CondaCuda(tool.image, channel, tuple(packages.split()))


# ---------------------------------------------------------------- nvidia/cuda


def _plan_cuda_base(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejection:
    """Return the option of an nvidia/cuda image, or why it does not work."""
    assessment = Assessment()
    constraints.check_machine(assessment, release, host, container=True)
    tags = list_fitting_tags(compat, release)
    if not tags:
        _explain_no_tag(assessment, compat, release)
    first_reasons: list[Reason] = []
    option = choose_preferred(
        _plan_tags(compat, release, request, host, tags if not assessment.reasons else (), first_reasons)
    )
    return (
        option
        if option is not None
        else _make_rejection(Recipe.CUDA_BASE, release, assessment.reasons or first_reasons)
    )


def _plan_tags(
    compat: Compat,
    release: Release,
    request: Request,
    host: Host,
    tags: Sequence[ImageTag],
    first_reasons: list[Reason],
) -> Iterator[Option]:
    """Yield the option of each tag that works.

    The reasons why the first of the other tags does not work are added to `first_reasons`.
    """
    for tag in tags:
        assessment = Assessment()
        option = _plan_tag(assessment, compat, release, request, host, tag)
        if option is not None:
            yield option
        elif not first_reasons:
            first_reasons += assessment.reasons


def _explain_no_tag(assessment: Assessment, compat: Compat, release: Release) -> None:
    """Add to the assessment why no tag of nvidia/cuda fits the release."""
    deleted = compat.images.find_deleted(versions.major_minor(release.cuda)) if release.cuda else None
    note = deleted.note if deleted is not None else "None of the remaining images has its libraries."
    assessment.add_reason(
        Cause.LIBS_NOT_INSTALLED,
        f"no image of nvidia/cuda has the libraries of CUDA {release.cuda} with cuDNN {release.cudnn}: {note}",
        "images.toml: [[deleted]]" if deleted is not None else "images.toml: [[cuda]]",
    )


def _plan_tag(
    assessment: Assessment, compat: Compat, release: Release, request: Request, host: Host, tag: ImageTag
) -> Option | None:
    """Return the option of a tag. If it does not work, return None and add the reasons to the assessment."""
    build_by_python = {build.python: build for build in _list_system_pythons(compat, tag.system)}
    python = request.python or find_newest_python(
        release, lambda candidate: candidate in build_by_python and is_locked(compat, release, candidate)
    )
    if python in release.linux_pythons and python not in build_by_python and request.base is None:
        assessment.add_reason(
            Cause.NO_MATCHING_WHEEL,
            f"Ubuntu {tag.system} of {tag.name} has no Python {python} (it has {', '.join(build_by_python) or 'none'})",
            f"pythons.toml: [[system]] {tag.system}",
        )
    else:
        check_python(assessment, compat, release, python)
    system = compat.pythons.find_system(tag.system)
    if (
        system is not None
        and release.glibc is not None
        and not versions.is_at_least(system.glibc, release.glibc)
    ):
        assessment.add_reason(
            Cause.GLIBC_TOO_OLD,
            f"TensorFlow {release.version} needs glibc {release.glibc}; Ubuntu {tag.system} has {system.glibc}",
            constraints.format_release_source(release),
        )
    constraints.check_gpus_and_driver(assessment, compat, release, host, tag.cuda, tag.cudnn)
    if release.cuda is not None and not versions.is_at_least(tag.cuda, versions.major_minor(release.cuda)):
        assessment.add_caveat(
            Cause.LIBS_WRONG_VERSION,
            f"TensorFlow {release.version} was built with CUDA {release.cuda}; the newest image with its cuDNN has "
            f"{tag.cuda}: the sonames are the same, but nothing else is guaranteed",
            constraints.format_release_source(release),
        )
    if assessment.reasons or python is None:
        return None
    if request.base is not None:
        base = BaseImage(request.base, "", None)
    else:
        base = BaseImage(tag.name, f"ubuntu {tag.system}", None, (f"python{python}", f"python{python}-venv"))
    cuda_set = compat.cuda_sets.find_for_release(release.version)
    wheels = cuda_set.wheels if cuda_set is not None else ()
    # XLA compiles with ptxas and libdevice, which are in this wheel.
    nvcc_wheels = tuple(wheel for wheel in wheels if wheel.name.startswith("nvidia-cuda-nvcc"))
    return Option(
        recipe=Recipe.CUDA_BASE,
        release=release,
        tensorflow=release.version,
        python=python,
        cuda=tag.cuda,
        cudnn=tag.cudnn,
        base=base,
        cuda_set=None,
        wheels_to_install=nvcc_wheels,
        components=(
            Component(base.image, None, "the system, CUDA's runtime libraries and cuDNN"),
            _make_tensorflow_part(release, python),
        ),
        commands=(make_build_command(release, python, Recipe.CUDA_BASE, request),),
        reasons=(
            f"{tag.name} is known to exist and has every library that TensorFlow {release.version} opens",
        ),
        caveats=(*assessment.caveats, *constraints.check_release(release)),
    )


@lru_cache(maxsize=64)
def _list_system_pythons(compat: Compat, system: str) -> tuple[PythonBuild, ...]:
    """Return the Pythons that the packages of an Ubuntu release provide, without prereleases."""
    system_entry = compat.pythons.find_system(system)
    if system_entry is None:
        return ()
    return tuple(
        build
        for python in (system_entry.default_python, *system_entry.other_pythons)
        for build in compat.pythons.find_builds(python, system=system)
        if build.package is not None and not build.is_prerelease
    )


# ---------------------------------------------------------------- tensorflow/tensorflow


def _is_older(installed: str | None, required: str | None) -> bool:
    """Return whether the installed cuDNN is known to be older than the required one.

    A required version without a dot, such as "7", is too vague to compare with.
    """
    return (
        installed is not None
        and required is not None
        and "." in required
        and not versions.is_at_least(installed, required)
    )


def _check_ready_base(assessment: Assessment, request: Request, repository: str) -> None:
    """Add a reason if the user's base image is known not to contain TensorFlow."""
    if request.base_contents is not None:
        assessment.add_reason(
            Cause.LIBS_NOT_INSTALLED,
            f"this recipe builds on an image of {repository}, which {request.base} is not",
            "images.toml: [[official]]",
        )


def _plan_official(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejection:
    """Return the option of an image of tensorflow/tensorflow, or why it does not work."""
    assessment = Assessment()
    constraints.check_machine(assessment, release, host, container=True)
    _check_ready_base(assessment, request, "tensorflow/tensorflow")
    image = compat.images.find_official(release.version)
    if image is None:
        assessment.add_reason(
            Cause.INCONCLUSIVE,
            f"no image of tensorflow/tensorflow is known for {release.version}",
            "images.toml: [[official]]",
        )
        return _make_rejection(Recipe.OFFICIAL, release, assessment.reasons)
    source = f"images.toml: [[official]] {image.recipe.versions}"
    if not image.recipe.has_working_libraries:
        # `why` is a sentence that names the library at fault.
        cause = (
            Cause.CUDNN_VERSION_MISMATCH
            if "cudnn" in image.recipe.failure_reason
            else Cause.LIBS_WRONG_VERSION
        )
        assessment.add_reason(cause, f"{image.names[0]} does not work: {image.recipe.failure_reason}", source)
    python, name = image.recipe.python, image.names[0]
    if request.python == PYTHON2 and len(image.names) > 1:  # the second image has Python 2
        python, name = PYTHON2, image.names[1]
    if request.python not in (None, python) and request.base is None:
        assessment.add_reason(
            Cause.NO_MATCHING_WHEEL, f"{name} has Python {python}, and not {request.python}", source
        )
    python = request.python or python
    check_python(assessment, compat, release, python)
    constraints.check_gpus_and_driver(
        assessment, compat, release, host, image.recipe.cuda, image.recipe.cudnn
    )
    if assessment.reasons:
        return _make_rejection(Recipe.OFFICIAL, release, assessment.reasons)
    if _is_older(image.recipe.cudnn, release.cudnn):
        assessment.add_caveat(
            Cause.CUDNN_VERSION_MISMATCH,
            f"TensorFlow {release.version} was built with cuDNN {release.cudnn}, and {name} has "
            f"{image.recipe.cudnn}: convolutions may be refused",
            source,
        )
    command = "python2" if python == PYTHON2 else "python3"
    base = BaseImage(
        request.base or name, f"ubuntu {image.recipe.system}" if request.base is None else "", command
    )
    source_note = (
        "as its recipe says"
        if image.recipe.evidence == "documented"
        else "according to other projects' files"
    )
    return Option(
        recipe=Recipe.OFFICIAL,
        release=release,
        tensorflow=release.version,
        python=python,
        cuda=image.recipe.cuda,
        cudnn=image.recipe.cudnn or release.cudnn,
        base=base,
        cuda_set=None,
        wheels_to_install=(),
        components=(
            Component(
                base.image,
                None,
                f"TensorFlow's own image: Python {python}, CUDA {image.recipe.cuda}, {source_note}",
            ),
            Component(
                "pinned Python packages",
                None,
                "what TensorFlow was released with, so that nothing newer breaks it",
            ),
        ),
        commands=(make_build_command(release, python, Recipe.OFFICIAL, request),),
        reasons=(
            f"{name} has CUDA {image.recipe.cuda} and is the only image left that does. Its tag may be "
            f"deleted: keep a "
            f"copy (docker pull {name}, docker save -o tensorflow.tar {name}); after docker load, --base {name} "
            "builds on it"
            if versions.parse_numbers(image.recipe.cuda) < (11,)
            else f"{name} has CUDA {image.recipe.cuda}, {source_note}",
        ),
        caveats=(*assessment.caveats, *constraints.check_release(release)),
    )


# ---------------------------------------------------------------- NGC


def _plan_ngc(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejection:
    """Return the option of an image of nvcr.io/nvidia/tensorflow, or why it does not work."""
    assessment = Assessment()
    constraints.check_machine(assessment, release, host, container=True)
    _check_ready_base(assessment, request, "nvcr.io/nvidia/tensorflow")
    if assessment.reasons:
        return _make_rejection(Recipe.NGC, release, assessment.reasons)
    images = _list_ngc_images(compat, release)
    if not images:
        assessment.add_reason(
            Cause.INCONCLUSIVE,
            f"no image of nvcr.io/nvidia/tensorflow is known to have TensorFlow {release.version}",
            "images.toml: [[ngc]]",
        )
        return _make_rejection(Recipe.NGC, release, assessment.reasons)
    first_reasons: list[Reason] = []
    option = choose_preferred(_plan_ngc_images(compat, release, request, host, images, first_reasons))
    return option if option is not None else _make_rejection(Recipe.NGC, release, first_reasons)


def _plan_ngc_images(
    compat: Compat,
    release: Release,
    request: Request,
    host: Host,
    images: Sequence[NgcImage],
    first_reasons: list[Reason],
) -> Iterator[Option]:
    """Yield the option of each image that works.

    The reasons why the first of the other images does not work are added to `first_reasons`.
    """
    for image in images:
        assessment = Assessment()
        constraints.check_machine(assessment, release, host, container=True)
        constraints.check_ngc_image(assessment, compat, image, host)
        if image.python is None or request.python not in (None, image.python):
            assessment.add_reason(
                Cause.NO_MATCHING_WHEEL,
                f"{image.name} has Python {image.python or 'of an unknown version'}, and not {request.python}"
                if request.python
                else f"which Python {image.name} has is not known",
                f"images.toml: [[ngc]] {image.tag}",
            )
        if assessment.reasons or image.python is None:
            if not first_reasons:
                first_reasons += assessment.reasons
            continue
        if image.driver is not None and host.driver is None:
            assessment.add_caveat(
                Cause.DRIVER_TOO_OLD,
                constraints.describe_image_driver(compat, image, host),
                f"images.toml: [[ngc]] {image.tag}",
                serious=False,
            )
        yield Option(
            recipe=Recipe.NGC,
            release=release,
            tensorflow=release.version,
            python=image.python,
            cuda=image.cuda,
            cudnn=image.cudnn,
            base=BaseImage(
                request.base or image.name, f"ubuntu {image.system}" if image.system else "", "python3"
            ),
            cuda_set=None,
            wheels_to_install=(),
            components=(Component(image.name, None, "NVIDIA's own image and build of TensorFlow"),),
            commands=(make_build_command(release, image.python, Recipe.NGC, request),),
            reasons=(image.note or f"{image.name} is NVIDIA's own build for CUDA {image.cuda}",),
            caveats=(*assessment.caveats, *constraints.check_release(release)),
        )


RECIPES: dict[Recipe, RecipeFunction] = {
    Recipe.PIP_CUDA: _plan_pip_cuda,
    Recipe.OFFICIAL: _plan_official,
    Recipe.CUDA_BASE: _plan_cuda_base,
    Recipe.CONDA_CUDA: _plan_conda_cuda,
    Recipe.NGC: _plan_ngc,
    Recipe.VENV: _plan_venv,
}
"""The function of each recipe. Recipes with otherwise equal options rank in this order."""
