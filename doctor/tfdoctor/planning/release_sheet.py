"""Make the data sheet of one TensorFlow release: requirements, known problems and installation.

A sheet does not depend on a machine, and its commands make a new environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Remedy
from tfdoctor.core.text import upper_first
from tfdoctor.planning import cpu_fallback
from tfdoctor.planning.models import Recipe
from tfdoctor.planning.recipes import find_conda_packages
from tfdoctor.prediction.fit.compatibility import find_gpu_reasons
from tfdoctor.prediction.fit.models import Host, HostGpu
from tfdoctor.remedies.releases import can_install_extra, list_companion_pins, make_release_remedy
from tfdoctor.remedies.target import Target
from tfdoctor.remedies.wheels import list_release_wheels
from tfdoctor.rules import ALL_RULES, known_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat, Problem, Release
    from tfdoctor.compat.releases import Platform
    from tfdoctor.prediction.fit.matrix import MatrixRow

__all__ = ["ReleaseSheet", "describe_conditions", "format_python_ranges", "get_problem_code", "make_sheet"]


@dataclass(frozen=True, slots=True)
class ReleaseSheet:
    """The data sheet of one release."""

    main_row: MatrixRow
    other_rows: tuple[MatrixRow, ...]
    """The rows of the same version under other package names."""
    requirements: tuple[tuple[str, str], ...]
    """(name, requirement) pairs, in the order in which they are displayed."""
    remedies: tuple[Remedy, ...]
    """Alternative installations, best first. Each of them is complete."""


def make_sheet(
    compat: Compat,
    rows: Sequence[MatrixRow],
    *,
    capabilities: Sequence[str] = (),
    python: str | None = None,
    system: Platform = "linux",
) -> ReleaseSheet:
    """Return the sheet for the rows of one version.

    The main row is the first row with GPU code, or the first row if none has it. The remedies are for GPUs with
    these compute capabilities and for this Python, or the newest one if it is None. The remedy for `system` comes
    first.
    """
    main_row = next((row for row in rows if row.release.gpu), rows[0])
    other_rows = tuple(row for row in rows if row is not main_row)
    remedies = _list_remedies(compat, main_row.release, capabilities, python)
    if system == "windows" and main_row.release.windows_gpu:
        remedies = [*remedies[-1:], *remedies[:-1]]  # the last one is for Windows
    return ReleaseSheet(
        main_row=main_row,
        other_rows=other_rows,
        requirements=tuple(_list_requirements(main_row)),
        remedies=tuple(remedies),
    )


def get_problem_code(problem: Problem) -> str:
    """Return the code under which `tfdoctor check` reports a known problem.

    This is the code of the rule that detects the problem on the machine, or TFD313 if no rule does.
    """
    if problem.is_reported_by_rules:
        for rule in ALL_RULES:
            if rule is not known_problem.RULE and problem.cause in {cause.value for cause in rule.causes}:
                return rule.code
    return known_problem.RULE.code


def describe_conditions(problem: Problem) -> str:
    """Return as text under which conditions a problem occurs; "" means always."""
    templates = {
        "capability": "compute capability {}",
        "extra": "installed with [{}]",
        "image": "in the image {}",
        "python": "Python {}",
        "platform": "on {}",
    }
    titles = {"windows": "Windows", "linux": "Linux"}
    return "; ".join(
        templates[key].format(titles.get(value, value)) for key, value in problem.conditions.items()
    )


def format_python_ranges(python_versions: Sequence[str]) -> str:
    """Return Python versions as ranges, such as `3.6, 3.9-3.11`.

    `python_versions` must be sorted. A missing version ends a range.
    """
    ranges = versions.group_consecutive(python_versions)
    return ", ".join(
        python_range[0] if len(python_range) == 1 else f"{python_range[0]}-{python_range[-1]}"
        for python_range in ranges
    )


def _list_requirements(row: MatrixRow) -> list[tuple[str, str]]:
    """Return (name, requirement) pairs. Only releases with GPU code require a driver and CUDA."""
    release = row.release
    requirements = [("Python", _describe_pythons(release))]
    if not release.gpu:
        return [*requirements, *_list_system_requirements(release)]
    driver = f"{row.min_linux_driver} or newer" if row.min_linux_driver else "not known"
    if row.min_windows_driver:
        driver += f" (Windows: {row.min_windows_driver})"
    requirements.append(("Driver", driver))
    requirements.append(("CUDA", release.cuda or "not known"))
    requirements.append(("cuDNN", release.cudnn or "not known"))
    consequence = "the import fails" if release.linkage == "needed" else "no GPU is registered"
    requirements.append(
        (
            "Libraries",
            f"{', '.join(sorted(release.required_libraries))}. Without any one of them {consequence}.",
        )
    )
    requirements.append(("From the driver", ", ".join(release.driver_libraries)))
    requirements.append(("GPUs", _describe_gpus(row)))
    return [*requirements, *_list_system_requirements(release)]


def _describe_pythons(release: Release) -> str:
    linux, windows = (
        format_python_ranges(release.linux_pythons),
        format_python_ranges(release.windows_pythons),
    )
    if not windows:
        return f"{linux} (Linux; no Windows wheel)"
    gpu = "" if release.windows_gpu or not release.gpu else ", without GPU code"
    if linux == windows and not gpu:
        return f"{linux} (Linux and Windows)"
    return f"{linux} (Linux); {windows} (Windows{gpu})"


def _describe_gpus(row: MatrixRow) -> str:
    release, newest = row.release, row.newest_capability
    if not release.cubin:
        return "not known"
    text = f"machine code for compute capability {', '.join(release.cubin)}"
    if newest is not None:
        text = (
            f"compute capability {release.cubin[0]} to {newest}; newer cards do not work. {upper_first(text)}"
        )
        if newest not in release.cubin:
            text += f"; {newest} compiles PTX on first use"
    elif release.ptx_arch_specific:
        virtual_architectures = ", ".join(release.ptx_arch_specific)
        text += f"; newer ones fail where a kernel has only PTX for {virtual_architectures}"
    elif release.ptx:
        text += f"; newer ones compile PTX {release.ptx[-1]} on first use"
    if release.registration_floor:
        text += f". TensorFlow ignores cards below {release.registration_floor}"
    return text + "."


def _list_system_requirements(release: Release) -> list[tuple[str, str]]:
    parts = [f"glibc {release.glibc} or newer" if release.glibc else ""]
    parts.append(f"libstdc++ with GLIBCXX_{release.glibcxx}" if release.glibcxx else "")
    if release.cpu_instructions:
        parts.append(f"a processor with {', '.join(release.cpu_instructions).upper()}")
    text = ", ".join(part for part in parts if part)
    return [("System", text)] if text else []


# ---------------------------------------------------------------- installation


def _list_remedies(
    compat: Compat, release: Release, capabilities: Sequence[str], python: str | None
) -> list[Remedy]:
    """Return the remedies for Linux, best first, followed by that for native Windows, if there is one."""
    # Only the GPUs are known, so that the remedies fit any machine.
    cards = tuple(HostGpu(f"compute capability {capability}", capability) for capability in capabilities)
    target = Target(compat, Host(cards=cards))
    if not release.gpu or not release.required_libraries:
        return [cpu_fallback.make_release_remedy(target, release, python)]
    if cards and find_gpu_reasons(compat, release, target.host):
        options = " ".join(target.host.options)
        return [
            Remedy("It does not work on this card. This shows what does.", (f"tfdoctor recommend {options}",))
        ]
    remedies = [_make_pip_remedy(target, release, python)]
    container_remedy = _make_container_remedy(compat, release)
    if container_remedy is not None:
        remedies.append(container_remedy)
    conda = find_conda_packages(compat, release)
    if conda is not None:
        remedies.append(
            Remedy(
                f"Or an image with CUDA from {conda.channel} ({', '.join(conda.packages)}); untested.",
                (f"tfdoctor build --tf {release.version} --recipe {Recipe.CONDA_CUDA.value} --anywhere",),
            )
        )
    if release.windows_gpu:
        remedies.append(_make_windows_remedy(target, release, python))
    return remedies


def _make_container_remedy(compat: Compat, release: Release) -> Remedy | None:
    """Return the remedy with TensorFlow's own image, or None if no image is known to work."""
    image = compat.images.find_official(release.version)
    if image is None or not image.recipe.has_working_libraries:
        return None
    recipe = image.recipe
    cudnn = f", cuDNN {recipe.cudnn}" if recipe.cudnn else ""
    return Remedy(
        f"Or TensorFlow's own image: Ubuntu {recipe.system}, Python {recipe.python}, CUDA {recipe.cuda}{cudnn}, "
        "as its recipe says.",
        (f"docker run --rm -it --gpus all {image.names[0]}",),
    )


