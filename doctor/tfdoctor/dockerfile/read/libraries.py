"""The CUDA libraries that a TensorFlow release opens, found or missing in an image. Pure.

They come from the base image, from NVIDIA's apt packages or from NVIDIA's wheels. A CUDA from another source (a
runfile, a copy, conda) is not inspected: a library that is missing then counts as unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat import split_soname
from tfdoctor.dockerfile.read.models import SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Compat, Release
    from tfdoctor.dockerfile.read.bases import BaseReference
    from tfdoctor.dockerfile.read.image_model import ImageModel
    from tfdoctor.dockerfile.read.tensorflow import TensorFlow

__all__ = ["SITE_FOLDER", "Library", "list_libraries", "list_nvidia_wheels"]

SITE_FOLDER = "site-packages"
"""The folder that pip installs into; its parent is unknown."""
_SYSTEM_FOLDER = "/usr/lib/x86_64-linux-gnu"

_VERSIONED_PACKAGE = re.compile(r"(.+?)-(\d{1,2})-(\d{1,2})")
_CUDNN_PACKAGE = re.compile(r"(?:lib)?cudnn(\d)(?:-dev|-headers)?(?:-cuda-(\d{1,2}))?(?:-dev|-headers)?")
_NVIDIA_WHEEL = re.compile(r"nvidia-([a-z0-9-]+?)-cu(\d{2})")
_TOOLKIT_PACKAGES = frozenset(
    {"cuda", "cuda-toolkit", "cuda-libraries", "cuda-runtime", "cuda-libraries-dev", "cuda-demo-suite"}
)
"""Packages that contain every library of a toolkit."""


@dataclass(frozen=True, slots=True)
class LibraryOffer:
    """A library in the image, of any version."""

    path: str
    source_line: SourceLine
    """The line that installs it."""
    version: str | None = None
    """The full version, if more than its major number is known, else None."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Library:
    """A library that TensorFlow opens."""

    soname: str
    found: bool | None
    """None if unknown."""
    offer: LibraryOffer | None = None
    """The library in the image, or one of another version. None if there is none, or it is not known where."""


def list_nvidia_wheels(subject: ImageModel) -> dict[str, str]:
    """Return NVIDIA's installed wheels: name to pinned version, which is empty if it is not pinned."""
    return {
        name: _parse_pin(installed.requirement.specifier)
        for name, installed in subject.packages.items()
        if _NVIDIA_WHEEL.fullmatch(name)
    }


def _parse_pin(specifier: str) -> str:
    """Return the version that a specifier pins, or an empty string."""
    match = re.fullmatch(r"(?:==|~=)\s*([0-9.]+?)(?:\.\*)?", specifier)
    return match[1] if match is not None else ""


def list_libraries(subject: ImageModel, tensorflow: TensorFlow, compat: Compat) -> tuple[Library, ...]:
    """Return each library that the release opens; none if the release is unknown or has no GPU code."""
    release = tensorflow.release
    if tensorflow.state != "there" or release is None or not release.gpu:
        return ()
    base = subject.base
    if (
        base.kind in ("official", "ngc")
        and base.tensorflow == release.version
        and _finds_own_libraries(base, compat)
    ):
        return tuple(Library(name, True) for name in release.required_libraries)
    unknown = (
        base.kind == "unknown"
        or bool(subject.cuda_elsewhere)
        or any(re.match(r"cuda|cudnn|cudatoolkit", name) for name in subject.conda)
        or any(
            name in ("cuda", "cuda-toolkit", "nvidia-cuda-toolkit", "nvidia-cudnn", "cudnn")
            for name in subject.apt
        )
        or (
            base.kind in ("cuda", "official", "ngc")
            and subject.base.cuda is None
            and subject.base.gpu is not False
        )
    )
    if base.kind == "official" and not subject.tensorflows:
        unknown = True  # the check official-image-broken reports it
    if any("nvidia" in line.text or "requirements" in line.text for line in subject.unseen):
        unknown = True
    return tuple(
        _find_library(name, subject, tensorflow, release, compat, unknown=unknown)
        for name in release.required_libraries
    )


def _finds_own_libraries(base: BaseReference, compat: Compat) -> bool:
    """Return whether the image's own TensorFlow finds its libraries, as in all NGC and most official images."""
    if base.kind == "ngc":
        return True
    image = compat.official_image(base.tensorflow or "")
    return bool(base.gpu) and image is not None and image.recipe.works


