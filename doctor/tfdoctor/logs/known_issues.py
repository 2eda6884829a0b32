"""Describe the known problems (compat/problems.toml) of the release that wrote a log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.compat.problems import capability_matches
from tfdoctor.core.causes import Cause
from tfdoctor.core.causes.steps import Remedy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat.problems import Problem
    from tfdoctor.logs.log_context import Decision, LogContext

__all__ = ["describe_known_problems"]

_PACKAGES = ("tensorflow", "tensorflow-gpu")
_VERSIONED_LIBRARY = re.compile(r"lib(?!tensorflow)\w{2,40}\.so(?:\.\d{1,4}){1,3}")
"""A versioned library in the text of a problem, unless it is TensorFlow's own."""
_MAX_DESCRIBED_PROBLEMS = 2
_SELF_EXPLANATORY_CAUSES = frozenset({Cause.WINDOWS_NATIVE_UNSUPPORTED, Cause.NVML_MISSING})
"""Causes whose own text already covers the release."""


def describe_known_problems(context: LogContext, decision: Decision) -> tuple[str, tuple[Remedy, ...]]:
    """Return a description of the matching known problems, and their remedies.

    Both are empty if the release is unknown or no known problem matches.
    """
    sentences = []
    remedies = []
    for problem in list(_iter_problems(context, decision))[:_MAX_DESCRIBED_PROBLEMS]:
        package_note = {
            "and-cuda": " (as tensorflow[and-cuda])",
            "tensorflow/tensorflow": " (in the image tensorflow/tensorflow)",
        }.get(problem.conditions.get("extra") or problem.conditions.get("image") or "", "")
        sentences.append(f"Known of this release{package_note}: {problem.title}. {problem.text}")
        remedies.append(Remedy(f"If that is it: {problem.remedy}"))
    return " ".join(sentences), tuple(remedies)


def _iter_problems(context: LogContext, decision: Decision) -> Iterator[Problem]:
    """Yield the release's problems that can explain the decision's cause or other possible causes."""
    version = context.origin.version
    if (
        version is None
        or decision.cause in _SELF_EXPLANATORY_CAUSES
        or decision.cause in (Cause.HEALTHY, Cause.INCONCLUSIVE)
    ):
        return
    releases = [
        release
        for release in context.compat.releases
        if release.package in _PACKAGES
        and not release.is_prerelease
        and version in (release.version, release.minor)
    ]
    gpu_releases = [release for release in releases if release.gpu] or releases
    causes = {decision.cause.value, *(cause.value for cause in decision.other_causes)}
    for problem in context.compat.problems:
        affected = [release for release in gpu_releases if release.package in problem.packages]
        if (
            affected
            and problem.severity != "info"
            and problem.cause in causes
            and all(problem.affects_release(release.package, release.version) for release in affected)
            and _is_consistent_with_log(context, problem)
        ):
            yield problem


def _is_consistent_with_log(context: LogContext, problem: Problem) -> bool:
    """Return whether the log agrees with the conditions of the problem.

    The log must confirm conditions on the GPU, the platform or the container image. It cannot confirm a condition on
    the Python version.
    """
    conditions = problem.conditions
    if "python" in conditions or ("platform" in conditions and not context.is_windows):
        return False
    if "capability" in conditions:
        capability = context.find_capability()
        if capability is None or not capability_matches(capability, conditions["capability"]):
            return False
    if "image" in conditions and not context.is_in_container():
        return False
    if context.is_windows and "platform" not in conditions and problem.area in ("libraries", "images"):
        return False
    library_match = _VERSIONED_LIBRARY.search(problem.text)
    missing_sonames = {unopened.soname for unopened in context.missing_toolkit_libraries}
    # if other libraries are missing too, this problem is not the cause
    return not (library_match and missing_sonames) or missing_sonames == {library_match[0]}
