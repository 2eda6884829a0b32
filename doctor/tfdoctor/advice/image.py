"""Remedies for who makes an image: lines of its Dockerfile, another base, or an image that tfdoctor builds. Pure.

What is typed into a shell of the host, or of a container, changes no image.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import fit, versions
from tfdoctor.advice.pip import quote
from tfdoctor.advice.releases import extra_installs, gpu_requirement
from tfdoctor.causes.steps import SHELL_STEPS, Export, Install, Link, LinkParts, Prepend
from tfdoctor.findings import Cause, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.advice.target import Target
    from tfdoctor.compat import Compat, Release
    from tfdoctor.findings import Finding

OF_BASE = frozenset(
    {
        Cause.CUDNN_MISSING,
        Cause.CUDNN_VERSION_MISMATCH,
        Cause.IMPORT_MISSING_CUDA_LIB,
        Cause.LIBS_NOT_INSTALLED,
        Cause.LIBS_WRONG_VERSION,
    }
)
"""What another base image cures."""


def for_image(target: Target, finding: Finding) -> Finding:
    """The finding with the remedies that an image has."""
    build = target.build
    release = build.release if build is not None and build.exact else None
    of_base = finding.cause in OF_BASE and release is not None
    remedies = [new for one in finding.remedies for new in _lines(target, one, release, whole=of_base)]
    if of_base and release is not None:
        remedies += on_another_base(target.compat, release, _python(target))
    return replace(finding, remedies=(*remedies, built(release)))


def on_another_base(compat: Compat, release: Release, python: str | None) -> list[Remedy]:
    """The image of nvidia/cuda to build on, where there is one."""
    text = f"Build on an image that has what TensorFlow {release.version} opens."
    return [Remedy(text, (f"FROM {tag.name}",)) for tag in fit.fitting_tags(compat, release, python)[:1]]


def built(release: Release | None, text: str = "Have an image built that fits together.") -> Remedy:
    """`tfdoctor build`, for the release that is meant."""
    return Remedy(
        text, (f"tfdoctor build --tf {release.version}" if release is not None else "tfdoctor build",)
    )


def _python(target: Target) -> str | None:
    return versions.major_minor(target.python.version) if target.python is not None else None


def _lines(target: Target, remedy: Remedy, release: Release | None, *, whole: bool) -> list[Remedy]:
    """A remedy as lines of a Dockerfile; nothing where it is not one for an image.

    `whole`: CUDA comes with TensorFlow, or not from pip: its wheels do not go with libraries of another CUDA.
    """
    steps = remedy.steps
    installs = [step for step in steps if isinstance(step, Install)]
    linked = any(isinstance(step, (Link, LinkParts, Prepend)) for step in steps)
    lines = [f"ENV {step.name}={quote(step.value)}" for step in steps if isinstance(step, Export)]
    if whole and (linked or not all(step.lock for step in installs)):
        return []
    if installs:
        wanted = [one for step in installs for one in _wanted(target, step, release)]
        # where the loader has to be told of them, another base has them in their place
        lines.insert(0, _run(one for one in wanted if not (linked and one.startswith("nvidia-"))))
    alone = bool(steps) and not linked and all(isinstance(step, SHELL_STEPS) for step in steps)
    return [replace(remedy, commands=tuple(lines), steps=())] if installs or alone else []


def _wanted(target: Target, step: Install, release: Release | None) -> tuple[str, ...]:
    if step.lock is not None and release is not None and extra_installs(target, release):
        return gpu_requirement(target, release)
    return step.requirements


def _run(requirements: Iterable[str]) -> str:
    return f"RUN pip install {' '.join(quote(one) for one in requirements)}"
