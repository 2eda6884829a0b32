"""Choose a TensorFlow release, and make the commands that install it with GPU support."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install, Uninstall
from tfdoctor.core.findings import Remedy
from tfdoctor.prediction.fit.compatibility import find_best_fit
from tfdoctor.remedies import user_permissions
from tfdoctor.remedies.conda import make_conda_commands
from tfdoctor.remedies.links import format_link_commands, make_link_steps
from tfdoctor.remedies.pip import (
    format_check_command,
    format_pip_install,
    format_pip_uninstall,
    make_install_commands,
    make_venv_commands,
)
from tfdoctor.remedies.wheels import (
    choose_cudnn_requirement,
    get_site_packages,
    list_release_wheels,
    map_sonames_to_wheel_folders,
)

if TYPE_CHECKING:
    from tfdoctor.compat import Compat, Release
    from tfdoctor.core.causes.steps import Step
    from tfdoctor.remedies.target import Target


def can_install_extra(target: Target, release: Release, python: str | None = None) -> bool:
    """Return whether this release has a CUDA extra that pip can install on this Python.

    `python` is a version; the default is that of the examined Python.
    """
    if release.pip_extra is None:
        return False
    version = python or (target.python.version if target.python is not None else None)
    for problem in target.compat.list_problems(release.package, release.version, area="packaging"):
        python_spec = problem.conditions.get("python")
        if problem.conditions.get("extra") != release.pip_extra or problem.cause != "no-matching-wheel":
            continue
        if python_spec is None or (version is not None and versions.satisfies(version, python_spec)):
            return False
    return True


def list_gpu_requirements(target: Target, release: Release, python: str | None = None) -> tuple[str, ...]:
    """Return the requirements for this release, with its CUDA libraries if they are available as wheels."""
    if can_install_extra(target, release, python):
        requirements = [f"{release.package}[{release.pip_extra}]=={release.version}"]
        cudnn_pins = [
            pin for pin in release.extra_pins if versions.parse_project_name(pin).startswith("nvidia-cudnn-")
        ]
        for pin in cudnn_pins:
            adjusted = choose_cudnn_requirement(target, versions.parse_project_name(pin), pin, release.cudnn)
            if adjusted != pin:
                requirements.append(adjusted)
        return (*requirements, *list_companion_pins(target.compat, release))
    return (
        f"{release.package}=={release.version}",
        *list_release_wheels(target, release, release.required_libraries),
        *list_companion_pins(target.compat, release),
    )


def list_companion_pins(compat: Compat, release: Release) -> tuple[str, ...]:
    """Return the upper limits for NumPy and protobuf that this release needs but does not declare.

    Without these limits pip installs the newest versions: after `pip install tensorflow==2.10.1` the import
    fails.
    """
    return tuple(compat.list_companion_limits(release.version, release.requirements).values())


def find_best_release(target: Target, *, python: str | None = None) -> Release | None:
    """Return the release that fits this machine best on `python`, which defaults to the examined Python.

    This is the release that `recommend` names. Return None if no release fits, or if no Python is known.
    """
    version = python or (target.python.version if target.python is not None else None)
    best = find_best_fit(target.compat, target.host, python=version) if version is not None else None
    return best.release if best is not None else None


def make_recommend_remedy() -> Remedy:
    """Return the remedy for a machine and a Python on which no release works."""
    return Remedy(
        "No TensorFlow with GPU code works on this machine and Python: this shows why, and what would work.",
        ("tfdoctor recommend",),
    )


def make_release_remedy(target: Target, release: Release, text: str, python: str | None = None) -> Remedy:
    """Return the remedy that installs this release with GPU support.

    If `python` names a version, a new environment is created with that Python.
    """
    if target.image is not None:
        return Remedy(text, (f"tfdoctor build --tf {release.version}",), replaces=True)
    requirements = list_gpu_requirements(target, release, python)
    examined = target.python
    if python is None and not user_permissions.needs_new_environment(target):
        site = examined.site_packages[0] if examined is not None and examined.site_packages else ""
        commands = make_install_commands(target, requirements)
    else:
        version = versions.major_minor(python or (examined.version if examined is not None else "3"))
        site = f"$PWD/tf-env/lib/python{version}/site-packages"
        interpreter = examined.executable if python is None and examined is not None else f"python{version}"
        commands = make_venv_commands(target, requirements, interpreter)
    *install_commands, check_command = commands
    commands = (*install_commands, *make_link_commands(target, release, site), check_command)
    return Remedy(text, commands, replaces=True)


def make_cpu_remedy(target: Target, release: Release, text: str) -> Remedy:
    """Return the remedy that installs this release without CUDA libraries."""
    requirements = (f"{release.package}=={release.version}", *list_companion_pins(target.compat, release))
    return Remedy(text, make_install_commands(target, requirements), replaces=True)


def make_replacement_remedy(target: Target, names: tuple[str, ...], release: Release, text: str) -> Remedy:
    """Return the remedy that removes these distributions and installs a release into the examined Python."""
    requirements, site = list_gpu_requirements(target, release), get_site_packages(target)
    commands = (
        format_pip_uninstall(target, names),
        format_pip_install(target, requirements),
        *make_link_commands(target, release, site),
        format_check_command(target),
    )
    links = _make_link_steps(target, release, site) if site else ()
    return Remedy(text, commands, steps=(Uninstall(names), Install(requirements), *links))


def make_link_commands(target: Target, release: Release, site: str) -> tuple[str, ...]:
    """Return the commands that let a new installation of this release in `site` find its CUDA libraries.

    The commands create links to NVIDIA's wheels, or install CUDA from conda if there are no wheels. The result is
    empty if the release finds its libraries by itself. `site` may start with "$PWD".
    """
    required_libraries = release.required_libraries
    if not site or release.cuda is None or not required_libraries:
        return ()
    if not list_release_wheels(target, release, required_libraries):
        return make_conda_commands(target.compat, release.cuda, release.cudnn)
    return format_link_commands(_make_link_steps(target, release, site))


def _make_link_steps(target: Target, release: Release, site: str) -> tuple[Step, ...]:
    """Return the links to NVIDIA's wheels that this release needs; an empty tuple if it needs no links."""
    if release.cuda is None:
        return ()
    folder_by_soname = map_sonames_to_wheel_folders(target, release.cuda, release.required_libraries)
    return make_link_steps(target.compat, release, site, folder_by_soname)


def make_best_release_remedies(target: Target, text: str) -> list[Remedy]:
    """Return the remedy that installs the best release for this machine and Python.

    The list is empty if no release fits, or if the best release is already installed. "{release}" in `text` is
    replaced with the name and version.
    """
    release, build = find_best_release(target), target.build
    if release is None or (build is not None and build.version == release.version):
        return []
    return [make_release_remedy(target, release, text.format(release=f"TensorFlow {release.version}"))]