def _find_library(
    soname: str,
    subject: ImageModel,
    tensorflow: TensorFlow,
    release: Release,
    compat: Compat,
    *,
    unknown: bool,
) -> Library:
    """Return a soname as found, missing, or unknown (`unknown` instead of missing)."""
    if "and-cuda" in tensorflow.extras and release.pip_extra == "and-cuda":
        return Library(soname, True)
    others: list[LibraryOffer] = []
    for offer in _list_offers(soname, subject, compat):
        if offer.name == soname:
            return Library(soname, True, offer)
        others.append(offer)
    if "cudnn" in soname and subject.base.has_cudnn and subject.base.cudnn is None and not others:
        unknown = True  # the version of the image's cuDNN is unknown
    return Library(soname, None if unknown else False, others[0] if others else None)


def _list_offers(soname: str, subject: ImageModel, compat: Compat) -> Iterator[LibraryOffer]:
    """Yield every library of this name in the image, of any version."""
    parts = split_soname(soname)
    if parts is None:
        return
    stem = parts[0]
    if stem == "cudnn":
        yield from _list_cudnn_offers(subject, str(compat.newest_cudnn_major))
        return
    for folder, cuda, source_line in _list_toolkits(soname, stem, subject, compat):
        actual_soname = compat.soname_for(stem, cuda)
        if actual_soname is not None:
            yield LibraryOffer(
                f"{folder or f'/usr/local/cuda-{versions.major_minor(cuda)}/lib64'}/{actual_soname}",
                source_line,
            )


def _list_toolkits(
    soname: str, stem: str, subject: ImageModel, compat: Compat
) -> Iterator[tuple[str, str, SourceLine]]:
    """Yield (folder, CUDA version, source line) of everything that installs this library.

    The folder is empty for the toolkit's usual one.
    """
    for project in list_nvidia_wheels(subject):
        match = _NVIDIA_WHEEL.fullmatch(project)
        wheel = compat.wheel_for(soname, int(match[2])) if match is not None else None
        if match is not None and wheel is not None and wheel.project == project:
            # The name has only the major version; CUDA 11's wheels have the sonames of 11.7 and newer.
            cuda = compat.cuda_of_wheels.get(int(match[2]), f"{match[2]}.0")
            yield f"{SITE_FOLDER}/{wheel.folder}", cuda, subject.packages[project].requirement.source_line
    base = subject.base
    if base.cuda is not None and (base.flavour in ("runtime", "devel") or stem == "cudart"):
        yield "", base.cuda, base.source_line
    for name, (_, line) in subject.apt.items():
        match = _VERSIONED_PACKAGE.fullmatch(name)
        if match is None:
            continue
        cuda = f"{match[2]}.{match[3]}"
        package = compat.debian_package_for(soname, cuda)
        runtime_name = name.replace("-dev-", "-")
        if match[1] in _TOOLKIT_PACKAGES or (
            package is not None and runtime_name in (package, package.replace("lib", "cuda-", 1))
        ):
            yield "", cuda, SourceLine(name, line)


def _list_cudnn_offers(subject: ImageModel, newest: str) -> Iterator[LibraryOffer]:
    """Yield every cuDNN in the image."""
    for project, version in list_nvidia_wheels(subject).items():
        if project.startswith("nvidia-cudnn-"):
            name = f"libcudnn.so.{versions.major(version or newest)}"
            yield LibraryOffer(
                f"{SITE_FOLDER}/nvidia/cudnn/lib/{name}",
                subject.packages[project].requirement.source_line,
                version or None,
            )
    for name, (pin, line) in subject.apt.items():
        match = _CUDNN_PACKAGE.fullmatch(name)
        if match is not None:
            number = re.match(r"\d+\.\d+(?:\.\d+)*", pin or "")
            version_text = number[0] if number is not None else None
            yield LibraryOffer(
                f"{_SYSTEM_FOLDER}/libcudnn.so.{match[1]}",
                SourceLine(f"{name}={pin}" if pin else name, line),
                version_text,
            )
    base = subject.base
    if base.cudnn is not None and re.match(r"\d", base.cudnn):
        version_text = base.cudnn if "." in base.cudnn else None
        yield LibraryOffer(
            f"{_SYSTEM_FOLDER}/libcudnn.so.{versions.major(base.cudnn)}", base.source_line, version_text
        )
    elif (
        base.kind == "cuda"
        and base.has_cudnn
        and base.cuda is not None
        and versions.is_at_least(base.cuda, "12.4")
    ):
        # A tag with `cudnn` and no number has cuDNN 9.
        yield LibraryOffer(f"{_SYSTEM_FOLDER}/libcudnn.so.9", base.source_line)
