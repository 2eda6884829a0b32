"""Find the CUDA libraries that a TensorFlow release opens in the model of an image.

The libraries come from the base image, NVIDIA's apt packages or NVIDIA's wheels. CUDA from another source (a runfile, a
copy, conda) is not inspected. If there is such a source, a library that is not found is unknown instead of missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.compat import split_soname
from tfdoctor.core import versions
from tfdoctor.images.read.models import SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Compat, Release
    from tfdoctor.images.read.bases import BaseReference
    from tfdoctor.images.read.image_model import ImageModel
    from tfdoctor.images.read.tensorflow import ImageTensorFlow

__all__ = ["SITE_FOLDER", "RequiredLibrary", "list_nvidia_wheels", "list_required_libraries"]

SITE_FOLDER = "site-packages"
"""The folder that pip installs into. The path is relative, because the parent folder is unknown."""
_SYSTEM_FOLDER = "/usr/lib/x86_64-linux-gnu"

_VERSIONED_PACKAGE = re.compile(r"(.+?)-(\d{1,2})-(\d{1,2})")
"""An apt package such as cuda-libraries-12-4."""
_CUDNN_PACKAGE = re.compile(r"(?:lib)?cudnn(\d)(?:-dev|-headers)?(?:-cuda-(\d{1,2}))?(?:-dev|-headers)?")
"""An apt package such as libcudnn8-dev or cudnn9-cuda-12."""
_NVIDIA_WHEEL = re.compile(r"nvidia-([a-z0-9-]+?)-cu(\d{2})")
"""A project such as nvidia-cublas-cu12."""
_TOOLKIT_PACKAGES = frozenset(
    {"cuda", "cuda-toolkit", "cuda-libraries", "cuda-runtime", "cuda-libraries-dev", "cuda-demo-suite"}
)
"""apt packages that contain every library of a CUDA toolkit."""


@dataclass(frozen=True, slots=True)
class ImageLibrary:
    """A library in the image, in any version."""

    path: str
    source_line: SourceLine
    """The line that installs it."""
    version: str | None = None
    """The full version, or None if only the major number is known."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class RequiredLibrary:
    """A library that TensorFlow opens, and whether the image has it."""

    soname: str
    is_found: bool | None
    """Whether the image has the library. None if unknown."""
    image_library: ImageLibrary | None = None
    """The library in the image, possibly in another version. None if there is none or its path is unknown."""


def list_nvidia_wheels(subject: ImageModel) -> dict[str, str]:
    """Return the version of each installed NVIDIA wheel by project name; empty for a wheel without a pin."""
    return {
        name: _parse_pin(installed.requirement.specifier)
        for name, installed in subject.packages.items()
        if _NVIDIA_WHEEL.fullmatch(name)
    }


def _parse_pin(specifier: str) -> str:
    """Return the version in a `==` or `~=` specifier, or an empty string for other specifiers."""
    match = re.fullmatch(r"(?:==|~=)\s*([0-9.]+?)(?:\.\*)?", specifier)
    return match[1] if match is not None else ""


def list_required_libraries(
    subject: ImageModel, tensorflow: ImageTensorFlow, compat: Compat
) -> tuple[RequiredLibrary, ...]:
    """Return the libraries that the release opens; empty if the release is unknown or has no GPU code."""
    release = tensorflow.release
    if tensorflow.state != "there" or release is None or not release.gpu:
        return ()
    base = subject.base
    if (
        base.kind in ("official", "ngc")
        and base.tensorflow_version == release.version
        and _has_complete_libraries(base, compat)
    ):
        return tuple(RequiredLibrary(soname, is_found=True) for soname in release.required_libraries)
    # Sources of CUDA that are not inspected, and base images whose CUDA version is unknown.
    may_be_elsewhere = (
        base.kind == "unknown"
        or bool(subject.cuda_from_other_sources)
        or any(re.match(r"cuda|cudnn|cudatoolkit", package) for package in subject.conda_packages)
        or any(
            package in ("cuda", "cuda-toolkit", "nvidia-cuda-toolkit", "nvidia-cudnn", "cudnn")
            for package in subject.apt_packages
        )
        or (
            base.kind in ("cuda", "official", "ngc")
            and subject.base.cuda is None
            and subject.base.is_for_gpu is not False
        )
    )
    if base.kind == "official" and not subject.tensorflow_installations:
        may_be_elsewhere = True  # the official-image-broken check reports missing libraries
    if any("nvidia" in line.text or "requirements" in line.text for line in subject.unknown_lines):
        may_be_elsewhere = True
    return tuple(
        _find_library(soname, subject, tensorflow, release, compat, may_be_elsewhere=may_be_elsewhere)
        for soname in release.required_libraries
    )


def _has_complete_libraries(base: BaseReference, compat: Compat) -> bool:
    """Return whether a base image contains all libraries of its TensorFlow. NGC images always do."""
    if base.kind == "ngc":
        return True
    image = compat.images.find_official(base.tensorflow_version or "")
    return bool(base.is_for_gpu) and image is not None and image.recipe.has_working_libraries


