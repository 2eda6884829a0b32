"""NVIDIA's wheels: which bring a library to a TensorFlow, how they are pinned, where they put it. Pure."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.advice.pip import pip_install
from tfdoctor.causes.steps import Install
from tfdoctor.compat import split_soname

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.advice.target import Target
    from tfdoctor.compat import Release


def cuda_requirements(target: Target, sonames: Sequence[str]) -> tuple[str, ...]:
    """Return NVIDIA's wheels that bring these libraries to this TensorFlow, pinned as its own extra pins them.

    Empty where there are none for its CUDA (11.0 and older), or where one of the libraries is in no wheel.
    """
    build = target.build
    if build is None or build.cuda is None:
        return ()
    release = build.release if build.exact else None
    return _wheels(
        target, sonames, release=release, cuda=build.cuda, cudnn=build.cudnn, version=build.version
    )


def wheels_for(target: Target, release: Release, sonames: Sequence[str]) -> tuple[str, ...]:
    """Return the same for a release that is not installed."""
    if release.cuda is None:
        return ()
    return _wheels(
        target,
        sonames,
        release=release,
        cuda=release.cuda,
        cudnn=release.cudnn,
        version=release.version,
    )


def wheel_project(target: Target, soname: str, cuda: str) -> tuple[str, str] | None:
    """Return (project, folder below site-packages) of the wheel that has this very soname for this CUDA major."""
    major = versions.major(cuda)
    wheel, parts = target.compat.wheel_for(soname, major), split_soname(soname)
    if wheel is None or parts is None:
        return None
    has = target.compat.soname_for(parts[0], target.compat.cuda_of_wheels.get(major, cuda))
    if has is not None and has != soname:
        return None
    return wheel.project, wheel.folder


def _wheels(
    target: Target,
    sonames: Sequence[str],
    *,
    release: Release | None,
    cuda: str,
    cudnn: str | None,
    version: str | None,
) -> tuple[str, ...]:
    wheels = [wheel_project(target, soname, cuda) for soname in sonames]
    # Where something is missing from the wheels of every CUDA: half a set helps nobody.
    if not wheels or any(wheel is None for wheel in wheels):
        return ()
    if version is not None and not target.compat.has(version, "cuda-in-own-folder"):
        return ()
    pins = {versions.project_of(pin): pin for pin in (release.extra_pins if release is not None else ())}
    wanted: dict[str, None] = {}
    for wheel in wheels:
        if wheel is not None:
            requirement = pins.get(wheel[0], wheel[0])
            if wheel[0].startswith("nvidia-cudnn-"):
                built = release.cudnn if release is not None and release.cudnn else cudnn
                requirement = cudnn_requirement(target, wheel[0], requirement, built)
            wanted.setdefault(requirement, None)
    return tuple(wanted)


def cudnn_requirement(target: Target, project: str, pinned: str, built: str | None = None) -> str:
    """Return a cuDNN requirement that this build loads (its major) and that still has code for these cards."""
    if built is None:
        return pinned
    major = versions.major(built)
    cards = [card.capability for card in target.host.cards]
    old = [card for card in cards if not versions.is_at_least(card, "7.5")]
    kepler = [card for card in cards if not versions.is_at_least(card, "5.0")]
    if pinned == project:
        if major == 8 and kepler and project.endswith("-cu11"):
            return f"{project}>=8.5,<{target.compat.cudnn_end(kepler[0], 8)}"  # 8.9 has nothing below 5.0
        least = built if "." in built else str(major)
        pinned = f"{project}>={least},<{major + 1}"
    if old and major == 9 and "==" not in pinned:
        end = target.compat.cudnn_end(old[0], 9)  # 9.11 dropped Maxwell, Pascal and Volta
        return f"{project}>=9.3,<{end}" if end is not None else pinned
    return pinned


def strip_versions(target: Target, requirements: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements without the versions that are installed: pip keeps what a range allows."""
    return tuple(_strip_installed(target, text) for text in requirements)


def _strip_installed(target: Target, text: str) -> str:
    name = versions.project_of(text)
    ranged = text[len(name) :]
    there = target.python.distribution(name) if target.python is not None else None
    if there is None or not versions.is_version(there.version) or "==" in ranged:
        return text
    allowed = versions.satisfies(there.version, ranged)
    return f"{text}{',' if ranged else ''}!={there.version}" if allowed else text


def site_packages(target: Target) -> str:
    """Return where this TensorFlow lies and its wheels go; empty if that is not known."""
    if target.tensorflow is not None:
        return posixpath.dirname(target.tensorflow.package_dir)
    if target.python is not None and target.python.site_packages:
        return target.python.site_packages[0]
    return ""


def wheel_places(target: Target, cuda: str, sonames: Sequence[str]) -> dict[str, str]:
    """Return soname → the folder below site-packages into which NVIDIA's wheel puts it.

    Without those of no wheel.
    """
    wheels = {name: wheel_project(target, name, cuda) for name in sonames}
    return {name: wheel[1] for name, wheel in wheels.items() if wheel is not None}


def find_registered_wheel(target: Target, requirement: str) -> str | None:
    """`"name==version"` of a wheel that is registered beside TensorFlow and is what the requirement asks for."""
    project = versions.project_of(requirement)
    own = target.python.distribution(project) if target.python is not None else None
    if own is None or own.location != site_packages(target) or not versions.is_version(own.version):
        return None
    asked = versions.parse_requirement_or_none(requirement)
    fits = asked is not None and asked.specifier.contains(own.version, prereleases=True)
    return f"{project}=={own.version}" if fits else None


def bring_wheels(target: Target, requirements: Sequence[str]) -> tuple[tuple[Install, ...], tuple[str, ...]]:
    """Return (steps, commands) that bring wheels whose libraries are missed, also those that are registered all the
    same: pip takes these for installed.
    """
    again = tuple(pin for one in requirements if (pin := find_registered_wheel(target, one)) is not None)
    fresh = tuple(one for one in requirements if find_registered_wheel(target, one) is None)
    steps: list[Install] = []
    commands: list[str] = []
    if fresh:
        steps.append(Install(fresh))
        commands.append(pip_install(target, fresh))
    if again:
        steps.append(Install(again, again=True, dependencies=False))
        commands.append(pip_install(target, again, options="--force-reinstall --no-deps"))
    return tuple(steps), tuple(commands)
