"""Which of the CUDA libraries that a TensorFlow opens are in the image, and which are not. Pure.

They come from the base image, from NVIDIA's apt packages, or from NVIDIA's wheels. A CUDA that comes in another way
(a runfile, a copy, conda) is not looked into: what is missing then counts as not known.
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
    from tfdoctor.dockerfile.read.image_model import Subject
    from tfdoctor.dockerfile.read.tensorflow import TensorFlow

__all__ = ["SITE", "Library", "libraries_of", "wheels_of"]

SITE = "site-packages"
"""Where pip puts things: the folder above it is not known."""
_SYSTEM = "/usr/lib/x86_64-linux-gnu"

_NUMBERED = re.compile(r"(.+?)-(\d{1,2})-(\d{1,2})")
_CUDNN_PACKAGE = re.compile(r"(?:lib)?cudnn(\d)(?:-dev|-headers)?(?:-cuda-(\d{1,2}))?(?:-dev|-headers)?")
_NVIDIA_WHEEL = re.compile(r"nvidia-([a-z0-9-]+?)-cu(\d{2})")
_WHOLE = frozenset(
    {"cuda", "cuda-toolkit", "cuda-libraries", "cuda-runtime", "cuda-libraries-dev", "cuda-demo-suite"}
)
"""Packages that bring every library of a toolkit."""


@dataclass(frozen=True, slots=True)
class LibraryOffer:
    """A library that is in the image, in whatever version."""

    path: str
    by: SourceLine
    """Where it comes from."""
    version: str | None = None
    """Its own, where more than its major is known."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Library:
    """One soname that is wanted."""

    soname: str
    found: bool | None
    """None: not known."""
    offer: LibraryOffer | None = None
    """It, or what is there instead."""


def wheels_of(subject: Subject) -> dict[str, str]:
    """NVIDIA's wheels that are installed by name → their pinned version, else empty."""
    return {
        name: _pin(one.want.specifier)
        for name, one in subject.packages.items()
        if _NVIDIA_WHEEL.fullmatch(name)
    }


def _pin(specifier: str) -> str:
    match = re.fullmatch(r"(?:==|~=)\s*([0-9.]+?)(?:\.\*)?", specifier)
    return match[1] if match is not None else ""


def libraries_of(subject: Subject, tensorflow: TensorFlow, compat: Compat) -> tuple[Library, ...]:
    """Return each library that the release opens; none if the release is not known or has no GPU code."""
    release = tensorflow.release
    if tensorflow.state != "there" or release is None or not release.gpu:
        return ()
    base = subject.base
    if base.kind in ("official", "ngc") and base.tensorflow == release.version and _works(base, compat):
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
    if base.kind == "official" and not subject.both:
        unknown = True  # official-image-broken says it
    if any("nvidia" in seen.text or "requirements" in seen.text for seen in subject.unseen):
        unknown = True
    return tuple(
        _library(name, subject, tensorflow, release, compat, unknown=unknown)
        for name in release.required_libraries
    )


def _works(base: BaseReference, compat: Compat) -> bool:
    """Return whether the image's own TensorFlow finds what it opens in it: NVIDIA's images do, official ones mostly."""
    if base.kind == "ngc":
        return True
    image = compat.official_image(base.tensorflow or "")
    return bool(base.gpu) and image is not None and image.recipe.works


def _library(
    soname: str, subject: Subject, tensorflow: TensorFlow, release: Release, compat: Compat, *, unknown: bool
) -> Library:
    if "and-cuda" in tensorflow.extras and release.pip_extra == "and-cuda":
        return Library(soname, True)
    others: list[LibraryOffer] = []
    for offer in _offers(soname, subject, compat):
        if offer.name == soname:
            return Library(soname, True, offer)
        others.append(offer)
    if "cudnn" in soname and subject.base.has_cudnn and subject.base.cudnn is None and not others:
        unknown = True  # which one is in the image is not known
    return Library(soname, None if unknown else False, others[0] if others else None)


def _offers(soname: str, subject: Subject, compat: Compat) -> Iterator[LibraryOffer]:
    """Yield everything in the image that has this library, in whatever version."""
    parts = split_soname(soname)
    if parts is None:
        return
    stem = parts[0]
    if stem == "cudnn":
        yield from _cudnn(subject, str(compat.newest_cudnn_major))
        return
    for folder, cuda, by in _toolkits(soname, stem, subject, compat):
        have = compat.soname_for(stem, cuda)
        if have is not None:
            yield LibraryOffer(
                f"{folder or f'/usr/local/cuda-{versions.major_minor(cuda)}/lib64'}/{have}", by
            )


def _toolkits(
    soname: str, stem: str, subject: Subject, compat: Compat
) -> Iterator[tuple[str, str, SourceLine]]:
    """Yield (folder, where it is not the toolkit's own; CUDA version.

    Where from) of everything that brings this library.
    """
    for project in wheels_of(subject):
        match = _NVIDIA_WHEEL.fullmatch(project)
        wheel = compat.wheel_for(soname, int(match[2])) if match is not None else None
        if match is not None and wheel is not None and wheel.project == project:
            # Only the major is in the name; the sonames of CUDA 11's wheels are those of 11.7 and newer.
            cuda = compat.cuda_of_wheels.get(int(match[2]), f"{match[2]}.0")
            yield f"{SITE}/{wheel.folder}", cuda, subject.packages[project].want.seen
    base = subject.base
    if base.cuda is not None and (base.flavour in ("runtime", "devel") or stem == "cudart"):
        yield "", base.cuda, base.seen
    for name, (_, line) in subject.apt.items():
        match = _NUMBERED.fullmatch(name)
        if match is None:
            continue
        cuda = f"{match[2]}.{match[3]}"
        own = compat.debian_package_for(soname, cuda)
        bare = name.replace("-dev-", "-")
        if match[1] in _WHOLE or (own is not None and bare in (own, own.replace("lib", "cuda-", 1))):
            yield "", cuda, SourceLine(name, line)


def _cudnn(subject: Subject, newest: str) -> Iterator[LibraryOffer]:
    for project, version in wheels_of(subject).items():
        if project.startswith("nvidia-cudnn-"):
            name = f"libcudnn.so.{versions.major(version or newest)}"
            yield LibraryOffer(
                f"{SITE}/nvidia/cudnn/lib/{name}", subject.packages[project].want.seen, version or None
            )
    for name, (pin, line) in subject.apt.items():
        match = _CUDNN_PACKAGE.fullmatch(name)
        if match is not None:
            number = re.match(r"\d+\.\d+(?:\.\d+)*", pin or "")
            told = number[0] if number is not None else None
            yield LibraryOffer(
                f"{_SYSTEM}/libcudnn.so.{match[1]}", SourceLine(f"{name}={pin}" if pin else name, line), told
            )
    base = subject.base
    if base.cudnn is not None and re.match(r"\d", base.cudnn):
        told = base.cudnn if "." in base.cudnn else None
        yield LibraryOffer(f"{_SYSTEM}/libcudnn.so.{versions.major(base.cudnn)}", base.seen, told)
    elif (
        base.kind == "cuda"
        and base.has_cudnn
        and base.cuda is not None
        and versions.is_at_least(base.cuda, "12.4")
    ):
        yield LibraryOffer(
            f"{_SYSTEM}/libcudnn.so.9", base.seen
        )  # the tag says `cudnn` alone, as with all of cuDNN 9
