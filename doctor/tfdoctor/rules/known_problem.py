"""This release has known problems.

What it means
-------------
Some releases have known faults: a library that they do not find, kernels that a GPU cannot run, a
package that cannot be installed. tfdoctor has a table of these faults, with the observation that shows each of them.

How it is seen
--------------
The installed release, the GPUs' compute capabilities and this Python are compared with the table
(compat/problems.toml).

What to do
----------
Follow the table's remedy, which is mostly another release or one pinned package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import Known
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.library_versions import find_cudnn_version
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.rules.base import (
    CouldNotCheck,
    NotApplicable,
    Result,
    Rule,
    RuleContext,
    get_required_value,
)
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.compat import Problem


def check(context: RuleContext) -> Result:
    build, tensorflow = get_required_value(context.build), get_required_value(context.tensorflow)
    if build.has_gpu_code is False:
        return NotApplicable("this TensorFlow has no GPU code")
    if build.version is None or not build.is_exact_release:
        return CouldNotCheck("this release is not in the table")
    problems = context.compat.list_problems(tensorflow.distribution or "tensorflow", build.version)
    active_problems = [
        problem
        for problem in problems
        if not problem.is_reported_by_rules and is_problem_present(context, problem)
    ]
    return [
        RULE.make_finding(
            Cause(problem.cause),
            Severity.WARNING if problem.severity == "error" else Severity.INFO,
            problem.text,
            title=problem.title,
            evidence=[Evidence("compat/problems.toml", f"{problem.id}: {problem.proof}")],
            remedies=[_build_remedy(context, problem)],
        )
        for problem in active_problems
    ]


def is_problem_present(context: RuleContext, problem: Problem) -> bool:
    """Return whether this machine meets all conditions of the problem. An unknown condition is never met."""
    for condition, required_value in problem.conditions.items():
        if condition == "capability":
            gpus = [gpu.capability for gpu in context.target.host.cards]
            if not any(is_capability_in_range(gpu, required_value) for gpu in gpus):
                return False
        elif condition == "python":
            if context.python is None or not versions.satisfies(context.python.version, required_value):
                return False
        elif condition == "extra":
            distributions = context.python.distributions if context.python is not None else ()
            # the `and-cuda` extra counts as installed if its cuDNN wheel is
            if not any(distribution.name.startswith("nvidia-cudnn-") for distribution in distributions):
                return False
        elif condition == "platform":
            if context.facts.machine.system.lower() != required_value:
                return False
        else:
            return False
    return _is_still_present(context, problem)


def is_capability_in_range(capability: str, condition: str) -> bool:
    """Return whether a compute capability meets a condition such as "<7.5"; False if either is malformed."""
    from tfdoctor.compat import capability_matches

    try:
        return capability_matches(capability, condition)
    except ValueError:
        return False


def _is_still_present(context: RuleContext, problem: Problem) -> bool:
    """Return whether the problem is present with the installed libraries.

    Two problems depend on the version of cuDNN or of libcublas.
    """
    if problem.id == "cudnn-unpinned" and context.python is not None:
        cudnn = find_cudnn_version(context.facts)
        wheels = [
            distribution.version
            for distribution in context.python.distributions
            if distribution.name.startswith("nvidia-cudnn-")
        ]
        cudnn_versions = [cudnn.version] if cudnn is not None else wheels
        last_version = context.compat.find_dropping_cudnn("5.0", 9)
        return any(
            versions.is_version(version)
            and last_version is not None
            and versions.is_at_least(version, last_version)
            for version in cudnn_versions
        )
    if problem.id == "libcublas10-update-breaks":
        libraries = context.loader.found if context.loader is not None else ()
        return any(library.name.startswith("libcublas.so.10.2.2") for library in libraries)
    return isinstance(context.facts.tensorflow, Known)


def _build_remedy(context: RuleContext, problem: Problem) -> Remedy:
    """Return the table's remedy, with a command if it pins NVIDIA's wheels."""
    pins = [pin for pin in problem.pins if pin.startswith("nvidia-")]
    if pins:
        command = format_pip_install(context.target, pins)
        return Remedy(
            problem.remedy,
            (command, format_check_command(context.target)),
            steps=(Install(tuple(pins)),),
        )
    return Remedy(problem.remedy)


RULE = Rule(
    "TFD313",
    "known-problem",
    "This release has known problems",
    tuple(Cause),
    check,
    short_title="known problems",
    needs=(prerequisites.require_tensorflow,),
)
