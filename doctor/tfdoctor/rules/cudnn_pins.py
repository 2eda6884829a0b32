"""Another package requires a cuDNN that does not work with this TensorFlow.

What it means
-------------
torch and jax also install cuDNN, from the same wheel as TensorFlow, and an environment can have only one version of
it. torch pins one version (nvidia-cudnn-cu12==9.1.0.70). If that is older than the cuDNN with which TensorFlow was
built, or of another major version, the package that is installed or upgraded last breaks the other one.

How it is seen
--------------
The check compares the requirements in the metadata of the installed packages with the cuDNN of this TensorFlow's
build.

What to do
----------
Give each package its own environment, or choose compatible versions of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.prediction.library_versions import find_cudnn_version
from tfdoctor.remedies.pip import (
    format_check_command,
    format_pip_install,
    get_interpreter,
    make_venv_commands,
)
from tfdoctor.remedies.releases import list_gpu_requirements
from tfdoctor.rules.base import CUDNN, NotApplicable, Result, Rule, RuleContext, get_required_value
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    from tfdoctor.core.facts import Distribution, PythonFacts


def check(context: RuleContext) -> Result:
    build, python = get_required_value(context.build), get_required_value(context.python)
    built_cudnn = build.release.cudnn if build.is_exact_release and build.release is not None else build.cudnn
    if built_cudnn is None:
        return NotApplicable("this TensorFlow does not say with which cuDNN it was built")
    pins = [
        (distribution, requirement)
        for distribution in python.distributions
        for requirement in _list_cudnn_pins(python, distribution)
    ]
    if not pins:
        return NotApplicable("no other package here asks for a cuDNN")
    return [
        _build_finding(context, distribution, requirement, built_cudnn)
        for distribution, requirement in pins
        if not allows_built_cudnn(requirement.specifier, built_cudnn)
    ]


def _list_cudnn_pins(python: PythonFacts, distribution: Distribution) -> list[Requirement]:
    """Return a distribution's requirements on cuDNN.

    A requirement that belongs to an extra counts only if the required wheel is installed.
    """
    lines = [line for line in distribution.pins if "cudnn" in line.lower()]
    if not lines:
        return []
    # not at the top: this import takes a tenth of the time of a complete check
    from packaging.requirements import InvalidRequirement, Requirement

    pins = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        has_extra = "extra" in str(requirement.marker or "")
        installed = python.find_distribution(requirement.name.lower())
        if requirement.name.lower().startswith("nvidia-cudnn-cu") and (installed or not has_extra):
            pins.append(requirement)
    return pins


def allows_built_cudnn(specifiers: SpecifierSet, built_cudnn: str) -> bool:
    """Return whether `specifiers` allow a cuDNN of the same major as `built_cudnn` that is not older."""
    major, minimum = versions.major(built_cudnn), versions.parse_numbers(built_cudnn)[:2]
    limits = [specifier.version.removesuffix(".*") for specifier in specifiers]
    candidates = [version for version in limits if versions.is_version(version)]
    # "9.9999" stands for the newest minor version of cuDNN 9
    versions_to_try = [built_cudnn, f"{major}.9999", *candidates]
    return any(
        specifiers.contains(version, prereleases=True)
        for version in versions_to_try
        if versions.major(version) == major and versions.parse_numbers(version)[:2] >= minimum
    )


def _build_finding(
    context: RuleContext, package: Distribution, pin: Requirement, built_cudnn: str
) -> Finding:
    """Return the finding about a package whose requirement excludes every cuDNN for this TensorFlow."""
    name = f"TensorFlow {get_required_value(context.build).version or ''}".strip()
    label = f"{package.name} {package.version}"
    installed = find_cudnn_version(context.facts)
    note = f" Now cuDNN {installed.version} is there." if installed is not None else ""
    majors = {
        versions.major(specifier.version)
        for specifier in pin.specifier
        if versions.is_version(specifier.version)
    }
    same_major = majors == {versions.major(built_cudnn)}
    return RULE.make_finding(
        Cause.CUDNN_VERSION_MISMATCH,
        Severity.WARNING,
        f"{label} asks for {pin.name}{pin.specifier}, and {name} was built with cuDNN {built_cudnn} and needs that minor "
        f"version or a higher one of the same major. The environment has room for one cuDNN: installing or upgrading "
        f"either package replaces the other's.{note}",
        title=f"{label} and {name} want different versions of cuDNN",
        evidence=[
            Evidence(f"{package.location}: {package.name}'s metadata", str(pin)),
            Evidence(name, f"built with cuDNN {built_cudnn}"),
        ],
        remedies=_build_remedies(context, package, pin, built_cudnn, same_major=same_major),
    )


def _build_remedies(
    context: RuleContext,
    package: Distribution,
    requirement: Requirement,
    built_cudnn: str,
    *,
    same_major: bool,
) -> list[Remedy]:
    """Return the remedies; the newer cuDNN is one only if both packages need the same major version."""
    build = get_required_value(context.build)
    release = build.release if build.is_exact_release else None
    requirements = list_gpu_requirements(context.target, release) if release is not None else ("tensorflow",)
    remedies = [
        Remedy(
            "Give TensorFlow its own environment.",
            make_venv_commands(context.target, requirements, get_interpreter(context.target)),
        )
    ]
    if same_major:
        major = versions.major(built_cudnn)
        pin = f"{requirement.name}>={'.'.join(built_cudnn.split('.')[:2])},<{major + 1}"
        remedies.append(
            Remedy(
                f"Keep the newer cuDNN for both. NVIDIA keeps the minor versions of cuDNN {major} compatible upwards; "
                f"pip says that {package.name} asks for another one, and the next installation of {package.name} brings "
                "the older one back: do this last.",
                (
                    format_pip_install(context.target, (pin,)),
                    format_check_command(context.target),
                ),
            )
        )
    remedies.append(
        Remedy(
            f"Take another version of {package.name}, which asks for cuDNN {built_cudnn} or a newer minor of it."
        )
    )
    return remedies


RULE = Rule(
    "TFD213",
    "cudnn-pins",
    "Another package requires a cuDNN that does not work with this TensorFlow",
    (Cause.CUDNN_VERSION_MISMATCH,),
    check,
    short_title="another package wants a different one",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_python),
    area=CUDNN,
)
