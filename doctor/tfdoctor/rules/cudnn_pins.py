"""Another package requires a cuDNN that does not work with this TensorFlow.

What it means
-------------
torch and jax come with a cuDNN, too, from the same wheel as TensorFlow's, and an environment has room for one.
torch pins one version (nvidia-cudnn-cu12==9.1.0.70). Where that is older than the cuDNN with which TensorFlow was
built, or of another major version, whichever package is installed or upgraded last breaks the other one.

How it is seen
--------------
What the installed packages ask for in their metadata is compared with the cuDNN of this TensorFlow's build.

What to do
----------
Give each its own environment, or take versions of both that agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice, versions
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.predict import cudnn_version
from tfdoctor.rules.base import CUDNN, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    from tfdoctor.facts import Distribution


def check(context: RuleContext) -> Result:
    build, python = context.build, context.python
    if build is None or python is None:
        return NotApplicable("this TensorFlow opens no CUDA library")
    built = build.release.cudnn if build.exact and build.release is not None else build.cudnn
    if built is None:
        return NotApplicable("this TensorFlow does not say with which cuDNN it was built")
    asked = [(d, wanted) for d in python.distributions for wanted in _list_cudnn_pins(context, d)]
    if not asked:
        return NotApplicable("no other package here asks for a cuDNN")
    return [
        _finding(context, d, wanted, built)
        for d, wanted in asked
        if not allows_built_cudnn(wanted.specifier, built)
    ]


def _list_cudnn_pins(context: RuleContext, distribution: Distribution) -> list[Requirement]:
    """List the requirements on cuDNN.

    Requirements of an extra count only if that wheel is installed.
    """
    lines = [line for line in distribution.pins if "cudnn" in line.lower()]
    if not lines:
        return []
    from packaging.requirements import InvalidRequirement, Requirement  # a tenth of a whole check

    found = []
    for line in lines:
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        extra = wanted.marker is not None and "extra" in str(wanted.marker)
        installed = context.python is not None and context.python.distribution(wanted.name.lower())
        if wanted.name.lower().startswith("nvidia-cudnn-cu") and (installed or not extra):
            found.append(wanted)
    return found


def allows_built_cudnn(asked: SpecifierSet, built: str) -> bool:
    """Return whether `asked` allows a cuDNN of TensorFlow's major, not below its minor version."""
    major, least = versions.major(built), versions.numbers(built)[:2]
    named = [one.version.removesuffix(".*") for one in asked]
    near = [version for version in named if versions.is_version(version)]
    tried = [built, f"{major}.9999", *near]
    return any(
        asked.contains(version, prereleases=True)
        for version in tried
        if versions.major(version) == major and versions.numbers(version)[:2] >= least
    )


def _finding(context: RuleContext, other: Distribution, wanted: Requirement, built: str) -> Finding:
    build = context.build
    name = f"TensorFlow {build.version if build is not None else ''}".strip()
    who = f"{other.name} {other.version}"
    there = cudnn_version(context.facts)
    now = f" Now cuDNN {there.version} is there." if there is not None else ""
    majors = {versions.major(one.version) for one in wanted.specifier if versions.is_version(one.version)}
    same_major = majors == {versions.major(built)}
    return RULE.finding(
        Cause.CUDNN_VERSION_MISMATCH,
        Severity.WARNING,
        f"{who} asks for {wanted.name}{wanted.specifier}, and {name} was built with cuDNN {built} and needs that minor "
        f"version or a higher one of the same major. The environment has room for one cuDNN: installing or upgrading "
        f"either package replaces the other's.{now}",
        title=f"{who} and {name} want different versions of cuDNN",
        evidence=[
            Evidence(f"{other.location}: {other.name}'s metadata", str(wanted)),
            Evidence(name, f"built with cuDNN {built}"),
        ],
        remedies=_remedies(context, other, wanted, built, same_major=same_major),
    )


def _remedies(
    context: RuleContext, other: Distribution, wanted: Requirement, built: str, *, same_major: bool
) -> list[Remedy]:
    build = context.build
    release = build.release if build is not None and build.exact else None
    fresh = advice.gpu_requirement(context.target, release) if release is not None else ("tensorflow",)
    remedies = [
        Remedy(
            "Give TensorFlow its own environment.",
            advice.venv_with(context.target, fresh, advice.interpreter(context.target)),
        )
    ]
    if same_major:
        major = versions.major(built)
        pin = f"{wanted.name}>={'.'.join(built.split('.')[:2])},<{major + 1}"
        remedies.append(
            Remedy(
                f"Keep the newer cuDNN for both. NVIDIA keeps the minor versions of cuDNN {major} compatible upwards; "
                f"pip says that {other.name} asks for another one, and the next installation of {other.name} brings "
                "the older one back: do this last.",
                (advice.pip_install(context.target, (pin,)), advice.check_again(context.target)),
            )
        )
    remedies.append(
        Remedy(f"Take another version of {other.name}, which asks for cuDNN {built} or a newer minor of it.")
    )
    return remedies


RULE = Rule(
    "TFD213",
    "cudnn-pins",
    "Another package requires a cuDNN that does not work with this TensorFlow",
    (Cause.CUDNN_VERSION_MISMATCH,),
    check,
    row="another package wants a different one",
    needs=(prerequisites.require_cuda_libraries, prerequisites.require_python),
    area=CUDNN,
)
