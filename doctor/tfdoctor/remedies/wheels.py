"""Find the NVIDIA wheels that contain a library, with their version pins and their folders."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.compat import split_soname
from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install
from tfdoctor.remedies.pip import format_pip_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Release
    from tfdoctor.remedies.target import Target


def list_cuda_requirements(target: Target, sonames: Sequence[str]) -> tuple[str, ...]:
    """Return requirements for the wheels with these libraries, pinned as in TensorFlow's own extra.

    The result is empty if TensorFlow's CUDA has no wheels (11.0 and older), or if a library is in no wheel.
    """
    build = target.build
    if build is None or build.cuda is None:
        return ()
    release = build.release if build.is_exact_release else None
    return _list_wheels(
        target, sonames, release=release, cuda=build.cuda, cudnn=build.cudnn, version=build.version
    )


def list_release_wheels(target: Target, release: Release, sonames: Sequence[str]) -> tuple[str, ...]:
    """Return requirements for the wheels with these libraries, for a release that is not installed."""
    if release.cuda is None:
        return ()
    return _list_wheels(
        target,
        sonames,
        release=release,
        cuda=release.cuda,
        cudnn=release.cudnn,
        version=release.version,
    )


def find_wheel(target: Target, soname: str, cuda: str) -> tuple[str, str] | None:
    """Return (project, folder) of the wheel with exactly this soname for the major version of this CUDA.

    The folder is relative to site-packages. Return None if no wheel has the library.
    """
    major = versions.major(cuda)
    wheel, parts = target.compat.find_wheel(soname, major), split_soname(soname)
    if wheel is None or parts is None:
        return None
    packaged_soname = target.compat.find_soname(parts[0], target.compat.wheel_toolkits.get(major, cuda))
    if packaged_soname is not None and packaged_soname != soname:
        return None
    return wheel.project, wheel.folder


def _list_wheels(
    target: Target,
    sonames: Sequence[str],
    *,
    release: Release | None,
    cuda: str,
    cudnn: str | None,
    version: str | None,
) -> tuple[str, ...]:
    """Return requirements for the wheels with these libraries; an empty tuple if a library is in no wheel."""
    wheels = [find_wheel(target, soname, cuda) for soname in sonames]
    # With an incomplete set of libraries TensorFlow registers no GPU, so some of the wheels would not help.
    if not wheels or any(wheel is None for wheel in wheels):
        return ()
    if version is not None and not target.compat.has_trait(version, "cuda-in-own-folder"):
        return ()
    pins = {
        versions.parse_project_name(pin): pin for pin in (release.extra_pins if release is not None else ())
    }
    requirements: dict[str, None] = {}  # an ordered set
    for wheel in wheels:
        if wheel is not None:
            project, _folder = wheel
            requirement = pins.get(project, project)
            if project.startswith("nvidia-cudnn-"):
                built_cudnn = release.cudnn if release is not None and release.cudnn else cudnn
                requirement = choose_cudnn_requirement(target, project, requirement, built_cudnn)
            requirements.setdefault(requirement, None)
    return tuple(requirements)


def choose_cudnn_requirement(
    target: Target, project: str, requirement: str, built_cudnn: str | None = None
) -> str:
    """Return a requirement for a cuDNN of the build's major version that supports the target's GPUs.

    `requirement` is the release's own requirement, or just the project if the release has none. `built_cudnn` is the
    version with which the release was built; if it is None, `requirement` is returned unchanged.
    """
    if built_cudnn is None:
        return requirement
    major = versions.major(built_cudnn)
    capabilities = [card.capability for card in target.host.cards]
    volta_and_older_capabilities = [
        capability for capability in capabilities if not versions.is_at_least(capability, "7.5")
    ]
    kepler_capabilities = [
        capability for capability in capabilities if not versions.is_at_least(capability, "5.0")
    ]
    if requirement == project:
        if major == 8 and kepler_capabilities and project.endswith("-cu11"):
            return f"{project}>=8.5,<{target.compat.find_dropping_cudnn(kepler_capabilities[0], 8)}"  # 8.9 has no code below 5.0
        minimum = built_cudnn if "." in built_cudnn else str(major)
        requirement = f"{project}>={minimum},<{major + 1}"
    if volta_and_older_capabilities and major == 9 and "==" not in requirement:
        limit = target.compat.find_dropping_cudnn(
            volta_and_older_capabilities[0], 9
        )  # 9.11 dropped Maxwell, Pascal and Volta
        return f"{project}>=9.3,<{limit}" if limit is not None else requirement
    return requirement


def exclude_installed_versions(target: Target, requirements: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements with the installed versions excluded.

    Otherwise pip would keep an installed version that satisfies the requirement.
    """
    return tuple(_exclude_installed_version(target, text) for text in requirements)


