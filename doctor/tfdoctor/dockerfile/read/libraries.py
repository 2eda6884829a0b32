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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Compat, Release
    from tfdoctor.dockerfile.read.bases import Base
    from tfdoctor.dockerfile.read.subject import Subject
    from tfdoctor.dockerfile.read.tensorflow import TensorFlow

__all__ = ["Library", "cudnn_version", "libraries_of", "wheels_of"]

_NUMBERED = re.compile(r"(.+?)-(\d{1,2})-(\d{1,2})")
_CUDNN_PACKAGE = re.compile(r"(?:lib)?cudnn(\d)(?:-dev|-headers)?(?:-cuda-(\d{1,2}))?(?:-dev|-headers)?")
_NVIDIA_WHEEL = re.compile(r"nvidia-([a-z0-9-]+?)-cu(\d{2})")
_WHOLE = frozenset(
    {"cuda", "cuda-toolkit", "cuda-libraries", "cuda-runtime", "cuda-libraries-dev", "cuda-demo-suite"}
)
"""Packages that bring every library of a toolkit."""


@dataclass(frozen=True, slots=True)
class Library:
    """One soname that is wanted."""

    soname: str
    found: bool | None
    """None: not known."""
    other: str | None = None
    """The soname that is there instead."""
    by: str = ""
    """Where it, or the other one, comes from."""


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
    """Each library that the release opens; none where the release is not known or has no GPU code."""
    release = tensorflow.release
    if tensorflow.state != "there" or release is None or not release.gpu:
        return ()
    base = subject.base
    if base.kind in ("official", "ngc") and base.tensorflow == release.version and _works(base, compat):
        return tuple(Library(name, True, by=base.reference) for name in release.required_libraries)
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
    if any("nvidia" in seen.text or "requirements" in seen.text for seen in subject.unseen):
        unknown = True
    return tuple(
        _library(name, subject, tensorflow, release, compat, unknown=unknown)
        for name in release.required_libraries
    )


def _works(base: Base, compat: Compat) -> bool:
    """Whether the image's own TensorFlow finds what it opens in it: NVIDIA's images do, official ones mostly."""
    if base.kind == "ngc":
        return True
    image = compat.official_image(base.tensorflow or "")
    return bool(base.gpu) and image is not None and image.recipe.works


def _library(
    soname: str, subject: Subject, tensorflow: TensorFlow, release: Release, compat: Compat, *, unknown: bool
) -> Library:
    if "and-cuda" in tensorflow.extras and release.pip_extra == "and-cuda":
        return Library(soname, True, by="the and-cuda extra")
    others: list[tuple[str, str]] = []
    for have, by in _offers(soname, subject, compat):
        if have == soname:
            return Library(soname, True, by=by)
        others.append((have, by))
    other, by = others[0] if others else (None, "")
    if "cudnn" in soname and subject.base.has_cudnn and subject.base.cudnn is None and not others:
        unknown = True  # which one is in the image is not known
    return Library(soname, None if unknown else False, other, by)


def _offers(soname: str, subject: Subject, compat: Compat) -> Iterator[tuple[str, str]]:
    """(soname, where from) of everything in the image that has this library, in whatever version."""
    parts = split_soname(soname)
    if parts is None:
        return
    stem = parts[0]
    if stem == "cudnn":
        yield from _cudnn(subject, str(compat.newest_cudnn_major))
        return
    for cuda, by in _toolkits(soname, stem, subject, compat):
        have = compat.soname_for(stem, cuda)
        if have is not None:
            yield have, by


def _toolkits(soname: str, stem: str, subject: Subject, compat: Compat) -> Iterator[tuple[str, str]]:
    """(CUDA version, where from) of everything that brings this library."""
    for project in wheels_of(subject):
        match = _NVIDIA_WHEEL.fullmatch(project)
        wheel = compat.wheel_for(soname, int(match[2])) if match is not None else None
        if match is not None and wheel is not None and wheel.project == project:
            # Only the major is in the name; the sonames of CUDA 11's wheels are those of 11.7 and newer.
            yield compat.cuda_of_wheels.get(int(match[2]), f"{match[2]}.0"), project
    base = subject.base
    if base.cuda is not None and (base.flavour in ("runtime", "devel") or stem == "cudart"):
        yield base.cuda, base.reference
    for name in subject.apt:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            continue
        cuda = f"{match[2]}.{match[3]}"
        own = compat.debian_package_for(soname, cuda)
        bare = name.replace("-dev-", "-")
        if match[1] in _WHOLE or (own is not None and bare in (own, own.replace("lib", "cuda-", 1))):
            yield cuda, f"the package {name}"


def _cudnn(subject: Subject, newest: str) -> Iterator[tuple[str, str]]:
    for project, version in wheels_of(subject).items():
        if project.startswith("nvidia-cudnn-"):
            yield f"libcudnn.so.{versions.major(version or newest)}", project
    for name in subject.apt:
        match = _CUDNN_PACKAGE.fullmatch(name)
        if match is not None:
            yield f"libcudnn.so.{match[1]}", f"the package {name}"
    base = subject.base
    if base.cudnn is not None and re.match(r"\d", base.cudnn):
        yield f"libcudnn.so.{versions.major(base.cudnn)}", base.reference
    elif (
        base.kind == "cuda"
        and base.has_cudnn
        and base.cuda is not None
        and versions.at_least(base.cuda, "12.4")
    ):
        yield "libcudnn.so.9", base.reference  # the tag says `cudnn` alone, as with all of cuDNN 9


def cudnn_version(subject: Subject, soname: str) -> tuple[str, str] | None:
    """(version, where from) of the cuDNN that serves `soname`, where its minor is known."""
    wanted = soname.rpartition(".")[2]
    for project, version in wheels_of(subject).items():
        if project.startswith("nvidia-cudnn-") and version.startswith(f"{wanted}."):
            return version, project
    for name, (pin, _) in subject.apt.items():
        match = _CUDNN_PACKAGE.fullmatch(name)
        if match is not None and match[1] == wanted:
            number = re.match(r"\d+\.\d+(?:\.\d+)*", pin or "")
            return (number[0], f"the package {name}") if number is not None else None
    base = subject.base
    if base.cudnn is not None and base.cudnn.startswith(f"{wanted}."):
        return base.cudnn, base.reference
    return None