def _describe_python_source(compat: Compat, python: str) -> str:
    """Return a sentence that names the sources of an old Python.

    Return "" if no build has an install command, or if the first such build is python-build-standalone.
    """
    builds = compat.pythons.find_builds(python)
    installers = [build for build in builds if build.command is not None]
    if not installers or installers[0].origin == "python-build-standalone":
        return ""
    systems = [
        build.origin.replace("ubuntu", "Ubuntu")
        for build in builds
        if build.package and not build.is_prerelease
    ]
    packaged = (
        f"{' and '.join(systems)} {'has' if len(systems) == 1 else 'have'} it; elsewhere " if systems else ""
    )
    commands = " or ".join(f"`{build.command}`" for build in installers[::-1])
    return f" Python {python} is old: {packaged}{commands} provides it."


def _make_pip_remedy(target: Target, release: Release, python: str | None) -> Remedy:
    chosen_python = python or _find_newest_python(target, release)
    uses_extra = can_install_extra(target, release, chosen_python)
    uses_wheels = uses_extra or bool(list_release_wheels(target, release, release.required_libraries))
    source = "NVIDIA's wheels" if uses_wheels else "conda (Miniforge)"
    text = f"On Linux, with Python {chosen_python} and the CUDA libraries from {source}."
    text += _describe_python_source(target.compat, chosen_python)
    return make_release_remedy(target, release, text, chosen_python)


def _make_windows_remedy(target: Target, release: Release, python: str | None) -> Remedy:
    """Return the remedy for native Windows. The user must install CUDA and cuDNN first."""
    chosen_python = python if python in release.windows_pythons else release.windows_pythons[-1]
    requirements = " ".join(
        f'"{requirement}"'
        for requirement in (
            f"{release.package}=={release.version}",
            *list_companion_pins(target.compat, release),
        )
    )
    return Remedy(
        f"On Windows, after NVIDIA's installer of CUDA {release.cuda} and cuDNN {release.cudnn}, whose bin "
        "folders must be on PATH.",
        (
            f"py -{chosen_python} -m venv tf-env",
            r"tf-env\Scripts\python -m pip install --upgrade pip",
            rf"tf-env\Scripts\python -m pip install {requirements}",
        ),
    )


def _find_newest_python(target: Target, release: Release) -> str:
    """Return the newest Python that can install the release's pip extra, or else its newest Python."""
    newest_first = tuple(reversed(release.linux_pythons))
    if release.pip_extra is not None:
        for python in newest_first:
            if can_install_extra(target, release, python):
                return python
    return newest_first[0]
