"""Each recipe's way to a release: an option, or why it is none. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.advice.conda import conda_packages
from tfdoctor.findings import Cause
from tfdoctor.fit import Host, Judgement, Reason, choose_preferred, constraints, fit_environment
from tfdoctor.fit.compatibility import check_python, check_wheels, find_newest_python, is_locked
from tfdoctor.fit.images import list_fitting_tags
from tfdoctor.plan.bases import with_manifest
from tfdoctor.plan.models import Base, CondaCuda, Option, Part, Recipe, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.images import ImageTag, NgcImage
    from tfdoctor.compat.pythons import PythonBuild
    from tfdoctor.compat.wheels import CudaSet, CudaWheel
    from tfdoctor.plan.models import Request

    Way = Callable[[Compat, Release, Request, Host], "Option | Rejected"]

__all__ = ["RECIPES", "adapt_to_machine", "build_command", "from_conda", "tries"]

PYTHON2 = "2.7"
CHANNEL = "conda-forge"
"""The one channel that is free for everybody."""


def tries(
    compat: Compat, release: Release, request: Request, host: Host, recipe: Recipe
) -> Option | Rejected:
    """Return what this recipe makes of a release for this request and machine."""
    if recipe.own_venv and request.python == PYTHON2:
        text = f"{recipe.value} installs into a virtual environment, and Python {PYTHON2} has no `venv` to make one"
        return _make_rejected(
            recipe, release, [Reason(Cause.NO_MATCHING_WHEEL, text, "images.toml: [[python]]")]
        )
    answer = RECIPES[recipe](compat, release, request, host)
    return answer if isinstance(answer, Rejected) else with_manifest(compat, answer)


def adapt_to_machine(compat: Compat, option: Option, request: Request, host: Host) -> Option:
    """Return the option with a command that builds it anywhere: it names the cards and the driver where its base is
    chosen for them.
    """
    if option.base is None or request.base is not None or not (host.cards or host.driver):
        return option
    elsewhere = tries(compat, option.release, replace(request, recipe=option.recipe), Host(), option.recipe)
    if isinstance(elsewhere, Option) and (elsewhere.base, elsewhere.python) == (option.base, option.python):
        return option
    return replace(option, commands=(" ".join([option.commands[0], *host.options]), *option.commands[1:]))


def build_command(release: Release, python: str, recipe: Recipe, request: Request) -> str:
    """Return the command that builds the option."""
    words = ["tfdoctor build --tf", release.version]
    if request.python is not None:
        words += ["--python", python]
    words += ["--recipe", recipe.value]
    return " ".join(words)


def install_command(release: Release, python: str, request: Request) -> str:
    """Return the command that makes the environment."""
    chosen = f" --python {python}" if request.python is not None else ""
    return f"tfdoctor install --tf {release.version}{chosen}"


def _make_rejected(recipe: Recipe, release: Release, reasons: Sequence[Reason]) -> Rejected:
    return Rejected(recipe, release.version, tuple(reasons))


def _tensorflow_part(release: Release, python: str) -> Part:
    return Part(
        f"TensorFlow {release.version} and what it needs",
        release.unpacked,
        f"the wheel for Python {python} and its dependencies, pinned by hash",
    )


def _cuda_parts(compat: Compat, chosen: CudaSet) -> list[Part]:
    return [Part(wheel.pin, wheel.unpacked, _list_wheel_libraries(compat, wheel)) for wheel in chosen.wheels]


def _from_the_index(chosen: CudaSet) -> str:
    return f"everything is on the package index: NVIDIA's wheels for CUDA {chosen.cuda} with cuDNN {chosen.cudnn}"


def _list_wheel_libraries(compat: Compat, wheel: CudaWheel) -> str:
    """Return the libraries of a wheel that have a name in libraries.toml."""
    families = [compat.library(library.soname) for library in wheel.libraries if library.soname]
    titles = dict.fromkeys(family.title for family in families if family is not None)
    if titles:
        return ", ".join(titles)
    return "ptxas and libdevice, with which XLA compiles" if "nvcc" in wheel.name else "needed by the others"


# ---------------------------------------------------------------- CUDA from wheels


def _venv(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejected:
    found = fit_environment(compat, release, host, request.python)
    python, chosen = found.python, found.cuda
    if found.reasons or python is None or chosen is None:
        return _make_rejected(Recipe.VENV, release, found.reasons)
    return Option(
        recipe=Recipe.VENV,
        release=release,
        tensorflow=release.version,
        python=python,
        cuda=chosen.cuda,
        cudnn=chosen.cudnn,
        base=None,
        cuda_set=chosen,
        wheels=chosen.wheels,
        parts=(_tensorflow_part(release, python), *_cuda_parts(compat, chosen)),
        commands=(install_command(release, python, request),),
        reasons=(_from_the_index(chosen), *_list_links(release)),
        caveats=found.caveats,
    )


def _list_links(release: Release) -> tuple[str, ...]:
    """For a release whose RUNPATH leaves out folders of NVIDIA's wheels."""
    if release.runpath and not release.runpath_misses:
        return ()
    text = "does not find all of NVIDIA's wheels by itself: links put their libraries where it looks"
    return (f"TensorFlow {release.version} {text}",)