def _exclude_installed_version(target: Target, requirement: str) -> str:
    """Return the requirement with the installed version excluded, if that version satisfies it."""
    name = versions.parse_project_name(requirement)
    specifier = requirement[len(name) :]
    installed = target.python.find_distribution(name) if target.python is not None else None
    if installed is None or not versions.is_version(installed.version) or "==" in specifier:
        return requirement
    fits = versions.satisfies(installed.version, specifier)
    return f"{requirement}{',' if specifier else ''}!={installed.version}" if fits else requirement


def get_site_packages(target: Target) -> str:
    """Return the site-packages folder of this TensorFlow and its wheels; "" if it is not known."""
    if target.tensorflow is not None:
        return posixpath.dirname(target.tensorflow.package_dir)
    if target.python is not None and target.python.site_packages:
        return target.python.site_packages[0]
    return ""


def map_sonames_to_wheel_folders(target: Target, cuda: str, sonames: Sequence[str]) -> dict[str, str]:
    """Map the sonames that are in wheels to the folders of these wheels, relative to site-packages."""
    wheels = {name: find_wheel(target, name, cuda) for name in sonames}
    return {name: wheel[1] for name, wheel in wheels.items() if wheel is not None}


def find_registered_pin(target: Target, requirement: str) -> str | None:
    """Return the pin (`"name==version"`) of the registered wheel that satisfies a requirement.

    Return None if no such wheel is registered in TensorFlow's site-packages.
    """
    project = versions.parse_project_name(requirement)
    installed = target.python.find_distribution(project) if target.python is not None else None
    if (
        installed is None
        or installed.location != get_site_packages(target)
        or not versions.is_version(installed.version)
    ):
        return None
    parsed = versions.parse_requirement_or_none(requirement)
    fits = parsed is not None and parsed.specifier.contains(installed.version, prereleases=True)
    return f"{project}=={installed.version}" if fits else None


def make_install_steps(
    target: Target, requirements: Sequence[str]
) -> tuple[tuple[Install, ...], tuple[str, ...]]:
    """Return the steps and the commands that install wheels whose libraries are missing.

    Wheels that are registered although their files are missing are reinstalled, because pip would skip them.
    """
    registered_pins = tuple(
        pin for requirement in requirements if (pin := find_registered_pin(target, requirement)) is not None
    )
    unregistered_requirements = tuple(
        requirement for requirement in requirements if find_registered_pin(target, requirement) is None
    )
    steps: list[Install] = []
    commands: list[str] = []
    if unregistered_requirements:
        steps.append(Install(unregistered_requirements))
        commands.append(format_pip_install(target, unregistered_requirements))
    if registered_pins:
        registered_pins += tuple(
            pin for pin in _list_incomplete_wheels(target) if pin not in registered_pins
        )  # they need each other, and pip installs no dependencies here
        steps.append(Install(registered_pins, force_reinstall=True, install_dependencies=False))
        commands.append(format_pip_install(target, registered_pins, options="--force-reinstall --no-deps"))
    return tuple(steps), tuple(commands)


def _list_incomplete_wheels(target: Target) -> list[str]:
    """Return the pins of NVIDIA's wheels beside TensorFlow that lost a library which tfdoctor's images have."""
    distributions = target.python.distributions if target.python is not None else ()
    version = target.build.version if target.build is not None else None
    leftovers = target.compat.leftovers
    return [
        f"{distribution.name}=={distribution.version}"
        for distribution in distributions
        if distribution.name.startswith("nvidia-")
        and distribution.location == get_site_packages(target)
        and versions.is_version(distribution.version)
        and any(not any(item.covers(path, version) for item in leftovers) for path in distribution.lost)
    ]