def _find_library(
    soname: str,
    subject: ImageModel,
    tensorflow: ImageTensorFlow,
    release: Release,
    compat: Compat,
    *,
    may_be_elsewhere: bool,
) -> RequiredLibrary:
    """Return whether the image has a library. With `may_be_elsewhere`, a missing library is unknown."""
    if "and-cuda" in tensorflow.extras and release.pip_extra == "and-cuda":
        return RequiredLibrary(soname, is_found=True)
    libraries_in_other_versions: list[ImageLibrary] = []
    for image_library in _iter_image_libraries(soname, subject, compat):
        if image_library.name == soname:
            return RequiredLibrary(soname, is_found=True, image_library=image_library)
        libraries_in_other_versions.append(image_library)
    if (
        "cudnn" in soname
        and subject.base.has_cudnn
        and subject.base.cudnn is None
        and not libraries_in_other_versions
    ):
        may_be_elsewhere = True  # the version of the image's cuDNN is unknown
    return RequiredLibrary(
        soname,
        is_found=None if may_be_elsewhere else False,
        image_library=libraries_in_other_versions[0] if libraries_in_other_versions else None,
    )


def _iter_image_libraries(soname: str, subject: ImageModel, compat: Compat) -> Iterator[ImageLibrary]:
    """Yield the libraries in the image that have this name, in any version."""
    parts = split_soname(soname)
    if parts is None:
        return
    stem = parts[0]
    if stem == "cudnn":
        yield from _iter_cudnn_libraries(subject, str(compat.newest_cudnn_major))
        return
    for folder, cuda, source_line in _iter_toolkits(soname, stem, subject, compat):
        actual_soname = compat.find_soname(stem, cuda)
        if actual_soname is not None:
            yield ImageLibrary(
                f"{folder or f'/usr/local/cuda-{versions.major_minor(cuda)}/lib64'}/{actual_soname}",
                source_line,
            )


def _iter_toolkits(
    soname: str, stem: str, subject: ImageModel, compat: Compat
) -> Iterator[tuple[str, str, SourceLine]]:
    """Yield (folder, CUDA version, source line) for each wheel, base image and apt package with a library.

    The folder is empty if it is the default folder of the toolkit.
    """
    for project in list_nvidia_wheels(subject):
        match = _NVIDIA_WHEEL.fullmatch(project)
        wheel = compat.find_wheel(soname, int(match[2])) if match is not None else None
        if match is not None and wheel is not None and wheel.project == project:
            # The project name has only the major version of CUDA. CUDA 11's wheels have the sonames of 11.7 and newer.
            cuda = compat.wheel_toolkits.get(int(match[2]), f"{match[2]}.0")
            yield f"{SITE_FOLDER}/{wheel.folder}", cuda, subject.packages[project].requirement.source_line
    base = subject.base
    if base.cuda is not None and (base.flavour in ("runtime", "devel") or stem == "cudart"):
        yield "", base.cuda, base.source_line
    for name, (_, line) in subject.apt_packages.items():
        match = _VERSIONED_PACKAGE.fullmatch(name)
        if match is None:
            continue
        cuda = f"{match[2]}.{match[3]}"
        package = compat.find_nvidia_package(soname, cuda)
        runtime_name = name.replace("-dev-", "-")
        # A package may be called cuda-cublas-… instead of libcublas-….
        if match[1] in _TOOLKIT_PACKAGES or (
            package is not None and runtime_name in (package, package.replace("lib", "cuda-", 1))
        ):
            yield "", cuda, SourceLine(name, line)


def _iter_cudnn_libraries(subject: ImageModel, newest_major: str) -> Iterator[ImageLibrary]:
    """Yield every cuDNN in the image. A wheel without a pin has the major version `newest_major`."""
    for project, version in list_nvidia_wheels(subject).items():
        if project.startswith("nvidia-cudnn-"):
            name = f"libcudnn.so.{versions.major(version or newest_major)}"
            yield ImageLibrary(
                f"{SITE_FOLDER}/nvidia/cudnn/lib/{name}",
                subject.packages[project].requirement.source_line,
                version or None,
            )
    for name, (pin, line) in subject.apt_packages.items():
        match = _CUDNN_PACKAGE.fullmatch(name)
        if match is not None:
            version_match = re.match(r"\d+\.\d+(?:\.\d+)*", pin or "")
            cudnn_version = version_match[0] if version_match is not None else None
            yield ImageLibrary(
                f"{_SYSTEM_FOLDER}/libcudnn.so.{match[1]}",
                SourceLine(f"{name}={pin}" if pin else name, line),
                cudnn_version,
            )
    base = subject.base
    if base.cudnn is not None and re.match(r"\d", base.cudnn):
        cudnn_version = base.cudnn if "." in base.cudnn else None
        yield ImageLibrary(
            f"{_SYSTEM_FOLDER}/libcudnn.so.{versions.major(base.cudnn)}", base.source_line, cudnn_version
        )
    elif (
        base.kind == "cuda"
        and base.has_cudnn
        and base.cuda is not None
        and versions.is_at_least(base.cuda, "12.4")
    ):
        # From CUDA 12.4 on, a tag with `cudnn` and no number has cuDNN 9.
        yield ImageLibrary(f"{_SYSTEM_FOLDER}/libcudnn.so.9", base.source_line)