def _pip_cuda(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejected:
    found = Judgement()
    constraints.check_machine(found, release, host, container=True)
    python = _python(found, compat, release, request)
    chosen = check_wheels(found, compat, release, host)
    base = _slim(found, compat, request, python)
    if found.reasons or python is None or chosen is None or base is None:
        return _make_rejected(Recipe.PIP_CUDA, release, found.reasons)
    return Option(
        recipe=Recipe.PIP_CUDA,
        release=release,
        tensorflow=release.version,
        python=python,
        cuda=chosen.cuda,
        cudnn=chosen.cudnn,
        base=base,
        cuda_set=chosen,
        wheels=chosen.wheels,
        parts=(
            Part(base.image, None if request.base else 130_000_000, "the system and Python"),
            _tensorflow_part(release, python),
            *_cuda_parts(compat, chosen),
        ),
        commands=(build_command(release, python, Recipe.PIP_CUDA, request),),
        reasons=(
            _from_the_index(chosen),
            f"Python {python}: "
            + ("as asked" if request.python else f"the newest that {release.version} has a wheel for"),
        ),
        caveats=(*found.caveats, *constraints.check_release(release)),
    )


def _python(found: Judgement, compat: Compat, release: Release, request: Request) -> str | None:
    """Return the asked Python, else the newest that has a lock and a slim image, where the base is not the user's."""
    python = request.python or find_newest_python(
        release,
        lambda one: (
            (request.base is not None or compat.images.find_python(one) is not None)
            and is_locked(compat, release, one)
        ),
    )
    check_python(found, compat, release, python)
    return python


def _slim(found: Judgement, compat: Compat, request: Request, python: str | None) -> Base | None:
    """Return the user's base, else the slim image of this Python.

    None if there is none, for the reason that is found.
    """
    if request.base is not None:
        return Base(request.base, "", None)
    image = compat.images.find_python(python) if python is not None else None
    if python is not None and image is None:
        found.refuse(
            Cause.NO_MATCHING_WHEEL, f"there is no slim image of Python {python}", "images.toml: [[python]]"
        )
    return Base(image.name, image.system, "python3", digest=image.digest) if image is not None else None


# ---------------------------------------------------------------- CUDA from conda


def _conda_cuda(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejected:
    """For releases whose CUDA no wheel has: the second way to them, should TensorFlow's own images go."""
    found = Judgement()
    constraints.check_machine(found, release, host, container=True)
    conda = from_conda(compat, release)
    if conda is None or release.cuda is None:
        found.refuse(
            Cause.INCONCLUSIVE,
            f"conda-forge is for releases whose CUDA no NVIDIA wheel has, and not for {release.version}",
            "cudnn.toml: [[conda]]",
        )
        return _make_rejected(Recipe.CONDA_CUDA, release, found.reasons)
    python = _python(found, compat, release, request)
    base = _slim(found, compat, request, python)
    cudnn = compat.conda_cudnn(versions.major_minor(release.cuda), release.cudnn)
    constraints.check_cards(found, compat, release, host, release.cuda, cudnn)
    constraints.check_driver(found, compat, release, host, release.cuda)
    if found.reasons or python is None or base is None:
        return _make_rejected(Recipe.CONDA_CUDA, release, found.reasons)
    found.warn(
        Cause.INCONCLUSIVE,
        "this recipe is untested with the packages of conda-forge: no conda channel could be reached where it was "
        "written, and its versions come from users' reports. Its other steps were run. The image is verified after it "
        "is built",
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
        wheels=(),
        parts=(
            Part(base.image, None if request.base else 130_000_000, "the system and Python"),
            _tensorflow_part(release, python),
            Part(" ".join(conda.packages), None, f"CUDA and cuDNN from the channel {conda.channel}"),
        ),
        commands=(build_command(release, python, Recipe.CONDA_CUDA, request),),
        reasons=("it needs no image with an old CUDA, and the last of those may be deleted",),
        caveats=(*found.caveats, *constraints.check_release(release)),
        conda=conda,
    )


def from_conda(compat: Compat, release: Release) -> CondaCuda | None:
    """Return the packages that have what no wheel has; None if a wheel has it, or conda-forge has not."""
    if release.cuda is None or compat.cuda_set(release.version) is not None:
        return None
    cuda = versions.major_minor(release.cuda)
    if compat.conda_cudnn(cuda, release.cudnn) is None:
        return None
    channel, packages = conda_packages(compat, cuda, release.cudnn)
    tool = compat.images.find_tool("micromamba")
    if channel != CHANNEL or tool is None:
        return None
    return CondaCuda(tool.image, channel, tuple(packages.split()))


# ---------------------------------------------------------------- nvidia/cuda


def _cuda_base(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejected:
    found = Judgement()
    constraints.check_machine(found, release, host, container=True)
    tags = list_fitting_tags(compat, release)
    if not tags:
        _explain_no_tag(found, compat, release)
    first: list[Reason] = []
    option = choose_preferred(
        _on_tags(compat, release, request, host, tags if not found.reasons else (), first)
    )
    return option if option is not None else _make_rejected(Recipe.CUDA_BASE, release, found.reasons or first)


def _on_tags(
    compat: Compat,
    release: Release,
    request: Request,
    host: Host,
    tags: Sequence[ImageTag],
    first: list[Reason],
) -> Iterator[Option]:
    """Yield the tags that serve; why the first one does not goes to `first`."""
    for tag in tags:
        tried = Judgement()
        option = _on_tag(tried, compat, release, request, host, tag)
        if option is not None:
            yield option
        elif not first:
            first += tried.reasons


def _explain_no_tag(found: Judgement, compat: Compat, release: Release) -> None:
    gone = compat.images.find_deleted(versions.major_minor(release.cuda)) if release.cuda else None
    said = gone.note if gone is not None else "None of the remaining images has its libraries."
    found.refuse(
        Cause.LIBS_NOT_INSTALLED,
        f"no image of nvidia/cuda has the libraries of CUDA {release.cuda} with cuDNN {release.cudnn}: {said}",
        "images.toml: [[deleted]]" if gone is not None else "images.toml: [[cuda]]",
    )


def _on_tag(
    found: Judgement, compat: Compat, release: Release, request: Request, host: Host, tag: ImageTag
) -> Option | None:
    offers = {build.python: build for build in _system_pythons(compat, tag.system)}
    python = request.python or find_newest_python(
        release, lambda one: one in offers and is_locked(compat, release, one)
    )
    if python in release.linux_pythons and python not in offers and request.base is None:
        found.refuse(
            Cause.NO_MATCHING_WHEEL,
            f"Ubuntu {tag.system} of {tag.name} has no Python {python} (it has {', '.join(offers) or 'none'})",
            f"pythons.toml: [[system]] {tag.system}",
        )
    else:
        check_python(found, compat, release, python)
    system = compat.pythons.system(tag.system)
    if (
        system is not None
        and release.glibc is not None
        and not versions.is_at_least(system.glibc, release.glibc)
    ):
        found.refuse(
            Cause.GLIBC_TOO_OLD,
            f"TensorFlow {release.version} needs glibc {release.glibc}; Ubuntu {tag.system} has {system.glibc}",
            constraints.format_row(release),
        )
    constraints.check_cards(found, compat, release, host, tag.cuda, tag.cudnn)
    constraints.check_driver(found, compat, release, host, tag.cuda)
    if release.cuda is not None and not versions.is_at_least(tag.cuda, versions.major_minor(release.cuda)):
        found.warn(
            Cause.LIBS_WRONG_VERSION,
            f"TensorFlow {release.version} was built with CUDA {release.cuda}; the newest image with its cuDNN has "
            f"{tag.cuda}: the sonames are the same, but nothing else is guaranteed",
            constraints.format_row(release),
        )
    if found.reasons or python is None:
        return None
    if request.base is not None:
        base = Base(request.base, "", None)
    else:
        base = Base(tag.name, f"ubuntu {tag.system}", None, (f"python{python}", f"python{python}-venv"))
    chosen = compat.cuda_set(release.version)
    wheels = chosen.wheels if chosen is not None else ()
    nvcc = tuple(wheel for wheel in wheels if wheel.name.startswith("nvidia-cuda-nvcc"))
    return Option(
        recipe=Recipe.CUDA_BASE,
        release=release,
        tensorflow=release.version,
        python=python,
        cuda=tag.cuda,
        cudnn=tag.cudnn,
        base=base,
        cuda_set=None,
        wheels=nvcc,
        parts=(
            Part(base.image, None, "the system, CUDA's runtime libraries and cuDNN"),
            _tensorflow_part(release, python),
        ),
        commands=(build_command(release, python, Recipe.CUDA_BASE, request),),
        reasons=(
            f"{tag.name} is known to exist and has every library that TensorFlow {release.version} opens",
        ),
        caveats=(*found.caveats, *constraints.check_release(release)),
    )


@lru_cache(maxsize=64)
def _system_pythons(compat: Compat, system: str) -> tuple[PythonBuild, ...]:
    row = compat.pythons.system(system)
    if row is None:
        return ()
    return tuple(
        build
        for python in (row.default, *row.others)
        for build in compat.python_builds(python, system=system)
        if build.package is not None and not build.prerelease
    )


# ---------------------------------------------------------------- tensorflow/tensorflow


def _older(have: str | None, built: str | None) -> bool:
    """Return whether a cuDNN is known to be older than the one TensorFlow was built with."""
    return have is not None and built is not None and "." in built and not versions.is_at_least(have, built)


def _official(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejected:
    found = Judgement()
    constraints.check_machine(found, release, host, container=True)
    image = compat.official_image(release.version)
    if image is None:
        found.refuse(
            Cause.INCONCLUSIVE,
            f"no image of tensorflow/tensorflow is known for {release.version}",
            "images.toml: [[official]]",
        )
        return _make_rejected(Recipe.OFFICIAL, release, found.reasons)
    source = f"images.toml: [[official]] {image.recipe.versions}"
    if not image.recipe.works:
        cause = Cause.CUDNN_VERSION_MISMATCH if "cudnn" in image.recipe.why else Cause.LIBS_WRONG_VERSION
        found.refuse(cause, f"{image.names[0]} does not work: {image.recipe.why}", source)
    python, name = image.recipe.python, image.names[0]
    if request.python == PYTHON2 and len(image.names) > 1:
        python, name = PYTHON2, image.names[1]
    if request.python not in (None, python) and request.base is None:
        found.refuse(Cause.NO_MATCHING_WHEEL, f"{name} has Python {python}, and not {request.python}", source)
    python = request.python or python
    check_python(found, compat, release, python)
    constraints.check_cards(found, compat, release, host, image.recipe.cuda, image.recipe.cudnn)
    constraints.check_driver(found, compat, release, host, image.recipe.cuda)
    if found.reasons:
        return _make_rejected(Recipe.OFFICIAL, release, found.reasons)
    if _older(image.recipe.cudnn, release.cudnn):
        found.warn(
            Cause.CUDNN_VERSION_MISMATCH,
            f"TensorFlow {release.version} was built with cuDNN {release.cudnn}, and {name} has "
            f"{image.recipe.cudnn}: convolutions may be refused",
            source,
        )
    command = "python2" if python == PYTHON2 else "python3"
    base = Base(
        request.base or name, f"ubuntu {image.recipe.system}" if request.base is None else "", command
    )
    how = (
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
        cudnn=image.recipe.cudnn,
        base=base,
        cuda_set=None,
        wheels=(),
        parts=(
            Part(
                base.image, None, f"TensorFlow's own image: Python {python}, CUDA {image.recipe.cuda}, {how}"
            ),
            Part(
                "pinned Python packages",
                None,
                "what TensorFlow was released with, so that nothing newer breaks it",
            ),
        ),
        commands=(build_command(release, python, Recipe.OFFICIAL, request),),
        reasons=(
            f"{name} has CUDA {image.recipe.cuda} and is the only image left that does. Its tag may be "
            f"deleted: keep a "
            f"copy (docker pull {name}, docker save -o tensorflow.tar {name}); after docker load, --base {name} "
            "builds on it"
            if versions.numbers(image.recipe.cuda) < (11,)
            else f"{name} has CUDA {image.recipe.cuda}, {how}",
        ),
        caveats=(*found.caveats, *constraints.check_release(release)),
    )


# ---------------------------------------------------------------- NGC


def _ngc(compat: Compat, release: Release, request: Request, host: Host) -> Option | Rejected:
    found = Judgement()
    constraints.check_machine(found, release, host, container=True)
    images = [image for image in compat.ngc_images() if image.tensorflow == release.version]
    if not images:
        found.refuse(
            Cause.INCONCLUSIVE,
            f"no image of nvcr.io/nvidia/tensorflow is known to have TensorFlow {release.version}",
            "images.toml: [[ngc]]",
        )
        return _make_rejected(Recipe.NGC, release, found.reasons)
    first: list[Reason] = []
    option = choose_preferred(_on_ngc(compat, release, request, host, images, first))
    return option if option is not None else _make_rejected(Recipe.NGC, release, first)


def _on_ngc(
    compat: Compat,
    release: Release,
    request: Request,
    host: Host,
    images: Sequence[NgcImage],
    first: list[Reason],
) -> Iterator[Option]:
    """Yield the images that serve; why the first one does not goes to `first`."""
    for image in images:
        tried = Judgement()
        constraints.check_machine(tried, release, host, container=True)
        constraints.check_ngc_image(tried, compat, image, host)
        if image.python is None or request.python not in (None, image.python):
            tried.refuse(
                Cause.NO_MATCHING_WHEEL,
                f"{image.name} has Python {image.python or 'of an unknown version'}, and not {request.python}"
                if request.python
                else f"which Python {image.name} has is not known",
                f"images.toml: [[ngc]] {image.tag}",
            )
        if tried.reasons or image.python is None:
            if not first:
                first += tried.reasons
            continue
        if image.driver is not None and host.driver is None:
            text = f"{image.name} was made for driver {image.driver} and newer"
            tried.warn(Cause.DRIVER_TOO_OLD, text, f"images.toml: [[ngc]] {image.tag}", serious=False)
        yield Option(
            recipe=Recipe.NGC,
            release=release,
            tensorflow=release.version,
            python=image.python,
            cuda=image.cuda,
            cudnn=image.cudnn,
            base=Base(
                request.base or image.name, f"ubuntu {image.system}" if image.system else "", "python3"
            ),
            cuda_set=None,
            wheels=(),
            parts=(Part(image.name, None, "NVIDIA's own image and build of TensorFlow"),),
            commands=(build_command(release, image.python, Recipe.NGC, request),),
            reasons=(image.note or f"{image.name} is NVIDIA's own build for CUDA {image.cuda}",),
            caveats=(*tried.caveats, *constraints.check_release(release)),
        )


RECIPES: dict[Recipe, Way] = {
    Recipe.PIP_CUDA: _pip_cuda,
    Recipe.OFFICIAL: _official,
    Recipe.CUDA_BASE: _cuda_base,
    Recipe.CONDA_CUDA: _conda_cuda,
    Recipe.NGC: _ngc,
    Recipe.VENV: _venv,
}
"""Containers in the order in which they are preferred where nothing else tells them apart."""
